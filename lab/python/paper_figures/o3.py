"""OptiNIC's Fig. 3: the loss of a model over the time of its training."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, legend_below, panels

MARKERS = ["o", "s", "^", "D", "v", "P", "x"]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare: how much sooner a loss is reached, last losses, and what is missing."""
    panel, base = settings["panel"], settings["base"]

    def total(series: str, measure: str) -> float:
        return rows.value(panel, series, measure, 0)

    found: Numbers = {}
    for short, series in settings["series"].items():
        found[f"{short}_sooner"] = total(base, "s_to_loss") / total(series, "s_to_loss")
    for short in settings["inexact"]:
        series = settings["series"][short]
        found[f"{short}_over_exact"] = found[f"{short}_sooner"] / found["exact_sooner"]
        found[f"{short}_loss_percent"] = 100 * (total(series, "final_loss") / total(base, "final_loss") - 1)
        found[f"{short}_missing_percent"] = total(series, "missing_percent")
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the loss on the test set over the seconds of training; the time of the tests does not count."""
    figure, [axis] = panels(1, width=6)
    series = [settings["base"], *settings["series"].values()]
    for number, name in enumerate(series):
        seconds, losses = rows.line(settings["panel"], name, "test_loss")
        axis.plot(seconds, losses, label=name, marker=MARKERS[number], color=SPLITS[number])
    axis.set_xlabel("training, s")
    axis.set_ylabel("loss on the test set")
    axis.set_title(settings["panel"])
    legend_below(figure, axis, 4)
    return figure
