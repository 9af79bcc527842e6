"""Fig. 3: no scheme is best everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from farwrite.model import CompletionTime, completion_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.shipped import Estimate, Estimates, Times, by_value
from paper_figures.style import MDS, NACK, RTO, Array, between, curve, hollow, panels, size_axis


def time(settings: Settings, scheme: str, **changed: Any) -> CompletionTime:
    """Return the completion times of one curve."""
    path: dict[str, Any] = {
        "message_bytes": settings["message_bytes"],
        "bandwidth_bps": settings["bandwidth_bps"],
        "rtt_s": settings["rtt_s"],
        "loss_chunk": settings["loss_chunk"],
    }
    return completion_time(scheme, **(path | changed))


def slowdown(settings: Settings, scheme: str, **changed: Any) -> Array:
    """Return the mean divided by the time that the message takes without losses and parity."""
    times = time(settings, scheme, **changed)
    return np.asarray(times.mean / times.lossless_s)


def sizes(settings: Settings) -> Array:
    """Return the message sizes of panel a."""
    low, high = settings["size_powers"]
    return 2.0 ** np.arange(low, high + 0.01, 0.125)


def rtts(settings: Settings, km: Array) -> Array:
    """Return the round trips of distances: 25 ms for 3750 km."""
    per_km: float = settings["rtt_s"] / settings["distance_km"]
    return km * per_km


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    size = sizes(settings)
    repeat, coded = (
        slowdown(settings, scheme, message_bytes=size) for scheme in ["sr-rto", settings["code"]]
    )
    cross = size[np.flatnonzero((repeat[:-1] > coded[:-1]) & (repeat[1:] <= coded[1:]))[-1]]
    km = between(settings["distances_km"], 400)
    large = {"message_bytes": settings["large_bytes"], "rtt_s": rtts(settings, km)}
    ahead = slowdown(settings, settings["code"], **large) < slowdown(settings, "sr-rto", **large)
    losses = np.geomspace(1e-6, 1e-1, 501)
    by_loss = slowdown(settings, "sr-rto", loss_chunk=losses)
    far = {"message_bytes": 2.0**38}
    return {
        "peak_bytes": float(size[repeat.argmax()]),
        "coded_to_1_gib": float(coded[size <= 2**30].max()),
        "cross_bytes": float(cross),
        "coded_over_repeat_256_gib": float(
            slowdown(settings, settings["code"], **far) / slowdown(settings, "sr-rto", **far)
        ),
        "cross_km": float(km[ahead][0]),
        "slowdown_1e-4": float(slowdown(settings, "sr-rto", loss_chunk=1e-4)),
        "slowdown_1e-1": float(by_loss[-1]),
        "loss_of_10x": float(losses[by_loss >= 10][0]),
    }


def draw(settings: Settings) -> Figure:
    """Draw the paper's plot with our numbers."""
    figure, (left, middle, right) = panels(3)
    schemes = [("sr-rto", RTO), ("sr-nack", NACK), (settings["code"], MDS)]
    km = between(settings["distances_km"], 100)
    losses = np.geomspace(1e-8, 1e-1, 100)
    for scheme, style in schemes:
        curve(left, sizes(settings), slowdown(settings, scheme, message_bytes=sizes(settings)), style)
        large = {"message_bytes": settings["large_bytes"], "rtt_s": rtts(settings, km)}
        curve(middle, km, slowdown(settings, scheme, **large), style)
        curve(right, losses, slowdown(settings, scheme, loss_chunk=losses), style)
    left.set_title("(a) 3750 km, 1e-5 of the chunks lost")
    left.set_ylabel("mean time, over the lossless")
    size_axis(left, *settings["size_powers"])
    middle.set_title("(b) 8 GiB, 1e-5 of the chunks lost")
    middle.set_xscale("log")
    middle.set_xlabel("distance, km")
    right.set_title("(c) 128 MiB, 3750 km")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_yticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
    right.minorticks_off()
    right.set_xlabel("probability that a chunk is lost")
    left.legend()
    return figure


def shipped(settings: Settings, times: Times) -> Estimates:
    """Return the numbers that simulated messages of the shipped protocols give."""
    path = (settings["bandwidth_bps"], settings["rtt_s"])

    def over_ideal(scheme: str, size: float, loss: float) -> Estimate | None:
        cell = times.find(scheme, size, *path, loss)
        ideal = float(time(settings, "sr-rto", message_bytes=size).lossless_s)
        return cell.estimate().scaled(1 / ideal) if cell else None

    coded = [
        over_ideal(settings["code"], cell.message_bytes, settings["loss_chunk"])
        for cell in times.of(settings["code"], *path)
        if cell.message_bytes <= 2**30
    ]
    found = {
        "coded_to_1_gib": max((of for of in coded if of is not None), default=None, key=by_value),
        "slowdown_1e-4": over_ideal("sr-rto", settings["message_bytes"], 1e-4),
        "slowdown_1e-1": over_ideal("sr-rto", settings["message_bytes"], 1e-1),
    }
    return {name: number for name, number in found.items() if number is not None}


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Add the mean times of the shipped protocols by size and by loss, as hollow markers."""
    by_size, by_loss = figure.axes[0], figure.axes[2]
    path = (settings["bandwidth_bps"], settings["rtt_s"])
    for scheme, style in [("sr-rto", RTO), ("sr-nack", NACK), (settings["code"], MDS)]:
        look = style | {"linestyle": "none", "markersize": 7, "label": None}
        of_sizes: dict[float, Estimate] = {}
        of_losses: dict[float, Estimate] = {}
        for cell in times.of(scheme, *path):
            ideal = float(time(settings, scheme, message_bytes=cell.message_bytes).lossless_s)
            if np.isclose(cell.loss_chunk, settings["loss_chunk"]):
                of_sizes[cell.message_bytes] = cell.estimate().scaled(1 / ideal)
            if np.isclose(cell.message_bytes, settings["message_bytes"]):
                of_losses[cell.loss_chunk] = cell.estimate().scaled(1 / ideal)
        hollow(by_size, of_sizes, **look)
        hollow(by_loss, of_losses, **look)
    for panel in (by_size, by_loss):
        panel.set_title(panel.get_title() + "\nhollow: shipped protocols")
