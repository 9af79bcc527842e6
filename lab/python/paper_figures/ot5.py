"""OptiNIC's Table 5 and Celeris' Table II: what a NIC needs, and its failures, by the bytes of a queue pair.

Each column of Celeris' table is a straight line over the bytes of a queue pair's context, and so are the
failures an hour over the block RAM. The rows of RoCE and Celeris give the lines, and the cells of the other
designs follow from them. In OptiNIC's table, IRN and Falcon have a reorder buffer besides. The contexts of
the hardware of lab/rtl have lines of their own.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.ot4 import computed, follow
from paper_figures.rows import Rows
from paper_figures.style import PAPER, Style, log_y, panels

#: The columns of the tables, by their names in numbers.
COLUMNS = {"lut": "LUT", "lutram": "LUTRAM", "ff": "FF", "bram": "BRAM", "power": "power in W"}
#: The series of the contexts in the hardware of lab/rtl.
WIDTHS = "contexts of 10,240 queue pairs"
#: The name of the lines in the plot.
LINE = "line through RoCE and Celeris"


def quoted(settings: Settings, quantity: str) -> list[float]:
    """Return a quantity of the two designs that give the lines."""
    return [computed("Celeris II", f"{name}: {quantity}").quoted for name in settings["ends"]]


def line(x: list[float], y: list[float], at: float) -> float:
    """Return the value of the line through two points."""
    return y[0] + (y[1] - y[0]) * (at - x[0]) / (x[1] - x[0])


def cell(settings: Settings, quantity: str, state: float) -> float:
    """Return a quantity of a NIC with `state` bytes for each queue pair."""
    return line(settings["end_bytes"], quoted(settings, quantity), state)


def hours(settings: Settings, bram: float) -> float:
    """Return the hours between failures of all nodes, whose NICs have this block RAM."""
    failures = [1 / of for of in quoted(settings, "MTBF")]
    return 1 / line(quoted(settings, "BRAM"), failures, bram)


def predicted(settings: Settings, design: str) -> Numbers:
    """Return the cells of a design, by the names of the columns."""
    of = settings["designs"][design]
    found = {name: cell(settings, quantity, of["bytes"]) for name, quantity in COLUMNS.items()}
    found["bram"] += of.get("buffer_bytes", 0) * 8 / settings["bram_bits"]
    return found | {"hours": hours(settings, found["bram"])}


def slope(settings: Settings, rows: Rows) -> float:
    """Return the block RAMs that a byte of context takes in the hardware of lab/rtl."""
    roce, celeris = (rows.value("widths", WIDTHS, "RAMB36", of) for of in settings["end_bytes"])
    first, last = settings["end_bytes"]
    return float((roce - celeris) / (first - last))


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the papers' numbers."""
    cells = {
        f"{design}_{name}": value
        for design in settings["designs"]
        for name, value in predicted(settings, design).items()
    }
    saved = follow((name, computed(*place)) for name, place in settings["rows"].items())
    roce, celeris = quoted(settings, "BRAM")
    more = 1 / hours(settings, roce) - 1 / hours(settings, celeris)
    bits = settings["nodes"] * settings["bram_bits"] * (roce - celeris)
    hardware = {"rtl_bram": slope(settings, rows)}
    return (
        cells | saved | hardware | {"per_bit": more / bits, "mtbf_roce_stated": stated_hours(settings, roce)}
    )


def stated_hours(settings: Settings, bram: float) -> float:
    """Return the hours between failures at the failure rate that Celeris states, if only block RAM fails."""
    bits = settings["nodes"] * settings["bram_bits"] * bram
    return float(1 / (settings["failures_per_bit"] * bits))


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw block RAM over the bytes of a context, and times over block RAM, beside the stated rate."""
    figure, (memory, times, stated) = panels(3, width=4.2, height=3.8)
    low, high = settings["byte_range"]
    state = np.linspace(low, high, 100)
    memory.plot(state, [cell(settings, "BRAM", of) for of in state], color="#0072B2", label=LINE)
    for table, fill in [("OptiNIC 5", "full"), ("Celeris II", "none")]:
        names = settings[table]
        bram = [computed(table, f"{name}: BRAM").quoted for name in names]
        look = PAPER | {"fillstyle": fill}
        memory.plot([settings["bytes"][name] for name in names], bram, label=f"paper, {table}", **look)
    memory.plot(*rows.line("widths", WIDTHS, "RAMB36"), "s", color="#D55E00", label="contexts of lab/rtl")
    memory.set_xlabel("bytes of a queue pair's context")
    memory.set_ylabel("block RAMs of a NIC, 36 Kbit each")
    memory.set_title("(a) block RAM")
    memory.legend(fontsize=8, loc="lower right")
    low, high = settings["bram_range"]
    across = np.linspace(low, high, 100)
    for panel in (times, stated):
        points(panel, settings, with_names=panel is times)
        panel.set_xlabel("block RAMs of a NIC, 36 Kbit each")
        panel.set_ylabel("mean time between failures, h")
        panel.plot(across, [hours(settings, number) for number in across], color="#0072B2", label=LINE)
    label = f"{settings['failures_per_bit']:g} failures an hour and bit"
    of_rate = [stated_hours(settings, number) for number in across]
    stated.plot(across, of_rate, color="#009E73", linestyle="--", label=label)
    log_y(stated)
    stated.set_ylim(0.05, 300)
    stated.legend(fontsize=8, loc="center right")
    times.set_ylim(0, 110)
    times.legend(fontsize=8, loc="lower left")
    times.set_title("(b) time between failures")
    stated.set_title("(c) beside the stated failure rate")
    return figure


def points(axes: Axes, settings: Settings, with_names: bool) -> None:
    """Draw the times of both tables as points."""
    for table, fill, offset, side in [
        ("OptiNIC 5", "full", (3, 6), "left"),
        ("Celeris II", "none", (-11, -12), "right"),
    ]:
        names = settings[table]
        bram = [computed(table, f"{name}: BRAM").quoted for name in names]
        found = [computed(table, f"{name}: MTBF").quoted for name in names]
        axes.plot(bram, found, label=f"paper, {table}", **PAPER | {"fillstyle": fill})
        if with_names:
            place: Style = {"textcoords": "offset points", "ha": side, "fontsize": 7, "rotation": 25}
            for name, x, y in zip(names, bram, found, strict=True):
                axes.annotate(name, (x, y), offset, **place)
