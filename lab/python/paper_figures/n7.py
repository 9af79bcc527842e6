"""NetRT's Fig. 7: memory of the duplicate pool and the reordering buffer."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, bars, legend_above, loss_places, panels

OVER_TIME = "over time"
POOL = "duplicate pool"
BUFFER = "reordering buffer"


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    size, loss = settings["size"], settings["loss_packet"]
    peaks = [rows.line(name, BUFFER, "peak_kb")[1].max() for name in settings["sizes"]]
    return {
        "pool_kb": rows.value(size, POOL, "peak_kb", loss),
        "buffer_peak_kb": rows.value(size, BUFFER, "peak_kb", loss),
        "buffer_mean_kb": rows.value(size, BUFFER, "mean_kb", loss),
        "buffer_most_kb": float(max(peaks)),
        "near_peak_kb": rows.value(settings["near"], BUFFER, "peak_kb", loss),
        "near_mean_kb": rows.value(settings["near"], BUFFER, "mean_kb", loss),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot; on the right, the effect of losses on the reordering buffer."""
    figure, (left, right) = panels(2, height=3.6, width=4.2)
    for name, colour in zip([POOL, BUFFER], SPLITS[:2], strict=True):
        left.plot(*rows.line(OVER_TIME, name, "kept_kb"), color=colour, label=name, linewidth=1.2)
    left.set_xlabel("time, ms")
    left.set_ylabel("kept, KB")
    left.set_title("writes of 1 MB, 1e-2 of the packets lost")
    lines = {size: rows.line(size, BUFFER, "peak_kb") for size in settings["sizes"]}
    bars(right, {f"writes of {size}": peaks for size, (_, peaks) in lines.items()})
    loss_places(right, lines[settings["size"]][0])
    right.set_ylabel("most in the reordering buffer, KB")
    right.set_title("200 writes")
    for panel in (left, right):
        legend_above(panel)
    return figure
