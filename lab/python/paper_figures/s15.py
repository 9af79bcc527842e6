"""Fig. 15: the effect of larger chunks on loss and throughput."""

from __future__ import annotations

from math import hypot

import numpy as np
from farwrite.model import CompletionTime, chunk_loss, completion_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SCHEMES, curve, panels

PANEL, PERF = "loopback", "farwrite perf"
CARRIED, ERROR = "gbit_per_second", "error_gbit_per_second"


def time(settings: Settings, scheme: str, packets: object) -> CompletionTime:
    """Return the completion times with this number of packets for each chunk."""
    number = np.asarray(packets)
    return completion_time(
        scheme,
        settings["message_bytes"],
        settings["bandwidth_bps"],
        settings["rtt_s"],
        chunk_loss(settings["loss_packet"], number),
        settings["packet_bytes"] * number,
    )


def largest_over_least(rows: Rows) -> tuple[float, float]:
    """Return the ratio of the largest to the smallest chunks, and its standard error."""
    _, carried = rows.line(PANEL, PERF, CARRIED)
    _, error = rows.line(PANEL, PERF, ERROR)
    ratio = float(carried[-1] / carried[0])
    relative = error / carried
    return ratio, ratio * hypot(relative[0], relative[-1])


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    loss = settings["loss_packet"]
    return {
        "carried_64_over_1": largest_over_least(rows)[0],
        "loss_1": float(chunk_loss(loss, 1)),
        "loss_16": float(chunk_loss(loss, 16)),
        "loss_64": float(chunk_loss(loss, 64)),
        "coded_64_over_1": float(
            time(settings, "ec-mds:32,8", 64).mean / time(settings, "ec-mds:32,8", 1).mean
        ),
    }


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of what is measured."""
    return {"carried_64_over_1": largest_over_least(rows)[1]}


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the loss of chunks, its effect on the time of a message, and on processor time."""
    figure, (left, right, speed) = panels(3, width=4.0)
    packets = np.array(settings["packets"])
    bars = left.bar(
        [str(number) for number in packets], chunk_loss(settings["loss_packet"], packets),
        color="#0072B2", hatch="//", edgecolor="white",
    )  # fmt: skip
    left.bar_label(bars, fmt="%.2g", padding=2)
    left.set_yscale("log")
    left.margins(y=0.15)
    left.set_ylabel("probability that a chunk is lost")
    left.set_title("1e-5 of the packets lost")
    for scheme, style in SCHEMES.items():
        times = time(settings, scheme, packets)
        curve(right, packets, times.mean / times.lossless_s, style)
    right.set_xscale("log", base=2)
    right.set_xticks(packets, [str(number) for number in packets])
    right.set_ylabel("mean time, over the lossless")
    right.set_title("128 MiB, 3750 km")
    right.legend()
    chunks, carried = rows.line(PANEL, PERF, CARRIED)
    two_errors = rows.intervals(PANEL, PERF, chunks, ERROR)
    speed.errorbar(chunks, carried / carried[0], yerr=two_errors / carried[0], marker="o", capsize=3)
    speed.set_title(f"{PERF}, loopback")
    speed.set_xscale("log", base=2)
    speed.set_xticks(chunks, [f"{chunk:g}" for chunk in chunks])
    speed.set_ylim(bottom=0)
    speed.set_ylabel("bytes a processor second,\nover those with 1 packet a chunk")
    for panel in (left, right, speed):
        panel.set_xlabel("packets a chunk")
    return figure
