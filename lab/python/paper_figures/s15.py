"""Fig. 15: the effect of larger chunks on loss."""

from __future__ import annotations

import numpy as np
from farwrite.model import CompletionTime, chunk_loss, completion_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.style import SCHEMES, curve, panels


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


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    loss = settings["loss_packet"]
    return {
        "loss_1": float(chunk_loss(loss, 1)),
        "loss_16": float(chunk_loss(loss, 16)),
        "loss_64": float(chunk_loss(loss, 64)),
        "coded_64_over_1": float(
            time(settings, "ec-mds:32,8", 64).mean / time(settings, "ec-mds:32,8", 1).mean
        ),
    }


def draw(settings: Settings) -> Figure:
    """Draw the loss of chunks, and its effect on the time of a message."""
    figure, (left, right) = panels(2, width=4.2)
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
    for panel in (left, right):
        panel.set_xlabel("packets a chunk")
    return figure
