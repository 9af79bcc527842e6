"""Fig. 13: ring Allreduce between datacenters."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from farwrite.model import CollectiveTime, collective_time
from paper_figures.claim import Numbers, Settings
from paper_figures.shipped import Times
from paper_figures.style import SPLITS, Array, bytes_text, panels

TAIL = 0.999
# The simulations of the shipped protocols, by name: the number of sites, and the loss.
MEANS = {"mean_1e-4": (4, 1e-4), "mean_1e-3": (4, 1e-3), "mean_1e-2": (4, 1e-2), "mean_8": (8, 1e-3)}


def time(settings: Settings, scheme: str, sites: Any, size: Any, loss: Any) -> CollectiveTime:
    """Return the completion times of one curve."""
    path = (settings["bandwidth_bps"], settings["rtt_s"], loss)
    return collective_time("ring", sites, scheme, size, *path)


def speedup(settings: Settings, sites: int, size: float, losses: Array) -> tuple[Array, Array, Array]:
    """Return the ratio of SR's 99.9th percentile to EC's: for one chain, sampled, and with rounds in step."""
    repeat, coded = (time(settings, scheme, sites, size, losses) for scheme in ["sr-rto", settings["code"]])
    draws = [of.sample(settings["draws"], settings["seed"]) for of in (repeat, coded)]
    sampled = np.quantile(draws[0], TAIL, axis=-1) / np.quantile(draws[1], TAIL, axis=-1)
    return (
        repeat.path.quantile(TAIL) / coded.path.quantile(TAIL),
        sampled,
        repeat.barrier.quantile(TAIL) / coded.barrier.quantile(TAIL),
    )


def mean_speedup(settings: Settings, sites: int, losses: Any) -> Any:
    """Return the ratio of SR's mean to EC's for the small buffer, from samples."""
    size = settings["small_bytes"]
    draws = [
        time(settings, scheme, sites, size, losses).sample(settings["draws"], settings["seed"])
        for scheme in ["sr-rto", settings["code"]]
    ]
    return draws[0].mean(axis=-1) / draws[1].mean(axis=-1)


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    losses = np.array([1e-5, 1e-4, 1e-2])
    found: Numbers = {}
    for name, values in zip(["chain", "sampled", "step"], speedup(settings, 4, 2.0**27, losses), strict=True):
        found |= {f"{name}_1e-5": values[0], f"{name}_1e-4": values[1], f"{name}_1e-2": values[2]}
    found |= {name: mean_speedup(settings, sites, loss) for name, (sites, loss) in MEANS.items()}
    return {name: float(value) for name, value in found.items()}


def draw(settings: Settings) -> Figure:
    """Draw the paper's plot, with bands between the bounds: one chain, and rounds in step."""
    figure, (left, right, means) = panels(3, width=4.0)
    losses = np.geomspace(1e-6, 1e-2, 9)
    by_sites = [(f"{sites} datacenters", sites, 2.0**27) for sites in settings["sites"]]
    by_size = [(bytes_text(size), 4, size) for size in settings["sizes_bytes"]]
    for panel, lines in [(left, by_sites), (right, by_size)]:
        for number, (label, sites, size) in enumerate(lines):
            chain, sampled, step = speedup(settings, sites, size, losses)
            colour = SPLITS[number]
            panel.fill_between(losses, chain, step, color=colour, alpha=0.15, linewidth=0)
            panel.plot(losses, sampled, color=colour, marker="osD^v"[number], label=label)
        panel.legend()
    for number, sites in enumerate(settings["sites"]):
        ratios = mean_speedup(settings, sites, losses)
        means.plot(losses, ratios, color=SPLITS[number], label=f"{sites} datacenters")
    means.set_title(f"buffer of {bytes_text(settings['small_bytes'])}, hollow: shipped")
    means.set_ylabel("mean: SR's time over EC's")
    means.legend()
    for panel in (left, right, means):
        panel.set_xscale("log")
        panel.set_ylim(bottom=1)
        panel.set_xlabel("probability that a chunk is lost")
    left.set_title("buffer of 128 MiB")
    right.set_title("4 datacenters")
    left.set_ylabel("p99.9: SR's time over EC's\n(bands: from one chain to rounds in step)")
    return figure


def ring_ratios(settings: Settings, sites: int, times: Times) -> dict[float, float]:
    """Return the ratio of SR's mean to EC's for simulated all-reduces of the small buffer, by loss."""
    path = (settings["bandwidth_bps"], settings["rtt_s"])
    ratios = times.ratios("sr-rto", settings["code"], *path, sites=sites)
    return {loss: ratio for (size, loss), ratio in ratios.items() if size == settings["small_bytes"]}


def shipped(settings: Settings, times: Times) -> Numbers:
    """Return the numbers that simulated all-reduces of the shipped protocols give."""
    found: Numbers = {}
    for name, (sites, loss) in MEANS.items():
        ratios = ring_ratios(settings, sites, times)
        found |= {name: ratios[loss]} if loss in ratios else {}
    return found


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Add the mean times of the shipped protocols to the plot."""
    panel = figure.axes[2]
    for number, sites in enumerate(settings["sites"]):
        ratios = ring_ratios(settings, sites, times)
        panel.plot(
            list(ratios), list(ratios.values()), color=SPLITS[number], marker="osD^v"[number],
            linestyle="none", markerfacecolor="none",
        )  # fmt: skip
