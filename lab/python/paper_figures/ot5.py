"""OptiNIC's Table 5 and Celeris' Table II: mean time between failures, by the block RAM of a NIC."""

from __future__ import annotations

import numpy as np
from farwrite.model import nic
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.ot4 import computed, follow
from paper_figures.style import PAPER, Style, log_y, panels


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the papers' numbers."""
    stated = stated_hours(settings, settings["bram_roce"])
    found = follow((name, computed(*place)) for name, place in settings["rows"].items())
    return found | {"mtbf_roce_stated": stated}


def stated_hours(settings: Settings, bram: float) -> float:
    """Return the hours between failures at the failure rate that Celeris states, if only block RAM fails."""
    bits = settings["nodes"] * settings["bram_bits"] * bram
    return float(1 / (settings["failures_per_bit"] * bits))


def draw(settings: Settings) -> Figure:
    """Draw both tables' times over the block RAM, the fit, and the times that the stated rate gives."""
    figure, (left, right) = panels(2, width=4.6, height=3.8)
    for panel in (left, right):
        points(panel, settings, with_names=panel is left)
        panel.set_xlabel("block RAMs of a NIC, 36 Kbit each")
        panel.set_ylabel("mean time between failures, h")
    low, high = settings["bram_range"]
    bram = np.linspace(low, high, 100)
    for panel in (left, right):
        fitted = [nic.mtbf_hours(number) for number in bram]
        panel.plot(bram, fitted, color="#0072B2", label="1 / (0.00613 + 1.188e-5 BRAM)")
    stated = [stated_hours(settings, number) for number in bram]
    label = f"{settings['failures_per_bit']:g} failures an hour and bit"
    right.plot(bram, stated, color="#009E73", linestyle="--", label=label)
    log_y(right)
    right.set_ylim(0.05, 300)
    right.legend(fontsize=8, loc="center right")
    left.set_ylim(0, 110)
    left.legend(fontsize=8, loc="lower left")
    left.set_title("(a) the papers' points and a fit")
    right.set_title("(b) beside the stated failure rate")
    return figure


def points(axes: Axes, settings: Settings, with_names: bool) -> None:
    """Draw the numbers of both tables as points."""
    for table, fill, offset, side in [
        ("OptiNIC 5", "full", (3, 6), "left"),
        ("Celeris II", "none", (-11, -12), "right"),
    ]:
        names = settings[table]
        bram = [computed(table, f"{name}: BRAM").quoted for name in names]
        hours = [computed(table, f"{name}: MTBF").quoted for name in names]
        axes.plot(bram, hours, label=f"paper, {table}", **PAPER | {"fillstyle": fill})
        if with_names:
            place: Style = {"textcoords": "offset points", "ha": side, "fontsize": 7, "rotation": 25}
            for name, x, y in zip(names, bram, hours, strict=True):
                axes.annotate(name, (x, y), offset, **place)
