"""What all plots share. Colours are Okabe and Ito's; markers and dashes differ as well."""

from __future__ import annotations

from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Style: TypeAlias = dict[str, Any]

RTO: Style = {"label": "SR, RTO", "color": "#D55E00", "marker": "o"}
NACK: Style = {"label": "SR, NACK", "color": "#E69F00", "marker": "s", "linestyle": "--"}
XOR: Style = {"label": "EC, XOR (32, 8)", "color": "#009E73", "marker": "^", "linestyle": "-."}
MDS: Style = {"label": "EC, MDS (32, 8)", "color": "#0072B2", "marker": "D", "linestyle": (0, (6, 2))}
SPLITS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"]

SCHEMES: dict[str, Style] = {
    "sr-rto": RTO,
    "sr-nack": NACK,
    "ec-xor:32,8": XOR,
    "ec-mds:32,8": MDS,
}

mpl.rcParams.update(
    {
        "svg.hashsalt": "farwrite",  # The same figure is the same file.
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.axisbelow": True,
        "lines.markersize": 4,
        "legend.frameon": False,
    }
)


def panels(count: int, height: float = 3.2, width: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Panels side by side."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)
    return figure, list(axes[0])


def curve(axes: Axes, x: Array, y: Array, style: Style, **more: Any) -> None:
    """Draw a line with some ten markers."""
    every = max(len(x) // 10, 1)
    axes.plot(x, y, **{"markevery": every, "linewidth": 1.4, **style, **more})


def between(ends: list[float], count: int) -> Array:
    """So many numbers from one to the other, by equal factors."""
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
