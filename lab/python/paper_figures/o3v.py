"""OptiNIC's training in virtual time: a step computes, and then sums the gradients with one all-reduce.

All ranks compute equally long, and start the all-reduce together, so the time of a step is that of its two
parts. The computation is a multiple of RoCE's all-reduce without losses and without other traffic.
"""

from __future__ import annotations

from math import hypot

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.ol import style
from paper_figures.rows import Rows
from paper_figures.style import legend_beside, log_y, panels, places


def computation(settings: Settings, rows: Rows) -> float:
    """Return the milliseconds of a computation as long as the all-reduce of RoCE that nothing delays."""
    panel = settings["panels"]["alone"]
    return rows.value(panel, settings["roce"]["alone"]["67"], "mean_ms", 0)


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return how many times as long a step takes with RoCE as with OptiNIC, all at one loss."""
    return {name: found for name, (found, _) in ratios(settings, rows).items()}


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of these ratios."""
    return {name: error for name, (_, error) in ratios(settings, rows).items()}


def ratios(settings: Settings, rows: Rows) -> dict[str, tuple[float, float]]:
    """Return the numbers and their standard errors."""
    loss, alone = settings["loss"], computation(settings, rows)
    found = {}
    for place, pairs in settings["compared"].items():
        panel = settings["panels"][place]
        for share, timeout in pairs:
            roce = settings["roce"][place][timeout]
            for name, optinic in settings["optinic"].items():
                steps = [
                    share * alone + rows.value(panel, series, "mean_ms", loss) for series in (roce, optinic)
                ]
                step_errors = [rows.error(panel, series, "error_ms", loss) for series in (roce, optinic)]
                ratio = steps[0] / steps[1]
                error = ratio * hypot(step_errors[0] / steps[0], step_errors[1] / steps[1])
                found[f"{place}_{timeout}_{share:g}_{name}"] = (ratio, error)
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the time of a step by its computation, without other traffic and with it."""
    shares, alone, loss = settings["shares"], computation(settings, rows), settings["loss"]
    figure, axes = panels(len(settings["panels"]), width=4.4)
    for axis, (place, panel) in zip(axes, settings["panels"].items(), strict=True):
        for name in [*settings["roce"][place].values(), *settings["optinic"].values()]:
            mean = rows.value(panel, name, "mean_ms", loss)
            steps = [share * alone + mean for share in shares]
            axis.plot(range(len(shares)), steps, label=name, linewidth=1.4, **style(name))
        places(axis, [f"{share:g}" for share in shares])
        axis.set_xlabel("computation, in lossless all-reduces")
        log_y(axis)
        axis.set_title(panel)
        legend_beside(axis)
    axes[0].set_ylabel("time of a step, ms")
    return figure
