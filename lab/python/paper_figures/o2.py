"""OptiNIC's Fig. 2: accuracy of training and of inference by the share of packets that are dropped."""

from __future__ import annotations

from itertools import product

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, legend_below, panels

MARKERS = ["o", "s", "^", "D"]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare: their changes from no drops to the paper's drop rate."""
    found: Numbers = {}
    for kind, task in product(settings["kinds"], settings["tasks"]):
        for short, series in settings["series"].items():
            before, after = (
                rows.value(f"{kind}, {task}", series, "accuracy_percent", x) for x in (0, settings["drop"])
            )
            # Rows have six digits after the point. The sum makes 0 of -0.
            found[f"{kind}_{task}_{short}"] = round(after - before, 5) + 0.0
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the accuracy over the drop rate: a panel for each task, in training and in inference.

    Bars reach down to the lowest rank of all seeds.
    """
    names = [f"{kind}, {task}" for kind, task in product(settings["kinds"], settings["tasks"])]
    figure, axes = panels(len(names), width=7.2 / len(names))
    for axis, name in zip(axes, names, strict=True):
        for number, series in enumerate(settings["series"].values()):
            drops, values = rows.line(name, series, "accuracy_percent")
            _, lowest = rows.line(name, series, "lowest_percent")
            axis.errorbar(
                100 * drops,
                values,
                yerr=[values - lowest, 0 * values],
                elinewidth=0.8,
                label=series,
                marker=MARKERS[number],
                color=SPLITS[number],
                markersize=8 - 2 * (number % 2),
                linestyle="--" if number % 2 else "-",
            )
        axis.xaxis.set_major_formatter(PercentFormatter(100, decimals=0))
        axis.set_xlabel("packets dropped")
        axis.set_title(name)
        axis.set_ylim(0, 100)
        axis.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    axes[0].set_ylabel("accuracy")
    legend_below(figure, axes[0], 4)
    return figure
