"""NetRT's Fig. 9 and table III: packets that take several paths."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_below, panels, places

PANEL = "spines"


def line(rows: Rows, name: str, measure: str) -> Array:
    """Return values by the number of spines."""
    return rows.line(PANEL, name, measure)[1]


def lower(rows: Rows, name: str, than: str, measure: str) -> Array:
    """Return by how many percent times are lower."""
    return 100 * (1 - line(rows, name, measure) / line(rows, than, measure))


def repeats(settings: Settings, rows: Rows, name: str) -> Array:
    """Return the number of packets that NICs repeat for 100 KB of each write."""
    units: float = settings["senders"] * settings["write_bytes"] / 1e5
    return line(rows, name, "repeated") / units


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    ecmp, drill, boxes = settings["ecmp"], settings["drill"], settings["boxes"]
    mean, tail = (lower(rows, boxes, drill, measure) for measure in ["mean_us", "p99_us"])
    beside = lower(rows, boxes, ecmp, "mean_us")
    return {
        "repeated_with_boxes": float(repeats(settings, rows, boxes).max()),
        "repeated_least": float(repeats(settings, rows, drill).min()),
        "repeated_most": float(repeats(settings, rows, drill).max()),
        "mean_least": float(mean.min()),
        "mean_most": float(mean.max()),
        "tail_least": float(tail.min()),
        "tail_most": float(tail.max()),
        "ecmp_least": float(beside.min()),
        "ecmp_most": float(beside.max()),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's figure and its table as plots."""
    figure, axes = panels(3)
    for panel, title, measure in [(axes[0], "(a) mean", "mean_us"), (axes[1], "(b) p99", "p99_us")]:
        bars(panel, {name: line(rows, name, measure) / 1000 for name in settings["series"]})
        panel.set_title(title)
        panel.set_ylabel("completion time, ms")
    bars(axes[2], {name: repeats(settings, rows, name) for name in settings["series"]})
    axes[2].set_title("(c) repeated by NICs")
    axes[2].set_ylabel("packets for 100 KB")
    for panel in axes:
        places(panel, [f"{spines:g}" for spines in rows.line(PANEL, settings["ecmp"], "mean_us")[0]])
        panel.set_xlabel("spines")
    legend_below(figure, axes[0], len(settings["series"]))
    return figure
