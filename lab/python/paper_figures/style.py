"""Styles that all plots use. Colours are those of Okabe and Ito. Lines also differ in markers and dashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from paper_figures.rows import Rows
from paper_figures.shipped import Estimate

Array: TypeAlias = NDArray[np.float64]
Style: TypeAlias = dict[str, Any]

RTO: Style = {"label": "SR, RTO", "color": "#D55E00", "marker": "o"}
NACK: Style = {"label": "SR, NACK", "color": "#E69F00", "marker": "s", "linestyle": "--"}
XOR: Style = {"label": "EC, XOR (32, 8)", "color": "#009E73", "marker": "^", "linestyle": "-."}
MDS: Style = {"label": "EC, MDS (32, 8)", "color": "#0072B2", "marker": "D", "linestyle": (0, (6, 2))}
SPLITS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9"]

SCHEMES: dict[str, Style] = {
    "sr-rto": RTO,
    "sr-nack": NACK,
    "ec-xor:32,8": XOR,
    "ec-mds:32,8": MDS,
}

# Styles by the way in which NICs, alone or behind boxes, repair losses.
GO_BACK_N: Style = {"color": "#D55E00", "marker": "o"}
REPAIRS: dict[str, Style] = {
    "Go-Back-N": GO_BACK_N,
    "Go-Back-N, ideal (computed)": {"color": "#D55E00", "marker": "v", "linestyle": "--"},
    "fitted to ConnectX-5 (computed)": {"color": "#999999", "marker": "s", "linestyle": ":"},
    "Go-Back-N and PFC": {"color": "#CC79A7", "marker": "v"},
    "IRN": {"color": "#E69F00", "marker": "s"},
    "LoWAR(8, 1)": {"color": "#009E73", "marker": "^"},
    "LoWAR(32, 1)": {"color": "#0072B2", "marker": "D"},
    "LoWAR(64, 8)": {"color": "#0072B2", "marker": "D"},
    "LoWAR, adaptive": {"color": "#000000", "marker": "x"},
    "NetRT, pool 1 BDP": {"color": "#56B4E9", "marker": "D"},
    "NetRT, pool 2 BDP": {"color": "#0072B2", "marker": "^"},
    "NetRT, pool 32 BDP": {"color": "#0072B2", "marker": "^"},
    "NetRT, pool 32 BDP, no limit of N": {"color": "#009E73", "marker": "v"},
    "ECMP, Go-Back-N": {"color": "#999999", "marker": "v"},
    "DRILL, Go-Back-N": GO_BACK_N,
    "DRILL, IRN": {"color": "#E69F00", "marker": "s"},
    "DRILL, NetRT": {"color": "#56B4E9", "marker": "D"},
    "DRILL, NetRT, 5 us delay": {"color": "#0072B2", "marker": "^"},
    "no box": GO_BACK_N,
    "NetRT": {"color": "#56B4E9", "marker": "s"},
    "ib_write_bw, RC": GO_BACK_N,
    "sr-nack": {"color": "#E69F00", "marker": "s"},
    "ec-mds:32,8": {"color": "#0072B2", "marker": "D"},
    "without loss": {"color": "#999999", "marker": "v"},
    "RoCE": GO_BACK_N,
    "RoCE, no PFC": {"color": "#CC79A7", "marker": "v", "linestyle": "--"},
    "SRNIC": {"color": "#009E73", "marker": "^", "linestyle": "--"},
    "Falcon": {"color": "#56B4E9", "marker": "D"},
    "UCCL": {"color": "#0072B2", "marker": "v", "linestyle": "-."},
    "XP": {"color": "#009E73", "marker": "P"},
    "XP, hosts": {"color": "#009E73", "marker": "P", "linestyle": "--", "markerfacecolor": "none"},
    "XP, hosts, all bytes": {"color": "#009E73", "marker": "d", "linestyle": ":"},
    "endpoint, exact": {"color": "#CC79A7", "marker": "x", "linestyle": ":"},
    "best effort": {"color": "#0072B2", "marker": "s"},
    "best effort, fixed rate": {"color": "#000000", "marker": "x"},
    "best effort, DCQCN": {"color": "#E69F00", "marker": "v", "linestyle": "-."},
    "best effort, Swift": {"color": "#009E73", "marker": "^", "linestyle": "--"},
    "best effort, EQDS": {"color": "#CC79A7", "marker": "D", "linestyle": ":"},
}
#: What a paper states: a point, and a line across a panel. `beside` draws them.
PAPER: Style = {
    "color": "black",
    "marker": "*",
    "markersize": 8,
    "linestyle": "none",
    "linewidth": 1.4,
    "zorder": 3,
}
PAPER_LINE: Style = {"color": "black", "linestyle": (0, (4, 3)), "linewidth": 1, "zorder": 1.5}
#: Hatches of bars, by their colours.
HATCHES = {
    "#D55E00": "",
    "#CC79A7": "//",
    "#E69F00": "..",
    "#009E73": "\\\\",
    "#0072B2": "xx",
    "#56B4E9": "++",
    "#999999": "--",
    "#000000": "",
}

mpl.rcParams.update(
    {
        "svg.hashsalt": "farwrite",  # Two runs write equal files.
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.axisbelow": True,
        "lines.markersize": 4,
        "legend.frameon": False,
    }
)


def panels(count: int, height: float = 3.2, width: float = 3.6, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels side by side, in one or more rows."""
    figure = Figure(figsize=(width * count, height * rows), layout="constrained")
    axes = figure.subplots(rows, count, squeeze=False)
    return figure, list(axes.flat)


def curve(axes: Axes, x: Array, y: Array, style: Style, **more: Any) -> None:
    """Draw a line with about ten markers."""
    every = max(len(x) // 10, 1)
    axes.plot(x, y, **{"markevery": every, "linewidth": 1.4, **style, **more})


def hollow(axes: Axes, estimates: Mapping[float, Estimate], **look: Any) -> None:
    """Draw estimates as hollow markers with their intervals."""
    values = estimates.values()
    axes.errorbar(
        list(estimates),
        [of.value for of in values],
        yerr=[[of.below for of in values], [of.above for of in values]],
        **look | {"linestyle": "none", "markerfacecolor": "none", "elinewidth": 0.8},
    )


def lines(axes: Axes, rows: Rows, panel: str, names: Sequence[str], measure: str, error: str = "") -> Array:
    """Draw series of rows at the places 0, 1, 2 and so on. Return the values of x at these places.

    If the measure of their standard errors is named, two of them are drawn on each side.
    """
    x = np.empty(0)
    for name in names:
        x, values = rows.line(panel, name, measure)
        yerr = rows.intervals(panel, name, x, error) if error else None
        axes.errorbar(
            range(len(x)), values, yerr=yerr, label=name, linewidth=1.4, elinewidth=0.8, **REPAIRS[name]
        )
    return x


def places(axes: Axes, texts: Sequence[str]) -> None:
    """Label the places 0, 1, 2 and so on of the x axis."""
    axes.set_xticks(range(len(texts)), texts)


def loss_places(axes: Axes, losses: Array) -> None:
    """Label the places of the x axis with losses."""
    places(axes, [loss_text(loss) for loss in losses])
    axes.set_xlabel("probability that a packet is lost")


def bars(
    axes: Axes,
    values: dict[str, Array],
    tails: dict[str, Array] | None = None,
    intervals: dict[str, Array] | None = None,
) -> None:
    """Draw a group of bars at each place, with a bar for each series.

    ``tails`` are drawn as marks, and ``intervals`` on each side of the values.
    """
    width = 0.8 / len(values)
    middles_of: list[Any] = []
    for number, (name, heights) in enumerate(values.items()):
        middles = np.arange(len(heights)) + (number - (len(values) - 1) / 2) * width
        colour = REPAIRS[name]["color"] if name in REPAIRS else SPLITS[number]
        look: Style = {"color": colour, "hatch": HATCHES[colour], "edgecolor": "white", "linewidth": 0}
        axes.bar(middles, heights, width, label=name, **look)
        middles_of.append(middles)
        if tails:
            axes.plot(middles, tails[name], linestyle="none", marker="_", markersize=8, color="black")
    if intervals:
        middles, heights, halves = (
            np.concatenate(list(of)) for of in (middles_of, values.values(), intervals.values())
        )
        axes.errorbar(middles, heights, yerr=halves, fmt="none", elinewidth=0.8, ecolor="black")
    axes.grid(visible=False, axis="x")


def log_y(axes: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def loss_text(loss: float) -> str:
    """Write 0.001 as 1e-3."""
    return f"{loss:.0e}".replace("e-0", "e-") if loss else "0"


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """Put the legend of a panel below all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def legend_beside(axes: Axes) -> None:
    """Put the legend of a panel to its right."""
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))


def legend_above(axes: Axes) -> None:
    """Put the legend of a panel between its data and its title."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1)
    axes.set_title(axes.get_title(), pad=8 + 14 * len(axes.get_legend_handles_labels()[0]))


def between(ends: list[float], count: int) -> Array:
    """Return `count` numbers between two ends, whose ratios are equal."""
    return np.geomspace(ends[0], ends[1], count)


def bytes_text(size: float) -> str:
    """Write 2^27 as 128 MiB."""
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"]:
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} PiB"


def size_axis(axes: Axes, low_power: int, high_power: int, step: int = 4) -> None:
    """Label an axis of message sizes by powers of two."""
    ticks = 2.0 ** np.arange(low_power, high_power + 1, step)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [bytes_text(tick) for tick in ticks], rotation=40, ha="right")
    axes.set_xlabel("message size")


def svg(figure: Figure) -> str:
    """Return a figure as SVG, without the date and without spaces at the ends of lines."""
    file = StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"
