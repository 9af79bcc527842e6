"""Fig. 9: the speedup of erasure coding over selective repeat, by size and loss."""

from __future__ import annotations

import numpy as np
from farwrite.model import completion_time
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.digits import estimate_text
from paper_figures.shipped import Estimate, Estimates, Times, by_value
from paper_figures.style import Array, bytes_text, panels


def grid(settings: Settings) -> tuple[Array, Array]:
    """Return the sizes and the losses of the map."""
    low, high = settings["size_powers"]
    least, most = settings["loss_powers"]
    return 2.0 ** np.arange(low, high + 1), 10.0 ** np.arange(least, most + 1)


def speedups(settings: Settings) -> tuple[Array, Array]:
    """Return the ratio of selective repeat's time to erasure coding's: mean and 99.9th percentile."""
    sizes, losses = grid(settings)
    path = (sizes[:, np.newaxis], settings["bandwidth_bps"], settings["rtt_s"], losses)
    repeat, coded = (completion_time(scheme, *path) for scheme in ["sr-rto", settings["code"]])
    return repeat.mean / coded.mean, repeat.quantile(0.999) / coded.quantile(0.999)


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    sizes, losses = grid(settings)
    mean, _ = speedups(settings)
    within = (sizes[:, np.newaxis] <= 2**30) & (losses > 0.9e-6) & (losses < 1.1e-2)
    large = (sizes[:, np.newaxis] > 2**30) & (losses < 0.9e-6)
    return {
        "most": float(mean[within].max()),
        "least": float(mean[within].min()),
        "most_where_repeat_is_best": float(mean[large].max()),
    }


def draw(settings: Settings) -> Figure:
    """Draw the paper's map, once for the mean and once for the tail."""
    sizes, losses = grid(settings)
    figure, axes = panels(2, height=5.4, width=5.2)
    titles = ["mean", "99.9th percentile"]
    for panel, values, title in zip(axes, speedups(settings), titles, strict=True):
        panel.grid(visible=False)
        image = panel.imshow(values, origin="lower", aspect="auto", cmap="PuOr_r", norm=LogNorm(1 / 10, 10))
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            shade = "white" if value > 4 or value < 0.25 else "black"
            panel.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=shade)
        panel.set_xticks(range(losses.size), [f"1e{round(np.log10(loss))}" for loss in losses])
        panel.set_yticks(range(sizes.size), [bytes_text(size) for size in sizes])
        panel.set_xlabel("probability that a chunk is lost")
        panel.set_title(f"{title}: SR's time over EC's")
    axes[0].set_ylabel("message size")
    figure.colorbar(image, ax=axes, ticks=[0.2, 0.5, 1, 2, 5, 10], format="%g", shrink=0.8)
    return figure


def ratios(settings: Settings, times: Times) -> dict[tuple[float, float], Estimate]:
    """Return the ratio of selective repeat's mean to erasure coding's, by size and loss, as simulated."""
    path = (settings["bandwidth_bps"], settings["rtt_s"])
    return times.ratios("sr-rto", settings["code"], *path)


def shipped(settings: Settings, times: Times) -> Estimates:
    """Return the numbers that simulated messages of the shipped protocols give."""
    within = [
        ratio
        for (size, loss), ratio in ratios(settings, times).items()
        if size <= 2**30 and 0.9e-6 < loss < 1.1e-2
    ]
    return {"most": max(within, key=by_value), "least": min(within, key=by_value)} if within else {}


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Write the ratios of the shipped protocols below the ratios of the model."""
    sizes, losses = grid(settings)
    panel = figure.axes[0]
    for (size, loss), ratio in ratios(settings, times).items():
        rows, columns = np.flatnonzero(np.isclose(sizes, size)), np.flatnonzero(np.isclose(losses, loss))
        if rows.size and columns.size:
            shade = "white" if ratio.value > 4 or ratio.value < 0.25 else "black"
            place = (columns[0], rows[0] - 0.32)
            panel.text(
                *place,
                f"[{estimate_text(ratio.value, ratio.half, has_interval=False)}]",
                ha="center",
                va="center",
                fontsize=6,
                color=shade,
            )
    panel.set_title(panel.get_title() + "\n[shipped protocols]")
