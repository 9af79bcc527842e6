"""Fig. 13: ring Allreduce between datacenters."""

from __future__ import annotations

from typing import Any

import numpy as np
from farwrite.model import CollectiveTime, collective_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.shipped import Estimate, Estimates, Times
from paper_figures.style import SPLITS, Array, bytes_text, hollow, panels

TAIL = 0.999
# The simulations of the shipped protocols, by name: the number of sites, and the loss.
MEANS = {"mean_1e-4": (4, 1e-4), "mean_1e-3": (4, 1e-3), "mean_1e-2": (4, 1e-2), "mean_8": (8, 1e-3)}
# Those at the paper's quantile, by name: the loss. They have 4 sites.
TAILS = {"tail_1e-5": 1e-5, "tail_1e-4": 1e-4, "tail_1e-3": 1e-3, "tail_1e-2": 1e-2}


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


def tail_speedup(settings: Settings, losses: Any) -> Array:
    """Return the ratio of SR's 99.9th percentile to EC's for the smallest buffer, from samples."""
    draws = [
        time(settings, scheme, 4, settings["tail_bytes"], losses).sample(
            settings["tail_draws"], settings["seed"]
        )
        for scheme in ["sr-rto", settings["code"]]
    ]
    repeat, coded = (np.quantile(of, TAIL, axis=-1) for of in draws)
    ratios: Array = repeat / coded
    return ratios


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    losses = np.array([1e-5, 1e-4, 1e-2])
    found: Numbers = {}
    for name, values in zip(["chain", "sampled", "step"], speedup(settings, 4, 2.0**27, losses), strict=True):
        found |= {f"{name}_1e-5": values[0], f"{name}_1e-4": values[1], f"{name}_1e-2": values[2]}
    found |= {name: mean_speedup(settings, sites, loss) for name, (sites, loss) in MEANS.items()}
    tails = tail_speedup(settings, np.array(list(TAILS.values())))
    found |= dict(zip(TAILS, tails, strict=True))
    return {name: float(value) for name, value in found.items()}


def draw(settings: Settings) -> Figure:
    """Draw the paper's plot, with bands between the bounds: one chain, and rounds in step."""
    figure, (left, right, tails, means) = panels(4, width=3.6)
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
    tails.plot(losses, tail_speedup(settings, losses), color=SPLITS[0], label="model, sampled")
    tails.set_title(f"4 datacenters, buffer of {bytes_text(settings['tail_bytes'])}")
    tails.set_ylabel("p99.9: SR's time over EC's")
    for number, sites in enumerate(settings["sites"]):
        ratios = mean_speedup(settings, sites, losses)
        means.plot(losses, ratios, color=SPLITS[number], label=f"{sites} datacenters")
    means.set_title(f"buffer of {bytes_text(settings['small_bytes'])}, hollow: shipped")
    means.set_ylabel("mean: SR's time over EC's")
    means.legend()
    for panel in (left, right, tails, means):
        panel.set_xscale("log")
        panel.set_ylim(bottom=1)
        panel.set_xlabel("probability that a chunk is lost")
    left.set_title("buffer of 128 MiB")
    right.set_title("4 datacenters")
    left.set_ylabel("p99.9: SR's time over EC's\n(bands: from one chain to rounds in step)")
    return figure


def ring_ratios(
    settings: Settings, sites: int, times: Times, size: str = "small_bytes", kind: str = "mean_s"
) -> dict[float, Estimate]:
    """Return the ratio of SR's time to EC's for simulated all-reduces of a buffer, by loss."""
    path = (settings["bandwidth_bps"], settings["rtt_s"])
    ratios = times.ratios("sr-rto", settings["code"], *path, kind=kind, sites=sites)
    return {loss: ratio for (of, loss), ratio in ratios.items() if of == settings[size]}


def shipped(settings: Settings, times: Times) -> Estimates:
    """Return the numbers that simulated all-reduces of the shipped protocols give."""
    found: Estimates = {}
    for name, (sites, loss) in MEANS.items():
        ratios = ring_ratios(settings, sites, times)
        found |= {name: ratios[loss]} if loss in ratios else {}
    ratios = ring_ratios(settings, 4, times, "tail_bytes", "p999_s")
    found |= {name: ratios[loss] for name, loss in TAILS.items() if loss in ratios}
    return found


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Add the ratios of the shipped protocols to the plot, with their intervals."""
    tails, means = figure.axes[2:]
    for number, sites in enumerate(settings["sites"]):
        look = {"color": SPLITS[number], "marker": "osD^v"[number]}
        hollow(means, ring_ratios(settings, sites, times), **look)
    tails_of_4 = ring_ratios(settings, 4, times, "tail_bytes", "p999_s")
    hollow(tails, tails_of_4, color=SPLITS[1], marker="s", label="shipped protocols")
    tails.legend()
