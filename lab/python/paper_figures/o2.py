"""OptiNIC's Fig. 2: accuracy of training and of inference by the share of packets that are dropped."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, legend_below, panels

MARKERS = ["o", "s", "^", "D"]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare: their changes from no drops to the paper's drop rate."""
    found: Numbers = {}
    drop = settings["drop"]
    for name, (panel, measure) in settings["panels"].items():
        for short, series in settings["series"].items():
            before, after = (rows.value(panel, series, measure, x) for x in (0, drop))
            found[f"{name}_{short}"] = after - before
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the accuracy over the drop rate: training on the left, inference on the right.

    Bars reach down to the lowest seed.
    """
    figure, axes = panels(2, width=4.2)
    for axis, kind in zip(axes, settings["kinds"], strict=True):
        number = 0
        for task in settings["tasks"]:
            for series in settings["series"].values():
                drops, values = rows.line(f"{kind}, {task}", series, "accuracy_percent")
                _, lowest = rows.line(f"{kind}, {task}", series, "lowest_percent")
                axis.errorbar(
                    100 * drops,
                    values,
                    yerr=[values - lowest, 0 * values],
                    elinewidth=0.8,
                    label=f"{task}, {series}",
                    marker=MARKERS[number],
                    color=SPLITS[number],
                    markersize=8 - 2 * (number % 2),
                    linestyle="--" if number % 2 else "-",
                )
                number += 1
        axis.xaxis.set_major_formatter(PercentFormatter(100, decimals=0))
        axis.set_xlabel("packets dropped")
        axis.set_title(kind)
        axis.set_ylim(0, 100)
        axis.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    axes[0].set_ylabel("accuracy")
    legend_below(figure, axes[0], 2)
    return figure
