"""Fig. 12: distance and bandwidth."""

from __future__ import annotations

import numpy as np
from farwrite.model import CompletionTime, completion_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.shipped import Estimates, Times
from paper_figures.style import MDS, RTO, Array, between, curve, hollow, panels


def time(
    settings: Settings, scheme: str, size: float, bandwidth_bps: float, km: float | Array, loss: float
) -> CompletionTime:
    """Return the completion times of one curve."""
    rtt_s = km * settings["rtt_s"] / settings["distance_km"]
    return completion_time(scheme, size, bandwidth_bps, rtt_s, loss)


def ratio(settings: Settings, bandwidth_bps: float, km: float) -> float:
    """Return the ratio of selective repeat's mean to erasure coding's, for the large message and low loss."""
    place = (settings["large_bytes"], bandwidth_bps, km, settings["large_loss_chunk"])
    return float(time(settings, "sr-rto", *place).mean / time(settings, settings["code"], *place).mean)


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    km = settings["distance_km"]
    return {
        "large": ratio(settings, 400e9, km),
        "large_far": ratio(settings, 400e9, 10_000),
        "large_wide": ratio(settings, 3.2e12, km),
    }


def draw(settings: Settings) -> Figure:
    """Draw the paper's plot, and below it the large message."""
    km = between(settings["distances_km"], 80)
    figure, axes = panels(len(settings["bandwidths_bps"]), width=3.0)
    for panel, bandwidth in zip(axes, settings["bandwidths_bps"], strict=True):
        for scheme, style in [("sr-rto", RTO), (settings["code"], MDS)]:
            small = time(settings, scheme, settings["message_bytes"], bandwidth, km, settings["loss_chunk"])
            curve(panel, km, small.mean / small.lossless_s, style, label=f"{style['label']}: 128 MiB")
            large = time(
                settings, scheme, settings["large_bytes"], bandwidth, km, settings["large_loss_chunk"]
            )
            curve(
                panel, km, large.mean / large.lossless_s, style,
                label=f"{style['label']}: 8 GiB", linestyle=":", fillstyle="none",
            )  # fmt: skip
        panel.set_title(f"{bandwidth / 1e9:g} Gbit/s")
        panel.set_xscale("log")
        panel.set_ylim(0.95, 3.5)
        panel.set_xlabel("distance, km")
    axes[0].set_ylabel("mean time, over the lossless")
    axes[0].legend(fontsize=7)
    return figure


def shipped(settings: Settings, times: Times) -> Estimates:
    """Return the numbers that simulated messages of the shipped protocols give."""
    km = settings["distance_km"]
    places = {"large": (400e9, km), "large_far": (400e9, 10_000), "large_wide": (3.2e12, km)}
    found: Estimates = {}
    for name, (bandwidth_bps, distance_km) in places.items():
        rtt_s = distance_km * settings["rtt_s"] / km
        ratios = times.ratios("sr-rto", settings["code"], bandwidth_bps, rtt_s)
        place = (float(settings["large_bytes"]), settings["large_loss_chunk"])
        found |= {name: ratios[place]} if place in ratios else {}
    return found


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Add the mean times of the shipped protocols. The large message has large markers."""
    for panel, bandwidth_bps in zip(figure.axes, settings["bandwidths_bps"], strict=True):
        for cell in times.cells:
            style = {"sr-rto": RTO, settings["code"]: MDS}.get(cell.scheme)
            size = (cell.message_bytes, cell.loss_chunk)
            large = size == (settings["large_bytes"], settings["large_loss_chunk"])
            small = size == (settings["message_bytes"], settings["loss_chunk"])
            if style is None or not np.isclose(cell.bandwidth_bps, bandwidth_bps) or not (large or small):
                continue
            km = cell.rtt_s * settings["distance_km"] / settings["rtt_s"]
            ideal = float(time(settings, cell.scheme, cell.message_bytes, bandwidth_bps, km, 0).lossless_s)
            look = style | {"linestyle": "none", "label": None, "markersize": 9 if large else 6}
            hollow(panel, {km: cell.estimate().scaled(1 / ideal)}, **look)
