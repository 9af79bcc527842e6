"""Plots of results (needs matplotlib: ``pip install '.[figures]'``).

Each function returns a `matplotlib.figure.Figure`, whose method ``savefig`` writes SVG, PDF or PNG. A plot
has one line for each setting of the plan. Runs that differ only in their seeds have one setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from farwrite.sim.results import Results
from farwrite.sim.sizes import SETTING, percentile, runs_by_setting

#: Upper ends of size classes, in bytes, as in ``sizes.csv``.
CLASSES = 10.0 ** np.arange(3, 9)
#: The most flows that a timeline shows. If a run has more flows, the timeline shows this many of them, at
#: equal distances in the order of their starts.
TIMELINE_FLOWS = 60
# The colours of Okabe and Ito, which people with colour blindness can distinguish.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^v<>"

_Line: TypeAlias = dict[str, Any]


def slowdowns(results: Results) -> Figure:
    """Draw the slowdown over the message size: the mean as a solid line, the 99th percentile dashed.

    Flows that did not end have no slowdown, and are left out. The flows of each power of ten of the size form
    a class, which is one point at the mean size of its flows.
    """
    figure, axes = _axes()
    for line, flows in _settings(results):
        points = [
            (size.mean(), slowdown.mean(), percentile(slowdown, 99))
            for size, slowdown in _classes(flows["bytes"], flows["slowdown"])
        ]
        if points:
            size, mean, tail = np.array(points).T
            axes.plot(size, mean, **line)
            axes.plot(size, tail, **line | {"label": None, "linestyle": "--", "markerfacecolor": "white"})
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("message size, bytes")
    axes.set_ylabel("slowdown: mean, and p99 (dashed)")
    return _finished(figure, axes)


def completion_times(results: Results) -> Figure:
    """Draw the share of flows that end within a time.

    The line of a setting ends below 1 if some of its flows did not end.
    """
    figure, axes = _axes()
    for line, flows in _settings(results):
        times = flows["fct_ns"]
        done = np.sort(times[~np.isnan(times)]) / 1e3
        if done.size:
            shares = np.arange(1, done.size + 1) / times.size
            axes.step(done, shares, where="post", **line | {"marker": None})
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("completion time, us")
    axes.set_ylabel("share of flows")
    return _finished(figure, axes)


def queues(results: Results) -> Figure:
    """Draw the bytes in the longest queue of a switch port over time, in the first run of each setting."""
    figure, axes = _axes()
    run = results.queues["run"]
    for line, runs in _runs_of_settings(results):
        chosen = run == runs[0]
        time_us = results.queues["time_ns"][chosen] / 1e3
        deepest = results.queues["deepest_bytes"][chosen] / 1e3
        axes.step(time_us, deepest, where="pre", **line | {"marker": None})
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time, us")
    axes.set_ylabel("deepest queue, kB")
    return _finished(figure, axes)


def timeline(results: Results, run: int | None = None) -> Figure:
    """Draw the flows of one run over time, and below them the bytes in the longest queue of a switch port.

    Each flow is a bar from its start to its end. A flow that did not end has an empty bar until the end of
    the run. If the run has more than `TIMELINE_FLOWS` flows, the plot shows `TIMELINE_FLOWS` of them.

    Parameters
    ----------
    results
        The result of `farwrite.sim.run` or `farwrite.sim.sweep`.
    run
        The number of the run. None: the first run of the results.

    Raises
    ------
    ValueError
        The results have no run with this number.
    """
    numbers = results.runs["run"]
    number = int(numbers[0]) if run is None else run
    if number not in numbers:
        raise ValueError(f"run = {number}: the results have runs {numbers.min()} to {numbers.max()}")
    figure = Figure(figsize=(6, 5), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    queues = results.queues["run"] == number
    time_us = results.queues["time_ns"][queues] / 1e3
    _bars(above, _started(results, number), time_us.max(initial=0.0))
    deepest = results.queues["deepest_bytes"][queues] / 1e3
    below.step(time_us, deepest, where="pre", color=COLOURS[1])
    below.set_ylim(bottom=0)
    below.set_ylabel("deepest queue, kB")
    below.set_xlabel("time, us")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    return figure


def _started(results: Results, number: int) -> dict[str, NDArray[Any]]:
    """Return the flows of a run that started, in the order of their starts, at most `TIMELINE_FLOWS`."""
    flows = results.flows
    chosen = np.flatnonzero((flows["run"] == number) & ~np.isnan(flows["start_ns"].astype(np.float64)))
    chosen = chosen[np.argsort(flows["start_ns"][chosen], kind="stable")]
    if chosen.size > TIMELINE_FLOWS:
        chosen = chosen[np.linspace(0, chosen.size - 1, TIMELINE_FLOWS).astype(int)]
    return {name: column[chosen] for name, column in flows.columns.items()}


def _bars(axes: Axes, flows: dict[str, NDArray[Any]], end_us: float) -> None:
    starts, times = flows["start_ns"] / 1e3, flows["fct_ns"] / 1e3
    rows, done = np.arange(starts.size), ~np.isnan(times)
    axes.barh(rows[done], times[done], left=starts[done], height=0.7, color=COLOURS[1])
    lasting = np.maximum(end_us - starts[~done], 0)
    axes.barh(rows[~done], lasting, left=starts[~done], height=0.7, fill=False, edgecolor=COLOURS[0])
    ends = zip(flows["src"].tolist(), flows["dst"].tolist(), strict=True)
    axes.set_yticks(rows, [f"{src} to {dst}" for src, dst in ends], fontsize="x-small")
    axes.invert_yaxis()
    axes.set_ylabel("flow")


def _runs_of_settings(results: Results) -> Iterator[tuple[_Line, NDArray[Any]]]:
    """Yield the style of the line of each setting, and the numbers of the runs of the setting."""
    runs = results.runs
    settings = runs_by_setting(runs.columns)
    varied = [place for place in range(len(SETTING)) if len({key[place] for key in settings}) > 1]
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=False)  # `cycle` does not end
    for (key, rows), (colour, marker) in zip(settings.items(), looks, strict=False):
        label = ", ".join(f"loss {key[at]}" if SETTING[at] == "loss" else key[at] for at in varied)
        line = {"label": label or None, "color": colour, "marker": marker, "markersize": 4}
        yield line, runs["run"][rows]


def _settings(results: Results) -> Iterator[tuple[_Line, dict[str, NDArray[Any]]]]:
    """Yield the style of the line of each setting, and the columns of the flows of the setting."""
    flows = results.flows
    for line, runs in _runs_of_settings(results):
        chosen = np.isin(flows["run"], runs)
        yield line, {name: column[chosen] for name, column in flows.columns.items()}


def _classes(sizes: NDArray[Any], values: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the sizes and the values of each class that has values. Values that are NaN are left out."""
    known = ~np.isnan(values)
    sizes, values = sizes[known], values[known]
    classes = np.searchsorted(CLASSES, sizes)
    for number in np.unique(classes):
        yield sizes[classes == number], values[classes == number]


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def _finished(figure: Figure, axes: Axes) -> Figure:
    if any(axes.get_legend_handles_labels()[1]):
        axes.legend(frameon=False)
    return figure
