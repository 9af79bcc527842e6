"""Section 5.1.1: the model beside samples of itself, and beside messages of the shipped protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
from farwrite.model import completion_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.shipped import Cell, Estimate, Estimates, Times, by_value
from paper_figures.style import SCHEMES, Array, bytes_text, hollow, legend_below, panels

#: A quantile of p99.9 needs ten samples above it.
TAIL, TAIL_DRAWS = 0.999, 10_000
#: A tail is at whole timeouts, so one that is not near the exact one is far from it: shares are counted.
TAIL_BOUND = 0.05


def time(settings: Settings, scheme: str) -> Any:
    """Return the completion times of a scheme, by size and loss."""
    sizes = np.array(settings["sizes_bytes"], dtype=float)[:, np.newaxis]
    losses = np.array(settings["losses"])
    return completion_time(scheme, sizes, settings["bandwidth_bps"], settings["rtt_s"], losses)


def deviations(settings: Settings, scheme: str) -> Array:
    """Return the mean of samples over the exact mean, minus one, by size and loss."""
    exact = time(settings, scheme)
    means: Array = exact.sample(settings["draws"], settings["seed"]).mean(axis=-1)
    found: Array = means / exact.mean - 1
    return found


def tail_deviations(settings: Settings, scheme: str) -> Array:
    """Return the same for the 99.9th percentile."""
    exact = time(settings, scheme)
    tails: Array = np.quantile(
        exact.sample(TAIL_DRAWS, settings["seed"]), TAIL, axis=-1, method="inverted_cdf"
    )
    found: Array = tails / exact.quantile(TAIL) - 1
    return found


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    means, tails = (
        np.abs([of(settings, scheme) for scheme in SCHEMES]) for of in (deviations, tail_deviations)
    )
    return {"mean": float(means.max()), "tail": float((tails <= TAIL_BOUND).mean())}


def draw(settings: Settings) -> Figure:
    """Draw the deviations of the means, for each size: of samples, and of the shipped protocols."""
    sizes, losses = settings["sizes_bytes"], settings["losses"]
    figure, axes = panels(len(sizes), width=3.2)
    for number, (scheme, style) in enumerate(SCHEMES.items()):
        values = 100 * deviations(settings, scheme)
        for panel, row in zip(axes, values, strict=True):
            panel.plot(beside(losses, number), row, **style, linewidth=0)
    for panel, size in zip(axes, sizes, strict=True):
        for bound in (-5, 5):
            panel.axhline(bound, color="black", linestyle="--", linewidth=0.8, zorder=0)
        panel.set_xscale("log")
        panel.set_ylim(-8, 8)
        panel.set_title(bytes_text(size))
        panel.set_xlabel("probability that a chunk is lost")
    axes[0].set_ylabel(f"mean of {settings['draws']} over exact, %")
    legend_below(figure, axes[0], len(SCHEMES))
    return figure


def beside(losses: Any, number: int) -> Array:
    """Return the losses, moved so that the marks of schemes stand beside each other."""
    moved: Array = np.array(losses) * 1.15 ** (number - 1.5)
    return moved


def cells(settings: Settings, times: Times) -> list[Cell]:
    """Return the cells whose messages are enough for a comparison, over the path of the settings."""
    return [
        cell
        for scheme in SCHEMES
        for cell in times.of(scheme, settings["bandwidth_bps"], settings["rtt_s"])
        if cell.messages >= settings["draws"]
    ]


def shipped(settings: Settings, times: Times) -> Estimates:
    """Return the largest deviations of the shipped protocols from the model with their waits."""
    found = cells(settings, times)
    tails = [
        abs(cell.p999_s / cell.model_p999_s - 1) <= TAIL_BOUND
        for cell in found
        if cell.messages >= TAIL_DRAWS
    ]
    means = [cell.estimate().scaled(1 / cell.model_s) for cell in found]
    distances = [Estimate(abs(of.value - 1), of.below, of.above) for of in means]
    return {"mean": max(distances, key=by_value), "tail": Estimate(sum(tails) / len(tails), 0, 0)}


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Add the deviations of the shipped protocols, with two standard errors on each side."""
    for number, (scheme, style) in enumerate(SCHEMES.items()):
        for panel, size in zip(figure.axes, settings["sizes_bytes"], strict=True):
            of_size = [
                cell for cell in cells(settings, times) if (cell.scheme, cell.message_bytes) == (scheme, size)
            ]
            if not of_size:
                continue
            places = beside([cell.loss_chunk for cell in of_size], number) * 1.05
            found = [cell.estimate().scaled(100 / cell.model_s) for cell in of_size]
            percents = [Estimate(of.value - 100, of.below, of.above) for of in found]
            hollow(panel, dict(zip(places, percents, strict=True)), **style | {"label": None})
            panel.set_title(f"{bytes_text(size)}, hollow: shipped")
