"""OptiNIC's Fig. 6: mean and p99 times of collectives."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_beside, panels, places


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
    """Draw the paper's plot for each loss: bars are means, marks are p99. Bounded transports are below."""
    losses, roce = settings["losses"], settings["roce"]
    groups = [settings["reliable"], [roce, *settings["bounded"].values()]]
    figure, axes = panels(len(losses), width=4.6, height=3, rows=len(groups))
    for number, axis in enumerate(axes):
        loss, names = losses[number % len(losses)], groups[number // len(losses)]
        mean, p99 = (times(settings, rows, loss, measure) for measure in ["mean_ms", "p99_ms"])
        bars(axis, *({name: values[name] for name in names} for values in (mean, p99)))
        places(axis, [name.replace(", ", ",\n") for name in settings["collectives"]])
        axis.set_title(loss)
        # Both groups have one scale, so that they can be compared.
        axis.set_ylim(0, 1.05 * max(float(values.max()) for values in p99.values()))
        if loss == losses[0]:
            axis.set_ylabel("mean and p99, ms")
        if loss == losses[-1]:
            legend_beside(axis)
    return figure
