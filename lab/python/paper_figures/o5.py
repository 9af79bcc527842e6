"""OptiNIC's Fig. 5: times of collectives by the size of the tensor."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import REPAIRS, Style, panels

SHORT = ", short timeout"
SHIPPED: dict[str, Style] = {
    "shipped, exact": {"color": "#999999", "marker": "v"},
    "shipped, direct": {"color": "#0072B2", "marker": "D"},
    "shipped, ring": {"color": "#E69F00", "marker": "^"},
}


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare: how many times faster than RoCE, and the missing share."""
    found: Numbers = {}
    for name, series in (settings["bounded"] | settings["shipped"]).items():
        faster, missing = [], []
        for collective in settings["collectives"]:
            if series not in rows.series(collective):
                continue
            _, reliable = rows.line(collective, settings["roce"], "mean_ms")
            _, bounded = rows.line(collective, series, "mean_ms")
            faster.append(reliable / bounded)
            missing.append(rows.line(collective, series, "missing_percent")[1])
        found[f"{name}_least"] = float(np.min(faster))
        found[f"{name}_most"] = float(np.max(faster))
        found[f"{name}_missing"] = float(np.mean(missing))
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw mean times over the size, with the longest as marks: messages above, XP and operations below."""
    collectives, bounded = settings["collectives"], list(settings["bounded"].values())
    nic = [name for name in bounded if name.startswith("XP")]
    messages = [name for name in bounded if name not in nic]
    groups = [messages, [*nic, *settings["shipped"].values()]]
    figure, axes = panels(len(collectives), width=4.2, rows=len(groups))
    for number, axis in enumerate(axes):
        collective = collectives[number % len(collectives)]
        line(axis, rows, collective, settings["roce"])
        for name in groups[number // len(collectives)]:
            if name in rows.series(collective):
                line(axis, rows, collective, name)
        axis.set_title(collective)
        axis.set_xlabel("tensor, MB")
        if collective == collectives[0]:
            axis.set_ylabel("mean, and p99 (marks), ms")
            # The first collective has all series of its row.
            legend = axis.get_legend_handles_labels()
        if collective == collectives[-1]:
            axis.legend(*legend, loc="center left", bbox_to_anchor=(1.02, 0.5))
    # Panels of a column have one scale, so that they can be compared.
    for column in range(len(collectives)):
        same = axes[column :: len(collectives)]
        for axis in same:
            axis.set_ylim(0, max(other.get_ylim()[1] for other in same))
    return figure


def line(axes: Axes, rows: Rows, collective: str, series: str) -> None:
    """Draw a series. With a short timeout, a transport keeps its colour, and its line is dotted."""
    sizes, mean = rows.line(collective, series, "mean_ms")
    _, tail = rows.line(collective, series, "p99_ms")
    transport = series.removesuffix(SHORT)
    look = SHIPPED[series] if series in SHIPPED else REPAIRS[transport]
    look = look | {"linestyle": "-" if transport == series else ":"}
    axes.plot(sizes, mean, label=series, linewidth=1.4, **look)
    axes.plot(sizes, tail, linestyle="none", marker="_", markersize=9, color=look["color"])
