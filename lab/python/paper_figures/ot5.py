"""OptiNIC's Table 5 and Celeris' Table II: what a NIC needs, and its failures, by the bytes of a queue pair.

The lines of `farwrite.model.nic` predict the cells: the rows of RoCE and Celeris in Celeris' table give them.
In OptiNIC's table, IRN and Falcon have a reorder buffer besides. The contexts of the hardware of lab/rtl
have lines of their own.
"""

from __future__ import annotations

import numpy as np
from farwrite.model import nic
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


def predicted(settings: Settings, design: str) -> Numbers:
    """Return the cells of a design, by the names of the columns."""
    of = settings["designs"][design]
    cells = nic.synthesis(of["bytes"], of.get("buffer_bytes", 0))
    found = {name: cells[quantity] for name, quantity in COLUMNS.items()}
    return found | {"hours": nic.mtbf_hours(found["bram"])}


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
    of_rate = {
        "per_bit": nic.implied_failures_per_bit(settings["nodes"], settings["bram_bits"]),
        "mtbf_roce_stated": stated_hours(settings, computed("Celeris II", "RoCE: BRAM").quoted),
    }
    return cells | saved | {"rtl_bram": slope(settings, rows)} | of_rate


def stated_hours(settings: Settings, bram: float) -> float:
    """Return the hours between failures at the failure rate that Celeris states, if only block RAM fails."""
    bits = settings["nodes"] * settings["bram_bits"] * bram
    return float(1 / (settings["failures_per_bit"] * bits))


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw block RAM over the bytes of a context, and times over block RAM, beside the stated rate."""
    figure, (memory, times, stated) = panels(3, width=4.2, height=3.8)
    low, high = settings["byte_range"]
    state = np.linspace(low, high, 100)
    memory.plot(state, [nic.synthesis(float(of))["BRAM"] for of in state], color="#0072B2", label=LINE)
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
        panel.plot(across, [nic.mtbf_hours(float(number)) for number in across], color="#0072B2", label=LINE)
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
