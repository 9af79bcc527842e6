"""LoWAR's Fig. 10: completion times of messages over a long path that loses packets."""

from __future__ import annotations

from math import hypot

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import legend_below, lines, loss_places, panels

PANEL = "times"


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    plain, coded = settings["plain"], settings["code"]

    def time(series: str, measure: str, loss: float) -> float:
        return rows.value(PANEL, series, measure, loss)

    return {
        "lower_1e-5": 100 * (1 - time(coded, "mean_ms", 1e-5) / time(plain, "mean_ms", 1e-5)),
        "mean_1e-4": time(plain, "mean_ms", 1e-4) / time(coded, "mean_ms", 1e-4),
        "mean_5e-4": time(plain, "mean_ms", 5e-4) / time(coded, "mean_ms", 5e-4),
        "plain_tail_1e-5": time(plain, "p99_ms", 1e-5) / time(plain, "p99_ms", 0),
        "plain_tail_1e-4": time(plain, "p99_ms", 1e-4) / time(plain, "p99_ms", 0),
        "coded_tail_5e-4": time(coded, "p99_ms", 5e-4) / time(coded, "p99_ms", 0),
        "coded_mean_1e-3": time(coded, "mean_ms", 1e-3) / time(coded, "mean_ms", 0),
    }


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of the ratios of means."""

    def relative(series: str, loss: float) -> float:
        return rows.value(PANEL, series, "error_ms", loss) / rows.value(PANEL, series, "mean_ms", loss)

    found = numbers(settings, rows)
    losses = {"mean_1e-4": 1e-4, "mean_5e-4": 5e-4}
    both = {
        name: hypot(relative(settings["plain"], loss), relative(settings["code"], loss))
        for name, loss in losses.items()
    }
    both["coded_mean_1e-3"] = relative(settings["code"], 1e-3)
    return {name: found[name] * error for name, error in both.items()}


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot with our numbers."""
    figure, axes = panels(2)
    names = [settings["plain"], settings["narrow"], settings["code"]]
    # A p99 has no standard error.
    shown = [("mean_ms", "error_ms", "(a) mean"), ("p99_ms", "", "(b) p99")]
    for panel, (measure, error, title) in zip(axes, shown, strict=True):
        loss_places(panel, lines(panel, rows, PANEL, names, measure, error))
        panel.set_ylim(bottom=0)
        panel.set_title(title)
        panel.set_ylabel("completion time, ms")
    legend_below(figure, axes[0], len(names))
    return figure
