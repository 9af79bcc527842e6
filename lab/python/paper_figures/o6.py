"""OptiNIC's Fig. 6: mean and p99 times of collectives."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Style, panels

#: Markers of means by the loss of the cables: without loss, they are full.
LOSS_MARKERS = ["o", "s"]


def shown(settings: Settings, loss: str) -> list[str]:
    """Return the panels of all collectives at a loss."""
    return [f"{collective}, {loss}" for collective in settings["collectives"]]


def largest_ratio(rows: Rows, pair: tuple[list[str], list[str]], measure: str, places: list[str]) -> float:
    """Return the lowest value of the first series over that of the second ones: the largest of the places."""

    def lowest(names: list[str], place: str) -> float:
        return min(rows.value(place, name, measure, 0) for name in names)

    above, below = pair
    places = [place for place in places if set(above) <= set(rows.series(place))]
    return max(lowest(above, place) / lowest(below, place) for place in places)


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare. For several collectives, a number is the largest of their numbers."""
    found: Numbers = {}
    places = shown(settings, settings["loss"])
    pairs = {name: ([series], settings["reliable"]) for name, series in settings["bounded"].items()}
    pairs |= {name: ([series], [settings["roce"]]) for name, series in settings["beside_roce"].items()}
    pairs |= {name: ([above], [below]) for name, (above, below) in settings["pairs"].items()}
    for name, pair in pairs.items():
        for kind in ["mean", "p99"]:
            found[f"{name}_{kind}"] = largest_ratio(rows, pair, f"{kind}_ms", places)
    for name, series in settings["bounded"].items():
        missing = [
            rows.value(place, series, "missing_percent", 0)
            for place in places
            if series in rows.series(place)
        ]
        found[f"{name}_missing"] = max(missing)
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw a line for each transport: its times, and on the right what is missing in AllReduce."""
    names = [*settings["reliable"], *settings["bounded"].values(), *settings["others"]]
    collectives = settings["collectives"]
    figure, axes = panels(len(collectives) + 1, width=3.6, height=4.8)
    for axis, collective in zip(axes, collectives, strict=False):
        times(axis, settings, rows, (collective, names))
        axis.set_title(collective)
        axis.set_xlabel("mean (marker) to p99 (end of the line), ms")
    axes[0].legend(loc="lower right", fontsize=8)
    missing(axes[-1], settings, rows, names)
    for axis in axes:
        axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names))
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_xlim(left=0)
        # Between the transports with whole messages, flows with deadlines, and operations.
        for edge in settings["edges"]:
            axis.axhline(names.index(edge) - 0.5, color="black", linewidth=0.6)
    return figure


def look(settings: Settings, name: str, number: int) -> Style:
    """Return the look of a marker: some transports have colours, and the second loss has empty squares."""
    colour = settings["colours"].get(name, "#555555")
    return {
        "color": colour,
        "marker": LOSS_MARKERS[number],
        "markerfacecolor": "none" if number else colour,
        "linestyle": "none",
    }


def times(axes: Axes, settings: Settings, rows: Rows, group: tuple[str, list[str]]) -> None:
    """Draw mean times, with lines to the p99: one above the other for the losses of the cables."""
    collective, names = group
    for number, loss in enumerate(settings["losses"]):
        panel = f"{collective}, {loss}"
        there = rows.series(panel)
        for place, name in enumerate(names):
            if name not in there:
                continue
            mean, p99 = (rows.value(panel, name, measure, 0) for measure in ["mean_ms", "p99_ms"])
            height, style = place + (number - 0.5) * 0.36, look(settings, name, number)
            axes.plot([mean, p99], [height, height], color=style["color"], linewidth=1)
            axes.plot([p99], [height], color=style["color"], marker="|", markersize=6)
            axes.plot([mean], [height], label=loss if place == 0 else None, **style)


def missing(axes: Axes, settings: Settings, rows: Rows, names: list[str]) -> None:
    """Draw what is missing in the first collective, beside the paper's bound."""
    collective = settings["collectives"][0]
    for number, loss in enumerate(settings["losses"]):
        panel = f"{collective}, {loss}"
        for place, name in enumerate(names):
            if name not in rows.series(panel):
                continue
            value = rows.value(panel, name, "missing_percent", 0)
            axes.plot([value], [place + (number - 0.5) * 0.36], **look(settings, name, number))
    axes.axvline(settings["missing_percent"], color="black", linestyle="--", linewidth=0.8, zorder=0)
    axes.set_title(collective)
    axes.set_xlabel("missing, % (dashed: the paper's bound)")
