"""OptiNIC's Table 4 and Celeris' Table I: queue pairs in a NIC's memory, and the clusters they reach.

The state of OptiNIC is that of the NIC model of XP (`farwrite_rc::xp`), whose size is a row. The state of
the other designs is the papers'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from farwrite.model import nic
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import log_y, panels, places


def computed(table: str, name: str) -> nic.Row:
    """Return the row of a number that follows from other numbers."""
    (row,) = [row for row in nic.tables() if (row.table, row.name) == (table, name)]
    return row


def state(rows: Rows, series: str) -> float:
    """Return the bytes of a queue pair of ours."""
    return rows.value("state", series, "bytes", 0)


def ours(settings: Settings, rows: Rows, row: nic.Row) -> nic.Row:
    """Return a row. Those of OptiNIC have the numbers that follow from the bytes of XP."""
    pairs = nic.queue_pairs(state(rows, settings["xp"]))
    replaced = {
        f"{settings['optinic']}: queue pairs": pairs,
        f"{settings['optinic']}: cluster size": nic.cluster_size(pairs),
    }
    return replace(row, computed=replaced[row.name]) if row.name in replaced else row


def follow(rows: Iterable[tuple[str, nic.Row]]) -> Numbers:
    """Return the computed numbers of rows, by the names of the numbers. Quoted rows have none."""
    return {name: float(row.computed) for name, row in rows if row.computed is not None}


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the papers' numbers."""
    found = follow((name, ours(settings, rows, computed(*place))) for name, place in settings["rows"].items())
    endpoint = state(rows, settings["endpoint"])
    return found | {
        "state_optinic": state(rows, settings["xp"]),
        "state_transport": state(rows, settings["xp_transport"]),
        "state_dcqcn": state(rows, settings["xp_dcqcn"]),
        "state_endpoint": endpoint,
        "pairs_endpoint": nic.queue_pairs(endpoint),
        # The hardware of lab/rtl.
        "rtl_bits": rows.value("hardware", "XP", "bits read", 0),
        "rtl_pairs": nic.queue_pairs(state(rows, settings["xp"]) + settings["deadline_bytes"]),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the computed numbers of the designs in OptiNIC's table, and those of our endpoint."""
    figure, (left, right) = panels(2, width=5.6, height=3.6)
    designs, table = settings["designs"], settings["table"]
    bars(left, [ours(settings, rows, computed(table, f"{name}: queue pairs")) for name in designs])
    endpoint = state(rows, settings["endpoint"])
    pairs = nic.queue_pairs(endpoint)
    bar = left.bar(len(designs), pairs, 0.6, color="#0072B2", hatch="xx", edgecolor="white")
    left.bar_label(bar, [thousands(pairs)], padding=2, fontsize=7)
    left.set_ylabel("queue pairs in 4 MiB")
    bars(right, [ours(settings, rows, computed(table, f"{name}: cluster size")) for name in designs])
    right.set_ylabel("peers of the table's queue pairs")
    states = [computed(table, f"{name}: state").quoted for name in designs]
    connections = settings["connections"]
    texts = [f"{name}\n{state:g} B" for name, state in zip(designs, states, strict=True)]
    places(left, [*texts, f"endpoint\n{endpoint / 1024:.1f} KiB"])
    places(right, [f"{name}\n{connections.get(name, 2)}" for name in designs])
    left.set_xlabel("state of a queue pair")
    right.set_xlabel("connections to a peer")
    return figure


def bars(axes: Axes, rows: Sequence[nic.Row]) -> None:
    """Draw the computed number of each row."""
    values = [float(row.computed or 0) for row in rows]
    drawn = axes.bar(range(len(rows)), values, 0.6, color="#0072B2", hatch="xx", edgecolor="white")
    axes.bar_label(drawn, [thousands(value) for value in values], padding=12, fontsize=7)
    log_y(axes)
    axes.margins(y=0.15)
    axes.grid(visible=False, axis="x")


def thousands(value: float) -> str:
    """Write 7037 as 7.0K."""
    return f"{value:g}" if value < 1000 else f"{value / 1000:.3g}K"
