"""OptiNIC's Fig. 6: mean and p99 times of collectives."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_below, panels, places


def times(settings: Settings, rows: Rows, loss: str, measure: str) -> dict[str, Array]:
    """Return the times of all transports, with one time for each collective."""
    names = [*settings["reliable"], *settings["bounded"].values()]
    shown = [f"{collective}, {loss}" for collective in settings["collectives"]]
    return {name: np.array([rows.value(panel, name, measure, 0) for panel in shown]) for name in names}


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare. For several collectives, a number is the largest of their numbers."""
    found: Numbers = {}
    loss = settings["loss"]
    mean, p99 = (times(settings, rows, loss, measure) for measure in ["mean_ms", "p99_ms"])
    missing = times(settings, rows, loss, "missing_percent")
    others = settings["reliable"]
    for name, series in settings["bounded"].items():
        for kind, values in [("mean", mean), ("p99", p99)]:
            lowest = np.min([values[other] for other in others], axis=0)
            found[f"{name}_{kind}"] = float((values[series] / lowest).max())
        found[f"{name}_missing"] = float(missing[series].max())
    for name, series in settings["beside_roce"].items():
        for kind, values in [("mean", mean), ("p99", p99)]:
            found[f"{name}_{kind}"] = float((values[series] / values[settings["roce"]]).max())
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot for each loss: bars are means, marks are p99."""
    losses = settings["losses"]
    figure, axes = panels(len(losses), width=4.6)
    for axis, loss in zip(axes, losses, strict=True):
        mean, p99 = (times(settings, rows, loss, measure) for measure in ["mean_ms", "p99_ms"])
        bars(axis, mean, p99)
        places(axis, [name.replace(", ", ",\n") for name in settings["collectives"]])
        axis.set_title(loss)
    axes[0].set_ylabel("mean and p99 of a collective, ms")
    legend_below(figure, axes[0], 4)
    return figure
