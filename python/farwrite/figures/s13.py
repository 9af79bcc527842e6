"""Fig. 13: ring Allreduce between datacenters."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from farwrite.figures.claim import Numbers, Settings
from farwrite.figures.style import SPLITS, Array, bytes_text, panels
from farwrite.model import CollectiveTime, collective_time

TAIL = 0.999


def time(settings: Settings, scheme: str, sites: Any, size: Any, loss: Any) -> CollectiveTime:
    """Evaluate one curve."""
    path = (settings["bandwidth_bps"], settings["rtt_s"], loss)
    return collective_time("ring", sites, scheme, size, *path)


def speedup(settings: Settings, sites: int, size: float, losses: Array) -> tuple[Array, Array, Array]:
    """SR's 99.9th percentile over EC's: of one chain, as sampled, and with rounds in step."""
    repeat, coded = (time(settings, scheme, sites, size, losses) for scheme in ["sr-rto", settings["code"]])
    draws = [of.sample(settings["draws"], settings["seed"]) for of in (repeat, coded)]
    sampled = np.quantile(draws[0], TAIL, axis=-1) / np.quantile(draws[1], TAIL, axis=-1)
    return (
        repeat.path.quantile(TAIL) / coded.path.quantile(TAIL),
        sampled,
        repeat.barrier.quantile(TAIL) / coded.barrier.quantile(TAIL),
    )


def numbers(settings: Settings) -> Numbers:
    """What is compared with the paper."""
    losses = np.array([1e-5, 1e-4, 1e-2])
    found: Numbers = {}
    for name, values in zip(["chain", "sampled", "step"], speedup(settings, 4, 2.0**27, losses), strict=True):
        found |= {f"{name}_1e-5": values[0], f"{name}_1e-4": values[1], f"{name}_1e-2": values[2]}
    return {name: float(value) for name, value in found.items()}


def draw(settings: Settings) -> Figure:
    """Make a plot like the paper's; bands from one chain to rounds in step."""
    figure, (left, right) = panels(2, width=4.6)
    losses = np.geomspace(1e-6, 1e-2, 9)
    by_sites = [(f"{sites} datacenters", sites, 2.0**27) for sites in settings["sites"]]
    by_size = [(bytes_text(size), 4, size) for size in settings["sizes_bytes"]]
    for panel, lines in [(left, by_sites), (right, by_size)]:
        for number, (label, sites, size) in enumerate(lines):
            chain, sampled, step = speedup(settings, sites, size, losses)
            colour = SPLITS[number]
            panel.fill_between(losses, chain, step, color=colour, alpha=0.15, linewidth=0)
            panel.plot(losses, sampled, color=colour, marker="osD^v"[number], label=label)
        panel.set_xscale("log")
        panel.set_ylim(bottom=1)
        panel.set_xlabel("probability that a chunk is lost")
        panel.legend()
    left.set_title("buffer of 128 MiB")
    right.set_title("4 datacenters")
    left.set_ylabel("p99.9: SR's time over EC's")
    return figure
