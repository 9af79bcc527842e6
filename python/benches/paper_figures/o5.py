"""OptiNIC's Fig. 5: times of collectives by the size of the tensor."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import REPAIRS, legend_below, panels

SHORT = ", short timeout"


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare: how many times faster than RoCE, and the missing share."""
    found: Numbers = {}
    for name, series in settings["bounded"].items():
        faster, missing = [], []
        for collective in settings["collectives"]:
            _, reliable = rows.line(collective, settings["roce"], "mean_ms")
            _, bounded = rows.line(collective, series, "mean_ms")
            faster.append(reliable / bounded)
            missing.append(rows.line(collective, series, "missing_percent")[1])
        found[f"{name}_least"] = float(np.min(faster))
        found[f"{name}_most"] = float(np.max(faster))
        found[f"{name}_missing"] = float(np.mean(missing))
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw mean times over the size for each collective, with the longest times as marks."""
    collectives = settings["collectives"]
    figure, axes = panels(len(collectives), width=4.2)
    for axis, collective in zip(axes, collectives, strict=True):
        for series in [settings["roce"], *settings["bounded"].values()]:
            sizes, mean = rows.line(collective, series, "mean_ms")
            _, tail = rows.line(collective, series, "p99_ms")
            # With a short timeout, a transport keeps its colour, and its line is dotted.
            transport = series.removesuffix(SHORT)
            style = REPAIRS[transport] | {"linestyle": "-" if transport == series else ":"}
            axis.plot(sizes, mean, label=series, linewidth=1.4, **style)
            axis.plot(sizes, tail, linestyle="none", marker="_", markersize=9, color=style["color"])
        axis.set_title(collective)
        axis.set_xlabel("tensor, MB")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("mean, and p99 (marks), ms")
    legend_below(figure, axes[0], 2)
    return figure
