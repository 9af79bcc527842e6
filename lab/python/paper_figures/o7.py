"""OptiNIC's Fig. 7: the effect of lost packets on transformed values, by drop rate and by stride."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, legend_below, log_y, panels

#: Sizes of markers: large markers are drawn below small ones, because the lines of two layouts can coincide.
MARKERS = [("v", 9), ("o", 6), ("s", 6), ("D", 3)]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    drop = settings["drop"]
    widest, narrow = settings["strides"][-1], settings["narrow"]

    def of(panel: str, series: str, measure: str) -> float:
        return rows.value(panel, series, measure, drop)

    whole, worst_whole = (of("layouts", "whole message", name) for name in ["error", "worst_block"])
    return {
        "strided_over_whole": of("strides", widest, "error") / whole,
        "blocks_over_whole": of("strides", "1", "error") / whole,
        "narrow_over_whole": of("strides", narrow, "error") / whole,
        "blocks_unscaled_over_whole": of("strides", "1", "error_unscaled")
        / of("layouts", "whole message", "error_unscaled"),
        "worst_block": of("strides", "1", "worst_block"),
        "worst_strided_over_whole": of("strides", widest, "worst_block") / worst_whole,
        "destroyed_blocks": of("strides", "1", "destroyed"),
        "destroyed_strided": of("strides", widest, "destroyed"),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the error of messages and of their worst blocks over the drop rate, then over the stride."""
    figure, (left, middle, right) = panels(3, height=3.6)
    names = {name: (panel, series) for name, panel, series in settings["layouts"]}
    for axes, measure, title in [(left, "error", "(a) message"), (middle, "worst_block", "(b) worst block")]:
        for (name, place), (marker, size), colour in zip(names.items(), MARKERS, SPLITS, strict=False):
            drops, values = rows.line(*place, measure)
            axes.plot(drops, values, label=name, marker=marker, markersize=size, color=colour, linewidth=1.4)
        drop_axis(axes)
        axes.set_title(title)
    left.set_ylabel("squared error, over that of zeros")
    by_stride(right, settings, rows)
    for axes in (left, middle, right):
        log_y(axes)
    legend_below(figure, left, len(names))
    right.legend(fontsize=8)
    return figure


def drop_axis(axes: Axes) -> None:
    """Label an axis of drop rates."""
    axes.set_xscale("log")
    axes.set_xticks([0.001, 0.01, 0.1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_xlabel("packets dropped")


def by_stride(axes: Axes, settings: Settings, rows: Rows) -> None:
    """Draw the errors over the stride, at one drop rate."""
    drop, strides = settings["drop"], settings["strides"]
    places = [int(stride) for stride in strides]
    for measure, name, marker, colour in [
        ("worst_block", "worst block", "D", SPLITS[3]),
        ("error", "message", "o", SPLITS[2]),
    ]:
        values = [rows.value("strides", stride, measure, drop) for stride in strides]
        axes.plot(places, values, label=name, marker=marker, color=colour, linewidth=1.4)
        whole = rows.value("layouts", "whole message", measure, drop)
        axes.axhline(whole, color=colour, linestyle=":", linewidth=1.2)
    axes.plot([], [], color="#000000", linestyle=":", label="transformed as one block")
    axes.set_xscale("log", base=2)
    axes.set_xticks(places[::2], strides[::2])
    axes.set_xlabel("stride, blocks a packet")
    axes.set_title(f"(c) by stride, {100 * drop:g}% dropped")
