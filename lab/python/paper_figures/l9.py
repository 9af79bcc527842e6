"""LoWAR's Fig. 9: goodput over a long path that loses packets."""

from __future__ import annotations

from math import hypot

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, legend_below, lines, loss_places, panels

GOODPUT = "goodput_gbps"
ERROR = "error_gbps"
#: The losses of the paper's ratios.
LOSSES = ("1e-5", "1e-4")


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    near, far = settings["panels"]
    many, plain, coded = settings["many"], settings["plain"], settings["code"]

    def goodput(panel: str, series: str, loss: float) -> float:
        return rows.value(panel, series, GOODPUT, loss)

    def ratio(panel: str, loss: float, over: str = plain) -> float:
        return goodput(panel, coded, loss) / goodput(panel, over, loss)

    computed = {
        f"{name}_{text}_{loss}": ratio(panel, float(loss), settings[name])
        for name in ("ideal", "fitted")
        for panel, text in ((near, "40_ms"), (far, "80_ms"))
        for loss in LOSSES
    }
    for panel, text in ((near, "40_ms"), (far, "80_ms")):
        for loss in LOSSES:
            restarted = goodput(f"{panel}, NICs", settings["restart"], float(loss))
            computed[f"restart_{text}_{loss}"] = goodput(panel, coded, float(loss)) / restarted
    # "Increases by 2.05 times" of the paper can mean 3.05 times as much, and is compared in both ways.
    for loss in LOSSES:
        computed[f"restart_40_ms_{loss}_by"] = computed[f"restart_40_ms_{loss}"]
        computed[f"ratio_40_ms_{loss}_by"] = ratio(near, float(loss))

    return computed | {
        "restart_goodput": goodput(f"{near}, NICs", settings["restart"], 1e-5),
        "plain_lossless": goodput(near, plain, 0),
        "plain_40_ms_1e-5": goodput(near, plain, 1e-5),
        "ratio_40_ms_1e-5": ratio(near, 1e-5),
        "ratio_40_ms_1e-4": ratio(near, 1e-4),
        "ratio_80_ms_1e-5": ratio(far, 1e-5),
        "ratio_80_ms_1e-4": ratio(far, 1e-4),
        "ratio_many_1e-4": ratio(many, 1e-4),
        "ratio_many_80_ms_1e-4": ratio(settings["many_far"], 1e-4),
        "kept_many_1e-3": goodput(many, coded, 1e-3) / goodput(many, coded, 0),
        "adaptive_of_best": min(of_best(settings, rows, panel) for panel in (near, far)),
    }


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of the ratios whose two numbers are means of several runs."""
    near, far = settings["panels"]
    coded, plain = settings["code"], settings["plain"]

    def relative(panel: str, series: str, loss: float) -> float:
        return rows.error(panel, series, ERROR, loss) / rows.value(panel, series, GOODPUT, loss)

    def of_ratio(panel: str, loss: float) -> float:
        ratio = rows.value(panel, coded, GOODPUT, loss) / rows.value(panel, plain, GOODPUT, loss)
        return ratio * hypot(relative(panel, coded, loss), relative(panel, plain, loss))

    return {
        "plain_40_ms_1e-5": rows.error(near, plain, ERROR, 1e-5),
        "ratio_40_ms_1e-5": of_ratio(near, 1e-5),
        "ratio_40_ms_1e-4": of_ratio(near, 1e-4),
        "ratio_80_ms_1e-5": of_ratio(far, 1e-5),
        "ratio_80_ms_1e-4": of_ratio(far, 1e-4),
    }


def of_best(settings: Settings, rows: Rows, panel: str) -> float:
    """Return the adaptive controller's goodput over that of the best fixed shape: the least over losses."""
    best: dict[float, float] = {}
    for name in rows.series(panel):
        if name.startswith("LoWAR("):
            for loss, goodput in zip(*rows.line(panel, name, GOODPUT), strict=True):
                best[float(loss)] = max(best.get(float(loss), 0.0), float(goodput))
    losses, adaptive = rows.line(panel, settings["adaptive"], GOODPUT)
    return min(float(own) / best[float(loss)] for loss, own in zip(losses, adaptive, strict=True))


def restart(axes: Axes, rows: Rows, panel: str, name: str, losses: Array) -> None:
    """Draw a NIC whose window restarts from few packets after a loss, at the places of its losses."""
    x, values = rows.line(f"{panel}, NICs", name, GOODPUT)
    at = [int(abs(losses - loss).argmin()) for loss in x]
    axes.plot(at, values, label=f"NIC, {name.split(', ')[1]}", color="#000000", marker="+", linestyle=":")


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot with our numbers, and two standard errors on each side of means."""
    figure, axes = panels(3)
    names = [settings["plain"], settings["narrow"], settings["code"], settings["adaptive"]]
    computed = [settings["ideal"], settings["fitted"]]
    for panel, name in zip(axes, [*settings["panels"], settings["many"]], strict=True):
        # The computed goodput of a NIC is known for one connection only.
        shown = names if name == settings["many"] else [*computed, *names]
        losses = lines(panel, rows, name, shown, GOODPUT, ERROR)
        if name != settings["many"]:
            restart(panel, rows, name, settings["restart"], losses)
        loss_places(panel, losses)
        panel.set_ylim(0, 10)
        panel.set_title(f"round trip of {name}")
    axes[0].set_ylabel("goodput, Gbit/s")
    legend_below(figure, axes[0], 3)
    return figure
