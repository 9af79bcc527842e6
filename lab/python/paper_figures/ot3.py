"""OptiNIC's Table 3: the time of the Hadamard transform, by the number of blocks of a message."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, panels, places

PANEL = "128 MiB"
PLAIN = "stride 1"


def of_whole(settings: Settings, rows: Rows) -> Array:
    """Return times divided by the time of the whole message as one block."""
    times = [rows.value(PANEL, PLAIN, "ms", splits) for splits in settings["splits"]]
    return np.array(times) / times[0]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    ratios = dict(zip(settings["splits"], of_whole(settings, rows).tolist(), strict=True))

    def of_memcpy(series: str, splits: int) -> float:
        return rows.value(PANEL, series, "of_memcpy", splits)

    packets = settings["packets"]
    return {
        "of_whole_4": ratios[4],
        "of_whole_16": ratios[16],
        "of_whole_64": ratios[64],
        "memcpy_whole": of_memcpy(PLAIN, 1),
        "memcpy_64": of_memcpy(PLAIN, 64),
        "memcpy_packets": of_memcpy(PLAIN, packets),
        "memcpy_strided": of_memcpy(settings["strided"], packets),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw our times relative to one block, and relative to copying."""
    figure, (left, right) = panels(2, width=4.2)
    splits = settings["splits"]
    bars = left.bar(
        range(len(splits)), of_whole(settings, rows), 0.7, color="#0072B2", hatch="xx", edgecolor="white"
    )
    left.bar_label(bars, fmt="%.2f", padding=2, fontsize=8)
    places(left, [str(number) for number in splits])
    left.set_ylim(0, 1.25)
    left.set_ylabel("time, over that of 1 block")
    left.set_xlabel("blocks of a message of 128 MiB")

    packets = settings["packets"]
    shapes = [(PLAIN, number) for number in [*splits, packets]] + [(settings["strided"], packets)]
    values = [rows.value(PANEL, series, "of_memcpy", number) for series, number in shapes]
    bars = right.bar(range(len(values)), values, 0.7, color="#0072B2", hatch="xx", edgecolor="white")
    right.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    right.margins(y=0.15)
    places(right, [*(str(number) for _, number in shapes[:-1]), f"{packets},\nstrided"])
    right.set_ylabel("time, over that of copying")
    right.set_xlabel("blocks of a message of 128 MiB")
    for panel in (left, right):
        panel.grid(visible=False, axis="x")
    return figure
