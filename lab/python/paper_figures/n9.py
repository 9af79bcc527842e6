"""NetRT's Fig. 9 and table III: packets that take several paths."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_below, panels, places
from paper_figures.verdict import ERRORS

PANEL = "spines"


def line(rows: Rows, name: str, measure: str, panel: str = PANEL) -> Array:
    """Return values by the number of spines."""
    return rows.line(panel, name, measure)[1]


def lower(rows: Rows, name: str, than: str, measure: str, panel: str = PANEL) -> Array:
    """Return by how many percent times are lower."""
    return 100 * (1 - line(rows, name, measure, panel) / line(rows, than, measure, panel))


def lower_errors(rows: Rows, name: str, than: str, measure: str, panel: str = PANEL) -> Array:
    """Return the standard errors of `lower`, as of independent runs."""
    error = measure.replace("_us", "_error_us")
    spines, _ = rows.line(panel, name, measure)
    relative = [
        rows.intervals(panel, of, spines, error) / ERRORS / line(rows, of, measure, panel)
        for of in (name, than)
    ]
    errors: Array = (100 - lower(rows, name, than, measure, panel)) * np.hypot(*relative)
    return errors


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
        "repeated_mean": float(for_100_kb(settings, rows, drill, "repeated").mean()),
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


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of the least and the most of times that are lower."""
    drill, ecmp = settings["drill"], settings["ecmp"]
    found: Numbers = {}
    for paths, panels_of in [("", [PANEL]), ("slow_", settings["slow"])]:
        for name, than, measure in [
            ("mean", drill, "mean_us"), ("tail", drill, "p99_us"), ("ecmp", ecmp, "mean_us"),
        ]:  # fmt: skip
            values, of_values = (
                np.concatenate([of(rows, settings["boxes"], than, measure, panel) for panel in panels_of])
                for of in (lower, lower_errors)
            )
            found[f"{paths}{name}_least"] = float(of_values[values.argmin()])
            found[f"{paths}{name}_most"] = float(of_values[values.argmax()])
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's figure and its table as plots, above with fast paths and below with slow ones."""
    shown = {PANEL: settings["fast"]} | {panel: panel for panel in settings["slow"]}
    figure, axes = panels(3, rows=len(shown))
    for number, (paths, rate) in enumerate(shown.items()):
        mean, tail, repeated = axes[3 * number : 3 * number + 3]
        for panel, title, measure in [(mean, "mean", "mean_us"), (tail, "p99", "p99_us")]:
            spines, error = (
                rows.line(paths, settings["ecmp"], measure)[0],
                measure.replace("_us", "_error_us"),
            )
            names = settings["series"]
            errors = {name: rows.intervals(paths, name, spines, error) / 1000 for name in names}
            bars(panel, {name: line(rows, name, measure, paths) / 1000 for name in names}, intervals=errors)
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
