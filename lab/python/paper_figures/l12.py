"""LoWAR's Fig. 12: goodput of small messages over a long path that loses packets."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, bytes_text, legend_below, log_y, panels, places

PANEL = "small messages"


def kept_share(settings: Settings, rows: Rows, series: str, panel: str = PANEL) -> Array:
    """Return the goodput by message size, divided by the goodput without losses."""
    goodput, lossless = (rows.line(panel, name, "goodput_gbps")[1] for name in [series, settings["lossless"]])
    return goodput / lossless


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    coded = kept_share(settings, rows, settings["code"])
    return {
        "kept_small": float(coded[:-1].min()),
        "kept_64_kib": float(coded[-1]),
        "narrow_kept_64_kib": float(kept_share(settings, rows, settings["narrow"])[-1]),
        "plain_kept_64_kib": float(kept_share(settings, rows, settings["plain"])[-1]),
        "nic_kept_64_kib": float(kept_share(settings, rows, settings["code"], f"{PANEL}, in the NIC")[-1]),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot; on the right, the goodput as a share of the goodput without losses."""
    figure, (left, right) = panels(2, width=4.2)
    names = [settings["plain"], settings["narrow"], settings["code"]]
    sizes, _ = rows.line(PANEL, settings["lossless"], "goodput_gbps")
    shown = [settings["lossless"], *names]
    intervals = {name: rows.intervals(PANEL, name, sizes, "error_gbps") for name in shown}
    bars(left, {name: rows.line(PANEL, name, "goodput_gbps")[1] for name in shown}, intervals=intervals)
    bars(right, {name: kept_share(settings, rows, name) for name in names})
    log_y(left)
    left.set_ylim(bottom=0.01)
    left.set_ylabel("goodput, Gbit/s")
    right.set_ylabel("goodput, over that without loss")
    for panel in (left, right):
        places(panel, [bytes_text(size) for size in sizes])
        panel.set_xlabel("message size")
    legend_below(figure, left, 4)
    return figure
