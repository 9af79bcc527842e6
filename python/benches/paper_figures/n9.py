"""NetRT's Fig. 9 and table III: packets that take several paths."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_below, panels, places

PANEL = "spines"


def line(rows: Rows, name: str, measure: str, panel: str = PANEL) -> Array:
    """Return values by the number of spines."""
    return rows.line(panel, name, measure)[1]


def lower(rows: Rows, name: str, than: str, measure: str, panel: str = PANEL) -> Array:
    """Return by how many percent times are lower."""
    return 100 * (1 - line(rows, name, measure, panel) / line(rows, than, measure, panel))


def for_100_kb(settings: Settings, rows: Rows, name: str, measure: str, panel: str = PANEL) -> Array:
    """Return a count for 100 KB of each write."""
    units: float = settings["senders"] * settings["write_bytes"] / 1e5
    return line(rows, name, measure, panel) / units


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    ecmp, drill, boxes = settings["ecmp"], settings["drill"], settings["boxes"]
    mean, tail = (lower(rows, boxes, drill, measure) for measure in ["mean_us", "p99_us"])
    beside = lower(rows, boxes, ecmp, "mean_us")

    def slow(name: str, than: str, measure: str) -> Array:
        return np.concatenate([lower(rows, name, than, measure, panel) for panel in settings["slow"]])

    def slow_counts(name: str, measure: str) -> Array:
        return np.concatenate(
            [for_100_kb(settings, rows, name, measure, panel) for panel in settings["slow"]]
        )

    found: Numbers = {
        "repeated_with_boxes": float(for_100_kb(settings, rows, boxes, "repeated").max()),
        "repeated_least": float(for_100_kb(settings, rows, drill, "repeated").min()),
        "repeated_most": float(for_100_kb(settings, rows, drill, "repeated").max()),
        "slow_repeated_with_boxes": float(slow_counts(boxes, "repeated").max()),
        "slow_path_changes_plain": float(slow_counts(drill, "path_changes").mean()),
        "slow_path_changes_boxes": float(slow_counts(boxes, "path_changes").mean()),
    }
    for name, values in [
        ("mean", mean),
        ("tail", tail),
        ("ecmp", beside),
        ("slow_mean", slow(boxes, drill, "mean_us")),
        ("slow_tail", slow(boxes, drill, "p99_us")),
        ("slow_ecmp", slow(boxes, ecmp, "mean_us")),
    ]:
        found |= {f"{name}_least": float(values.min()), f"{name}_most": float(values.max())}
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's figure and its table as plots, above with fast paths and below with slow ones."""
    shown = {PANEL: settings["fast"]} | {panel: panel for panel in settings["slow"]}
    figure, axes = panels(3, rows=len(shown))
    for number, (paths, rate) in enumerate(shown.items()):
        mean, tail, repeated = axes[3 * number : 3 * number + 3]
        for panel, title, measure in [(mean, "mean", "mean_us"), (tail, "p99", "p99_us")]:
            bars(panel, {name: line(rows, name, measure, paths) / 1000 for name in settings["series"]})
            panel.set_title(f"{title}, {rate}")
            panel.set_ylabel("completion time, ms")
        counts = {name: for_100_kb(settings, rows, name, "repeated", paths) for name in settings["series"]}
        bars(repeated, counts)
        repeated.set_title(f"repeated by NICs, {rate}")
        repeated.set_ylabel("packets for 100 KB")
        for panel in (mean, tail, repeated):
            places(panel, [f"{spines:g}" for spines in rows.line(paths, settings["ecmp"], "mean_us")[0]])
            panel.set_xlabel("spines")
    legend_below(figure, axes[0], len(settings["series"]))
    return figure
