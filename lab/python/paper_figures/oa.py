"""OptiNIC's section 3.1.2: adaptive timeouts over operations, and the share of operations that they cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, legend_below, log_y, panels, places

TIMES, SHARES = "timeouts", "shares"
#: Section 3.1.2: the first timeout is the time of the warm-up, multiplied by the first number, plus the
#: second.
FIRST_TIMES, FIRST_SLACK_MS = 1.25, 0.05


def weight(rows: Rows, series: str) -> float:
    """Return the weight of the median in the next timeout, fitted by least squares."""
    _, timeouts = rows.line(TIMES, series, "timeout_ms")
    _, proposals = rows.line(TIMES, series, "proposal_ms")
    # The first timeout follows from the proposals of the warm-up by another rule, so they are left out.
    distance = proposals[1:-1] - timeouts[:-1]
    return float(np.diff(timeouts) @ distance / (distance @ distance))


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    published, celeris, target = settings["published"], settings["celeris"], settings["target"]
    settled, change = settings["settled"], settings["change"]

    def share(series: str, measure: str, place: int = settled) -> float:
        return 100 * rows.value(SHARES, series, measure, place)

    def tail(series: str) -> float:
        return rows.value(SHARES, series, "p99_ms", settled)

    warm_up = rows.value(TIMES, published, "proposal_ms", 0)
    first = rows.value(TIMES, published, "timeout_ms", 1)
    return {
        "first": first / (FIRST_TIMES * warm_up + FIRST_SLACK_MS),
        "weight": weight(rows, published),
        "follow_published": rows.value(SHARES, published, "operations_to_follow", change),
        "follow_target": rows.value(SHARES, target, "operations_to_follow", change),
        "cut_published": share(published, "cut"),
        "cut_celeris": share(celeris, "cut"),
        "cut_target": share(target, "cut"),
        "missing_published": share(published, "missing"),
        "missing_celeris": share(celeris, "missing"),
        "missing_target": share(target, "missing"),
        "missing_target_after": share(target, "missing", change),
        "tail_published": tail(settings["none"]) / tail(published),
        "tail_target": tail(settings["none"]) / tail(target),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw a group's timeouts and its members' times; the shares that are cut and missing; the tail."""
    figure, (over_time, shares, tails) = panels(3, height=3.8, width=3.9)
    policies = settings["policies"]
    colours = dict(zip([settings["none"], *policies], ["#999999", *SPLITS], strict=False))
    times_of_members(over_time, settings, rows)
    for name in policies:
        operations, timeouts = rows.line(TIMES, name, "timeout_ms")
        over_time.plot(operations, timeouts, color=colours[name], linewidth=1.4, label=name)
    over_time.axvline(settings["change"], color="black", linestyle=":", linewidth=1)
    log_y(over_time)
    over_time.set_xlabel("operation (dotted: the path becomes slower)")
    over_time.set_ylabel("time, ms")
    over_time.set_title("(a) timeouts of a group")
    shares_of(shares, settings, rows)
    tail_of(tails, settings, rows, colours)
    legend_below(figure, over_time, 6)
    return figure


def times_of_members(axes: Axes, settings: Settings, rows: Rows) -> None:
    """Draw the times of operations without a deadline."""
    operations, middle = rows.line(TIMES, settings["none"], "middle_ms")
    _, slowest = rows.line(TIMES, settings["none"], "slowest_ms")
    axes.fill_between(
        operations, middle, slowest, color="#999999", alpha=0.3, linewidth=0, label="middle to slowest member"
    )


def shares_of(axes: Axes, settings: Settings, rows: Rows) -> None:
    """Draw the shares of cut operations and missing bytes, long after the change."""
    policies, settled = settings["policies"], settings["settled"]
    looks = [("cut", "operations cut", "#D55E00", ""), ("missing", "bytes missing", "#0072B2", "xx")]
    for side, (measure, name, colour, hatch) in zip([-0.2, 0.2], looks, strict=True):
        values = [100 * rows.value(SHARES, policy, measure, settled) for policy in policies]
        middles = np.arange(len(policies)) + side
        bars = axes.bar(middles, values, 0.38, label=name, color=colour, hatch=hatch, edgecolor="white")
        axes.bar_label(bars, fmt="%.2g", padding=2, fontsize=8)
    log_y(axes)
    axes.set_ylim(0.05, 1000)
    axes.legend(fontsize=8, loc="upper right")
    axes.set_ylabel("share, %")
    axes.set_title("(b) cut operations, missing bytes")
    name_places(axes, policies)


def tail_of(axes: Axes, settings: Settings, rows: Rows, colours: dict[str, str]) -> None:
    """Draw the 99th percentile of operations, long after the change."""
    names = [settings["none"], *settings["policies"]]
    values = [rows.value(SHARES, name, "p99_ms", settings["settled"]) for name in names]
    looks = [colours[name] for name in names]
    bars = axes.bar(range(len(names)), values, 0.7, color=looks, edgecolor="white")
    axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    axes.margins(y=0.1)
    axes.set_ylabel("p99 of operations, ms")
    axes.set_title("(c) time of operations")
    name_places(axes, names)


def name_places(axes: Axes, names: Sequence[str]) -> None:
    """Label the places of the x axis with the policies."""
    places(
        axes,
        [name.replace(" target ", "\ntarget\n").replace("no deadline", "no\ndeadline") for name in names],
    )
    axes.grid(visible=False, axis="x")
