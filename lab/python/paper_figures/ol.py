"""OptiNIC's Figs. 5 and 6 where packets are lost: times of AllReduce by loss, ACK timeout, PFC and buffer."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import REPAIRS, Style, legend_beside, log_y, loss_places, panels

#: Styles of RoCE by its ACK timeout. Without PFC, lines are dashed and marks are empty.
TIMEOUTS: dict[str, Style] = {
    "4 ms": {"color": "#E69F00", "marker": "o"},
    "16 ms": {"color": "#D55E00", "marker": "s"},
    "67 ms": {"color": "#000000", "marker": "^"},
}
#: SRNIC has its usual look beside no other series that is like it. Here, best effort with Swift is.
SRNIC: Style = {"color": "#999999", "marker": "x", "linestyle": "--"}


def style(name: str) -> Style:
    """Return the look of a series."""
    if name == "SRNIC":
        return SRNIC
    if name in REPAIRS:
        return REPAIRS[name]
    timeout = name.rsplit(", ", 1)[-1]
    without = {"linestyle": "--", "markerfacecolor": "none"} if "no PFC" in name else {}
    return TIMEOUTS[timeout] | without


def ratio(settings: Settings, rows: Rows, panel: str, pair: tuple[str, str]) -> tuple[float, float]:
    """Return the mean of the first series over that of the second one, and the standard error of that."""
    loss = settings["loss"]
    above, below = (rows.value(panel, series, "mean_ms", loss) for series in pair)
    errors = [rows.value(panel, series, "error_ms", loss) for series in pair]
    return above / below, above / below * hypot(errors[0] / above, errors[1] / below)


def ratios(settings: Settings, rows: Rows) -> dict[str, tuple[float, float]]:
    """Return the ratios of mean times, with their standard errors, by the names of the numbers."""
    found = {}
    for place, timeouts in settings["roce"].items():
        panel = settings["panels"][place]
        for name, optinic in settings["optinic"].items():
            for timeout, roce in timeouts.items():
                found[f"{place}_{timeout}_{name}"] = ratio(settings, rows, panel, (roce, optinic))
        for name, optinic in compared(settings).items():
            means = {of: value(settings, rows, panel, of, "mean_ms") for of in others(settings, rows, panel)}
            _, lowest = min((mean, of) for of, mean in means.items())
            found[f"{place}_mean_{name}"] = ratio(settings, rows, panel, (optinic, lowest))
    return found


def compared(settings: Settings) -> dict[str, str]:
    """Return the series that are compared with the lowest of the reliable transports."""
    return {**settings["optinic"], **settings["hosts"]}


def value(settings: Settings, rows: Rows, panel: str, series: str, measure: str) -> float:
    """Return a number at the loss of the compared numbers."""
    return rows.value(panel, series, measure, settings["loss"])


def others(settings: Settings, rows: Rows, panel: str) -> list[str]:
    """Return the reliable transports."""
    return [name for name in rows.series(panel) if name not in settings["bounded"]]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers, all at one loss."""
    found = {name: ratio for name, (ratio, _) in ratios(settings, rows).items()}
    for place in settings["roce"]:
        panel = settings["panels"][place]
        tail = min(value(settings, rows, panel, name, "p99_ms") for name in others(settings, rows, panel))
        for name, optinic in compared(settings).items():
            found[f"{place}_p99_{name}"] = value(settings, rows, panel, optinic, "p99_ms") / tail
            found[f"{place}_missing_{name}"] = value(settings, rows, panel, optinic, "missing_percent")
    for name, (panel, series) in settings["deviations"].items():
        found[name] = value(settings, rows, panel, series, "deviation_ms")
    return found


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of the ratios of means."""
    return {name: error for name, (_, error) in ratios(settings, rows).items()}


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw times by loss: RoCE above, the other reliable transports in the middle; below, what is missing."""
    shown, bounded = list(settings["panels"].values()), settings["bounded"]
    optinic = list(settings["optinic"].values())
    figure, axes = panels(len(shown), width=4.2, height=3, rows=3)
    reliable = others(settings, rows, shown[0])
    roce = [name for name in reliable if name.startswith("RoCE")]
    rest = [name for name in reliable if name not in roce]
    kinds = [([*roce, *optinic], "mean_ms"), ([*rest, *bounded], "mean_ms"), (bounded, "missing_percent")]
    for number, axis in enumerate(axes):
        panel, (names, measure) = shown[number % len(shown)], kinds[number // len(shown)]
        if panel == settings["panels"]["alone"]:
            # No queue grows, so PFC does nothing, and its lines would hide the others.
            names = [name for name in names if "no PFC" not in name]
        lines(axis, rows, panel, names, measure)
        if measure == "mean_ms":
            log_y(axis)
        else:
            axis.axhline(1, color="black", linestyle="--", linewidth=0.8, zorder=0)
            axis.set_ylim(bottom=0)
        if number < len(shown):
            axis.set_title(panel)
        if panel == shown[0]:
            axis.set_ylabel("mean, ms" if measure == "mean_ms" else "missing, % (dashed: the paper's bound)")
        if panel == shown[-1]:
            legend_beside(axis)
    # Panels of a row have one scale, so that they can be compared.
    for row in (axes[:3], axes[3:6], axes[6:]):
        limits = [axis.get_ylim() for axis in row]
        for axis in row:
            axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    return figure


def lines(axes: Axes, rows: Rows, panel: str, names: Sequence[str], measure: str) -> None:
    """Draw series over the losses. Bars are two standard errors of a mean, where they can be seen."""
    losses = np.empty(0)
    for name in names:
        losses, values = rows.line(panel, name, measure)
        look = style(name)
        axes.plot(range(len(losses)), values, label=name, linewidth=1.4, **look)
        if measure == "mean_ms":
            spread = 2 * rows.line(panel, name, "error_ms")[1]
            (seen,) = np.nonzero(spread > 0.1 * values)
            # A logarithmic axis has no place for 0.
            low, high = np.maximum(values - spread, 1), values + spread
            axes.vlines(seen, low[seen], high[seen], colors=look["color"], linewidth=0.8)
    loss_places(axes, losses)
