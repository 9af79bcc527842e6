"""LoWAR's Fig. 13: the time that LoWAR adds to a message in a local network."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_above, panels, places

#: LoWAR in a NIC whose receive path takes as long for a packet as the cable, and as long to drain one.
PANEL = "latency, in the NIC, 100% and 100%"
#: LoWAR in a NIC whose receive path takes no time.
FAST = "latency, in the NIC, 0% and 0%"
#: LoWAR in a box behind a cable.
BOX = "latency"


def shape(name: str) -> tuple[int, int]:
    """Return r and c of LoWAR(r, c)."""
    r, c = name.removeprefix("LoWAR(").removesuffix(")").split(",")
    return int(r), int(c)


def time(rows: Rows, series: str, measure: str, panel: str = PANEL) -> float:
    """Return the microseconds that LoWAR adds to the time of the message."""
    return rows.value(panel, series, measure, shape(series)[0])


def times(rows: Rows, names: Sequence[str], measure: str, panel: str = PANEL) -> Array:
    """Return the added microseconds of several series."""
    return np.array([time(rows, name, measure, panel) for name in names])


def repairs_us(settings: Settings, series: str) -> float:
    """Return the time that the repair packets of all blocks except the last one take on the cable."""
    r, c = shape(series)
    packets: int = ceil(settings["message_bytes"] / settings["mtu_bytes"])
    frame_us: float = settings["repair_frame_bytes"] * 8e6 / settings["rate_bps"]
    return (ceil(packets / r) - 1) * c * frame_us


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    half, whole = settings["single"][-2:]
    burst = settings["burst"]
    names = rows.series(PANEL)
    added, fast = (
        [time(rows, name, "added_us", panel) / repairs_us(settings, name) for name in names]
        for panel in (PANEL, FAST)
    )
    return {
        "added_least": min(added),
        "added_most": max(added),
        "fast_added_least": min(fast),
        "fast_added_most": max(fast),
        "by_block": time(rows, whole, "one_loss_us") / time(rows, half, "one_loss_us"),
        "two_blocks": time(rows, whole, "two_blocks_us") / time(rows, whole, "one_loss_us"),
        "burst": time(rows, burst, "16_losses_us") / time(rows, burst, "one_loss_us"),
        "box_by_block": time(rows, whole, "one_loss_us", BOX) / time(rows, half, "one_loss_us", BOX),
        "box_two_blocks": time(rows, whole, "two_blocks_us", BOX) / time(rows, whole, "one_loss_us", BOX),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot with our numbers."""
    figure, (added, recovering, burst) = panels(3, width=4.0)
    names = rows.series(PANEL)
    single = settings["single"]
    receivers = {"in the time of a packet": PANEL, "in no time": FAST}
    bars(added, {label: times(rows, names, "added_us", panel) for label, panel in receivers.items()})
    repairs = [repairs_us(settings, name) for name in names]
    added.plot(repairs, linestyle="none", marker="_", markersize=24, color="black", label="repair packets")
    added.set_title("(a) without losses")
    measures = {"one loss": "one_loss_us", "a loss in each of two blocks": "two_blocks_us"}
    bars(recovering, {label: times(rows, single, measure) for label, measure in measures.items()})
    recovering.set_title("(b) added by losses")
    measures = {"one loss": "one_loss_us", "16 losses in a row": "16_losses_us"}
    bars(burst, {label: times(rows, [settings["burst"]], measure) for label, measure in measures.items()})
    burst.set_title("(c) added by a burst")
    burst.set_xlim(-1, 1)
    for panel, shown in [(added, names), (recovering, single), (burst, [settings["burst"]])]:
        places(panel, [name.removeprefix("LoWAR") for name in shown])
        panel.set_xlabel("LoWAR(r, c)")
        panel.set_ylabel("added time, us")
        legend_above(panel)
    return figure
