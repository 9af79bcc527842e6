"""Celeris' Fig. 2: times of steps under bursts of other traffic."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Style, legend_beside, log_y, loss_text, panels, places

#: Markers of the series of a panel. Each panel has at most this many.
MARKERS = ["o", "v", "s", "^", "D", "P", "x"]
#: The look of series that are not of interest: their markers and their names tell them apart.
OTHER: Style = {"color": "#777777", "linewidth": 0.9}


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
    return found | numbers_of_losses(settings["losses"], roce, rows)


def numbers_of_losses(losses: Settings, roce: str, rows: Rows) -> Numbers:
    """Return the numbers where cables lose packets, all at one loss, by the ACK timeout of RoCE."""
    found: Numbers = {}
    for timeout, panel in losses["panels"].items():

        def value(series: str, measure: str, panel: str = panel) -> float:
            return rows.value(panel, series, measure, losses["loss"])

        found[f"tail_{timeout}"] = value(roce, "p99_ms") / value(roce, "median_ms")
        for name, series in losses["bounded"].items():
            found[f"{name}_gain_{timeout}"] = value(roce, "p99_ms") / value(series, "p99_ms")
            found[f"{name}_median_{timeout}"] = value(series, "median_ms") / value(roce, "median_ms")
            found[f"{name}_missing_{timeout}"] = value(series, "missing_percent")
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the share of steps that have ended, over time, and below what losses do, by ACK timeout."""
    shown = settings["panels"]
    groups = [list(settings["reliable"].values()), [settings["roce"], *settings["bounded"].values()]]
    figure, axes = panels(len(shown), width=4.6, rows=len(groups) + 1)
    by_timeout(axes[-2:], settings, rows)
    for number, axis in enumerate(axes[:-2]):
        panel, names = shown[number % len(shown)], groups[number // len(shown)]
        for place, name in enumerate(names):
            percents, times = rows.line(panel, name, "step_ms")
            colour = settings["colours"].get(name)
            style = {"color": colour, "linewidth": 1.8} if colour else OTHER
            # Equal curves show the markers of both.
            every = (3 + place * 14 // len(names), 14)
            marks: Style = {"marker": MARKERS[place], "markerfacecolor": "none", "markevery": every}
            axis.plot(times, percents, label=name, **style, **marks)
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


def by_timeout(axes: list[Axes], settings: Settings, rows: Rows) -> None:
    """Draw p99, medians and what is missing by the ACK timeout of RoCE, at one loss."""
    losses, roce = settings["losses"], settings["roce"]
    times, missing = axes

    def line(series: str, measure: str) -> list[float]:
        return [rows.value(panel, series, measure, losses["loss"]) for panel in losses["panels"].values()]

    for number, name in enumerate([roce, *losses["bounded"].values()]):
        # Equal lines show the markers of both.
        marks: Style = {"marker": MARKERS[number], "markerfacecolor": "none", "markersize": 10 - 3 * number}
        look: Style = {"color": losses["colours"][name], "linewidth": 1.4} | marks
        at = range(len(losses["panels"]))
        times.plot(at, line(name, "p99_ms"), label=name, **look)
        times.plot(at, line(name, "median_ms"), **look | {"linestyle": ":"})
        missing.plot(at, line(name, "missing_percent"), label=name, **look)
    for axis in axes:
        places(axis, [f"{timeout} ms" for timeout in losses["panels"]])
        axis.set_title(f"loss of {loss_text(losses['loss'])}")
        axis.set_xlabel("ACK timeout of RoCE")
    times.set_ylabel("step, ms: p99; dotted: median")
    log_y(times)
    missing.set_ylabel("missing, %")
    missing.axhline(1, color="black", linestyle="--", linewidth=0.8, zorder=0)
    legend_beside(missing)
