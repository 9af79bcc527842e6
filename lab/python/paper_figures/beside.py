"""What the papers state, in the plots.

A number that is a position of the plot is drawn there (`claim.Place`). Below each plot, all numbers that the
paper states have a row: our number over the paper's, and both as text.
"""

from __future__ import annotations

from math import inf, isfinite, sqrt
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETDOWNBASE, CARETLEFTBASE, CARETRIGHTBASE, CARETUPBASE
from matplotlib.ticker import FixedLocator, NullLocator

from paper_figures.claim import Claim, Number, Numbers
from paper_figures.page import stated
from paper_figures.style import PAPER, PAPER_LINE, Style
from paper_figures.verdict import BY_ARITHMETIC, ERRORS, NOT, PARTLY, REPRODUCED, Statement

#: Our numbers, by verdict.
HERE: dict[str, Style] = {
    REPRODUCED: {"marker": "o"},
    BY_ARITHMETIC: {"marker": "s", "markerfacecolor": "white"},
    PARTLY: {"marker": "o", "fillstyle": "left", "markerfacecoloralt": "white"},
    NOT: {"marker": "X"},
}
COLOUR = "#0072B2"
#: Ratios beyond this one, or below its inverse, are arrows at the edge.
FARTHEST = 10.0
#: The axis reaches at least to this ratio.
NEAREST = 1.25
TICKS = [0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10]
# Inches: a line of a name, the gap between names, a letter, the space above and below the rows, and the
# widths of the texts, of the names (at most) and of the ratios (at least).
LINE, GAP, LETTER, ABOVE, BELOW, TEXTS, NAMES, RATIOS = 0.14, 0.05, 0.053, 0.55, 0.45, 1.8, 5.5, 1.6


def add_paper(figure: Figure, claim: Claim, ours: Numbers) -> None:
    """Draw what the paper states into the plot of a claim, and all its numbers beside ours below the plot."""
    for number in claim.expected:
        if number.at and number.statement:
            mark(figure.axes[number.at.panel - 1], number, number.statement)
    shown = [(number, number.statement) for number in claim.expected if number.statement]
    if shown:
        compare(figure, claim, ours, shown)
    else:
        axes = space_below(figure, 0.3, (0, 0, 0.1, 0))
        axes.set_axis_off()
        axes.text(0.5, 0, "The paper states no number for these conditions.", ha="center", fontsize=8)


def mark(axes: Axes, number: Number, states: Statement) -> None:
    """Draw a number of the paper at its place: at one x, or across the panel."""
    assert number.at
    ends = [end for end in (states.low, states.high) if isfinite(end)]
    down = states.low == -inf
    name = f"place-of-{number.name}"
    if number.at.x is not None:
        bound = CARETDOWNBASE if down else CARETUPBASE
        marker: Any = bound if states.is_bound else "*" if states.low == states.high else "_"
        look = PAPER | {"marker": marker, "linestyle": "-", "clip_on": False, "gid": name}
        axes.plot([number.at.x] * len(ends), ends, **look)
        return
    level = number.at.axis == "y"
    for end in set(ends):
        (axes.axhline if level else axes.axvline)(end, **PAPER_LINE, gid=name)
    if states.is_bound:
        sides = (CARETDOWNBASE, CARETUPBASE) if level else (CARETLEFTBASE, CARETRIGHTBASE)
        place = (0.97, ends[0]) if level else (ends[0], 0.97)
        transform = axes.get_yaxis_transform() if level else axes.get_xaxis_transform()
        axes.plot(*place, transform=transform, **PAPER | {"marker": sides[0 if down else 1]})


def space_below(figure: Figure, height: float, margins: tuple[float, float, float, float]) -> Axes:
    """Make a figure higher by inches. Return axes below, with margins left, right, below and above."""
    width, before = figure.get_size_inches()
    total = before + height
    # The layout of the plot is done first, and kept: the new axes are no part of it.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        x, y, across, up = axes.get_position().bounds
        axes.set_position((x, (height + y * before) / total, across, up * before / total))
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, height / total, 1, before / total), transform=figure.transFigure)
    figure.set_size_inches(width, total)
    left, right, below, above = margins
    size = ((width - left - right) / width, (height - below - above) / total)
    return figure.add_axes((left / width, below / total, *size))


def compare(figure: Figure, claim: Claim, ours: Numbers, shown: list[tuple[Number, Statement]]) -> None:
    """Draw our numbers over those of the paper, and write both beside."""
    width = figure.get_size_inches()[0]
    left = min(NAMES, width - TEXTS - RATIOS)
    names = ["\n".join(wrap(number.says, int(left / LETTER))) for number, _ in shown]
    heights = [GAP + LINE * (1 + name.count("\n")) for name in names]
    places = [sum(heights[:row]) + height / 2 for row, height in enumerate(heights)]
    axes = space_below(figure, ABOVE + sum(heights) + BELOW, (left, TEXTS, BELOW, ABOVE))
    axes.set_ylim(sum(heights), 0)
    axes.set_yticks(places, names, fontsize=7)
    errors, verdicts, texts = claim.errors(), claim.verdicts(ours), claim.shown(ours)
    farthest = NEAREST
    for place, (number, states) in zip(places, shown, strict=True):
        value, verdict = ours[number.name], verdicts[number.name]
        beside(axes, place, 0.1, stated(number))
        beside(axes, place, 1.15, texts[number.name], f"beside-{number.name}")
        whole = unit(states)
        if whole:
            states_of(axes, place, states, whole)
            here(axes, place, value / whole, ERRORS * errors.get(number.name, 0.0) / whole, verdict)
            ends = [of / whole for of in (value, states.low, states.high)]
            farthest = max(farthest, *(max(of, 1 / of) for of in ends if 0 < of < inf))
        else:
            look: Style = {"fontsize": 6, "color": COLOUR, "ha": "center", "va": "center"}
            axes.text(1, place, f"no ratio to 0: {verdict}", **look)
    beside(axes, -0.08, 0.1, "paper")
    beside(axes, -0.08, 1.15, "here")
    ratio_axis(axes, min(farthest, FARTHEST))
    lines = any(number.at and number.at.x is None for number, _ in shown)
    legend(figure, axes, {kind(states) for _, states in shown if unit(states)}, set(verdicts.values()), lines)


def unit(states: Statement) -> float:
    """Return what a number is divided by: the paper's value, its bound, or the middle of its range."""
    ends = [end for end in (states.low, states.high) if isfinite(end)]
    return sqrt(ends[0] * ends[-1])


def kind(states: Statement) -> str:
    """Return what a paper states of a number, as the legend names it."""
    return "paper's bound" if states.is_bound else "paper" if states.low == states.high else "paper's range"


def states_of(axes: Axes, place: float, states: Statement, whole: float) -> None:
    """Draw what the paper states in a row."""
    if states.is_bound:
        marker = CARETLEFTBASE if states.low == -inf else CARETRIGHTBASE
        axes.plot(1, place, **PAPER | {"marker": marker})
    elif states.low == states.high:
        axes.plot(1, place, **PAPER | {"markersize": 10})
    else:
        ends = [states.low / whole, states.high / whole]
        axes.plot(ends, [place, place], **PAPER | {"linestyle": "-", "marker": "|"})


def here(axes: Axes, place: float, ratio: float, interval: float, verdict: str) -> None:
    """Draw our number in a row. A number that is too far for the axis is an arrow at its edge."""
    look: Style = {"color": COLOUR, "markersize": 5, "linestyle": "none", "zorder": 4, "clip_on": False}
    if 1 / FARTHEST <= ratio <= FARTHEST:
        axes.plot(ratio, place, **look | HERE[verdict])
        axes.plot(
            [max(ratio - interval, 1 / FARTHEST), ratio + interval], [place] * 2, color=COLOUR, linewidth=1
        )
    else:
        side, marker = (0, "<") if ratio < 1 else (1, ">")
        axes.plot(side, place, transform=axes.get_yaxis_transform(), **look | {"marker": marker})


def beside(axes: Axes, place: float, inches: float, words: str, name: str = "") -> None:
    """Write to the right of a row, at a distance in inches. Tests find the text by the name of its group."""
    axes.annotate(
        words,
        (1, place),
        xycoords=axes.get_yaxis_transform(),
        xytext=(72 * inches, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        gid=name or None,
    )


def ratio_axis(axes: Axes, farthest: float) -> None:
    """Label the axis of ratios."""
    axes.set_xscale("log")
    axes.set_xlim(1 / farthest**1.1, farthest**1.1)
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.xaxis.set_major_locator(
        FixedLocator(ticks if farthest < 2 else [of for of in ticks if of not in (0.8, 1.25)])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.set_xlabel("here over the paper's", fontsize=7)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)


def legend(figure: Figure, axes: Axes, kinds: set[str], verdicts: set[str], lines: bool) -> None:
    """Explain the marks of the rows, and those of the paper in the plot, which can be `lines`."""
    looks = {
        "paper": PAPER | (PAPER_LINE if lines else {}),
        "paper's range": PAPER | {"marker": "|", "linestyle": "-"},
        "paper's bound": PAPER | {"marker": CARETRIGHTBASE},
    }
    ours: Style = {"color": COLOUR, "linestyle": "none", "markersize": 6}
    handles = [Line2D([], [], label=name, **look) for name, look in looks.items() if name in kinds]
    handles += [Line2D([], [], label=f"here: {of}", **ours | HERE[of]) for of in HERE if of in verdicts]
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, axes.get_position().y1 + 0.15 / figure.get_size_inches()[1]),
        ncols=len(handles),
        handlelength=3,
        fontsize=7,
    )
