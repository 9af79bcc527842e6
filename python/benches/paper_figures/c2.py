"""Celeris' Fig. 2: times of steps under bursts of other traffic."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import REPAIRS, curve, legend_beside, panels


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    found: Numbers = {}
    panel, roce = settings["panel"], settings["roce"]

    def value(series: str, measure: str) -> float:
        return rows.value(panel, series, measure, 0)

    for name, series in settings["reliable"].items():
        found[f"{name}_tail"] = value(series, "p99_ms") / value(series, "median_ms")
    for name, series in settings["bounded"].items():
        found[f"{name}_gain"] = value(roce, "p99_ms") / value(series, "p99_ms")
        found[f"{name}_median"] = value(series, "median_ms") / value(roce, "median_ms")
        found[f"{name}_missing"] = value(series, "missing_percent")
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the share of steps that have ended, over time: reliable transports above, bounded ones below."""
    shown = settings["panels"]
    groups = [list(settings["reliable"].values()), [settings["roce"], *settings["bounded"].values()]]
    figure, axes = panels(len(shown), width=4.6, rows=len(groups))
    for number, axis in enumerate(axes):
        panel, names = shown[number % len(shown)], groups[number // len(shown)]
        for name in names:
            percents, times = rows.line(panel, name, "step_ms")
            curve(axis, times, percents, {"label": name, **REPAIRS[name]})
        axis.set_title(panel)
        axis.set_xscale("log")
        axis.set_xlim(1.8, 18)
        ticks = np.array([2, 3, 4, 5, 7, 10, 15])
        axis.set_xticks(ticks, [f"{tick}" for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set_xlabel("time of a step, ms")
        if panel == shown[0]:
            axis.set_ylabel("steps that have ended, %")
        if panel == shown[-1]:
            legend_beside(axis)
    return figure
