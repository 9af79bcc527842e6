"""NetRT's Fig. 8: completion times of an incast."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_below, panels, places


def lower(settings: Settings, rows: Rows, name: str, measure: str) -> list[float]:
    """Return by how many percent times are lower than with Go-Back-N, by buffer and number of senders."""
    found: list[float] = []
    for buffer in settings["buffers"]:
        plain, others = (rows.line(buffer, of, measure)[1] for of in [settings["plain"], name])
        found += [float(percent) for percent in 100 * (1 - others / plain)]
    return found


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    mean = lower(settings, rows, settings["large_pool"], "mean_us")
    tail = lower(settings, rows, settings["large_pool"], "p99_us")
    small, small_tail = (
        lower(settings, rows, settings["small_pool"], measure) for measure in ["mean_us", "p99_us"]
    )
    unlimited, unlimited_tail = (
        lower(settings, rows, settings["unlimited"], measure) for measure in ["mean_us", "p99_us"]
    )
    pfc = lower(settings, rows, settings["pfc"], "mean_us")
    return {
        "mean_least": min(mean),
        "mean_most": max(mean),
        "tail_least": min(tail),
        "tail_most": max(tail),
        "small_pool_least": min(small),
        "small_pool_most": max(small),
        "small_pool_tail_least": min(small_tail),
        "small_pool_tail_most": max(small_tail),
        "unlimited_least": min(unlimited),
        "unlimited_most": max(unlimited),
        "unlimited_tail_least": min(unlimited_tail),
        "unlimited_tail_most": max(unlimited_tail),
        "pfc_least": min(pfc),
        "pfc_most": max(pfc),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot for each buffer."""
    buffers = settings["buffers"]
    figure, axes = panels(2 * len(buffers), width=3.2)
    shown = [
        (f"{title}, buffer of {buffer}", buffer, measure)
        for title, measure in [("(a) mean", "mean_us"), ("(b) p99", "p99_us")]
        for buffer in buffers
    ]
    for panel, (title, buffer, measure) in zip(axes, shown, strict=True):
        lines = {name: rows.line(buffer, name, measure) for name in settings["series"]}
        values: dict[str, Array] = {name: times / 1000 for name, (_, times) in lines.items()}
        error = measure.replace("_us", "_error_us")
        errors = {name: rows.intervals(buffer, name, x, error) / 1000 for name, (x, _) in lines.items()}
        bars(panel, values, intervals=errors)
        places(panel, [f"{senders:g}" for senders in lines[settings["plain"]][0]])
        panel.set_title(title)
        panel.set_xlabel("senders")
    axes[0].set_ylabel("completion time, ms")
    legend_below(figure, axes[0], len(settings["series"]))
    return figure
