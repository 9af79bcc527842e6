"""NetRT's Table II: memory of the data structures of a box."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import log_y, panels, places

PANEL = "idle flows"


def in_table(settings: Settings) -> Numbers:
    """Return the bytes that a queue pair takes by the paper's text, by data structure."""
    return {name: bits / 8 for name, bits in settings["bits"].items()}


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    pairs, of_pair = settings["queue_pairs"], in_table(settings)
    computed = {f"{name}_kb": pairs * size / 1e3 for name, size in of_pair.items()}
    destination = sum(size for name, size in of_pair.items() if name != "frequency")
    return computed | {
        "pool_kb": settings["rate_bps"] * settings["rtt_s"] / 8 / 1e3,
        "destination_kb": pairs * destination / 1e3,
        "flow_bytes": rows.value(PANEL, "NetRT", "bytes", pairs),
        "flow_bytes_lowar": rows.value(PANEL, "LoWAR", "bytes", pairs),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the bytes of a queue pair by the paper's text, and of a flow in both boxes of ours."""
    figure, [axes] = panels(1, width=6.4)
    ours = [("NetRT,\nhere", "NetRT"), ("LoWAR,\nhere", "LoWAR")]
    values = in_table(settings)
    values["paper,\nall"] = sum(values.values())
    values |= {text: rows.value(PANEL, name, "bytes", settings["queue_pairs"]) for text, name in ours}
    bars = axes.bar(
        range(len(values)), list(values.values()), 0.7, color="#0072B2", hatch="xx", edgecolor="white"
    )
    axes.bar_label(bars, [f"{round(size, 2 if size < 100 else 0):,g}" for size in values.values()], padding=2)
    log_y(axes)
    axes.margins(y=0.15)
    axes.grid(visible=False, axis="x")
    places(axes, list(values))
    axes.set_ylabel("bytes of a queue pair")
    return figure
