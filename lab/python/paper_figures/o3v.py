"""OptiNIC's training in virtual time: a step computes, and then sums the gradients with one all-reduce.

All ranks compute equally long, and start the all-reduce together, so the time of a step is that of its two
parts. The computation is a multiple of RoCE's all-reduce without losses and without other traffic. A real
training with the losses of the all-reduces gives the number of steps to a loss on the test data.
"""

from __future__ import annotations

from math import hypot, sqrt

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
    """Return how many times as long a training takes with RoCE as with OptiNIC, all at one packet loss."""
    return {name: found for name, (found, _) in ratios(settings, rows).items()}


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of these ratios."""
    return {name: error for name, (_, error) in ratios(settings, rows).items()}


def ratios(settings: Settings, rows: Rows) -> dict[str, tuple[float, float]]:
    """Return the numbers and their standard errors."""
    loss, alone = settings["loss"], computation(settings, rows)
    found: dict[str, tuple[float, float]] = {}
    for place, pairs in settings["compared"].items():
        panel = settings["panels"][place]
        needed = {name: steps(settings, rows, panel, of) for name, of in settings["optinic"].items()}
        found |= {f"{place}_steps_{name}": of for name, of in needed.items()}
        for share, timeout in pairs:
            roce = settings["roce"][place][timeout]
            for name, optinic in settings["optinic"].items():
                times = [
                    share * alone + rows.value(panel, series, "mean_ms", loss) for series in (roce, optinic)
                ]
                time_errors = [rows.error(panel, series, "error_ms", loss) for series in (roce, optinic)]
                more, more_error = needed[name]
                ratio = times[0] / times[1] / more
                parts = [*zip(time_errors, times, strict=True), (more_error, more)]
                error = ratio * hypot(*(error / value for error, value in parts))
                found[f"{place}_{timeout}_{share:g}_{name}"] = (ratio, error)
    return found


def exact_place(settings: Settings) -> tuple[str, str]:
    """Return the panel and the series of the training without losses."""
    panel, series = settings["exact"]
    return panel, series


def steps(settings: Settings, rows: Rows, panel: str, series: str) -> tuple[float, float]:
    """Return how many times as many steps as without losses a training needs, and the standard error."""
    _, lossy = rows.line(panel, series, "steps_to_loss")
    _, exact = rows.line(*exact_place(settings), "steps_to_loss")
    more = lossy / exact
    return float(more.mean()), float(more.std(ddof=1)) / sqrt(len(more))


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the time of a step by its computation, and below the loss of a training over its time."""
    shares, alone, loss = settings["shares"], computation(settings, rows), settings["loss"]
    figure, axes = panels(len(settings["panels"]), width=4.4, rows=2)
    for number, (place, panel) in enumerate(settings["panels"].items()):
        above, below = axes[number], axes[number + len(settings["panels"])]
        optinic = list(settings["optinic"].values())
        for name in [*settings["roce"][place].values(), *optinic]:
            mean = rows.value(panel, name, "mean_ms", loss)
            times = [share * alone + mean for share in shares]
            above.plot(range(len(shares)), times, label=name, linewidth=1.4, **style(name))
            trained: tuple[str, str] = (panel, name) if name in optinic else exact_place(settings)
            done, losses = rows.line(*trained, "test_loss")
            below.plot(done * (alone + mean) / 1000, losses, label=name, linewidth=1.4, **style(name))
        places(above, [f"{share:g}" for share in shares])
        above.set_xlabel("computation, in lossless all-reduces")
        log_y(above)
        above.set_title(panel)
        below.set_xlabel("training, s (computation: 1 all-reduce)")
        legend_beside(above)
    axes[0].set_ylabel("time of a step, ms")
    axes[len(settings["panels"])].set_ylabel("loss on the test set")
    return figure
