"""Fig. 10: one row and one column of Fig. 9 in detail."""

from __future__ import annotations

import numpy as np
from farwrite.model import CompletionTime, completion_time
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.shipped import Estimate, Estimates, Times, by_value
from paper_figures.style import SCHEMES, SPLITS, Array, curve, hollow, panels, size_axis


def time(settings: Settings, scheme: str, size: float | Array, loss: float | Array) -> CompletionTime:
    """Return the completion times of one curve."""
    return completion_time(scheme, size, settings["bandwidth_bps"], settings["rtt_s"], loss)


def rises(settings: Settings, scheme: str) -> float:
    """Return the least loss at which the mean is a tenth larger than without losses."""
    losses = np.geomspace(1e-6, 0.3, 2001)
    times = time(settings, scheme, settings["message_bytes"], losses).mean
    still = time(settings, scheme, settings["message_bytes"], 0.0).mean
    return float(losses[times > 1.1 * still][0])


def sampled_tails(settings: Settings) -> Array:
    """Return SR's p99.9 over EC's in sets of as many samples as in the paper, at a loss of 1e-2."""
    sets, draws = settings["sets"], settings["draws"]
    repeat, coded = (
        time(settings, scheme, settings["sampled_bytes"], 1e-2)
        .sample(sets * draws, settings["seed"])
        .reshape(sets, draws)
        for scheme in ["sr-rto", settings["code"]]
    )
    tails = [np.quantile(of, 0.999, axis=-1, method="inverted_cdf") for of in (repeat, coded)]
    found: Array = tails[0] / tails[1]
    return found


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    low, high = settings["size_powers"]
    sizes = 2.0 ** np.arange(low, high + 0.01, 0.25)[:, np.newaxis]
    losses = np.append(10.0 ** np.arange(-6, -2, 0.05), 1e-2)
    repeat, nack, coded = (
        time(settings, scheme, sizes, losses) for scheme in ["sr-rto", "sr-nack", settings["code"]]
    )
    tails = repeat.quantile(0.999), nack.quantile(0.999), coded.quantile(0.999)
    sampled = sampled_tails(settings)
    return {
        "mean_most": float((repeat.mean / coded.mean).max()),
        "tail_most": float((tails[0] / tails[2]).max()),
        "tail_sampled": float(np.median(sampled)),
        "tail_sampled_most": float(sampled.max()),
        "nack_gain_mean": float((repeat.mean / nack.mean).max()),
        "nack_gain_tail": float((tails[0] / tails[1]).max()),
        "xor_rises": rises(settings, "ec-xor:32,8"),
        "mds_rises": rises(settings, "ec-mds:32,8"),
    }


def draw(settings: Settings) -> Figure:
    """Draw the paper's plot with our numbers."""
    figure, (a, b, c, d) = panels(4)
    low, high = settings["size_powers"]
    sizes = 2.0 ** np.arange(low, high + 0.01, 0.25)
    losses = np.geomspace(1e-6, 1e-1, 101)
    message = settings["message_bytes"]
    lossless = float(time(settings, "sr-rto", message, 0.0).lossless_s)
    for scheme, style in SCHEMES.items():
        by_size = time(settings, scheme, sizes, settings["loss_chunk"])
        curve(a, sizes, by_size.mean / by_size.lossless_s, style)
        by_loss = time(settings, scheme, message, losses)
        curve(b, losses, by_loss.mean / lossless, style)
        curve(c, losses, by_loss.quantile(0.999) / lossless, style)
    for split, colour in zip(settings["splits"], SPLITS, strict=False):
        style = {
            "color": colour,
            "marker": "osD^v"[SPLITS.index(colour)],
            "label": f"MDS ({split.split(':')[1]})",
        }
        curve(d, losses, time(settings, split, message, losses).mean / lossless, style)
    a.set_title("(a) mean, 1e-5 of the chunks lost")
    a.set_ylabel("time, over the lossless")
    size_axis(a, low, high)
    for panel, title in [
        (b, "(b) mean, 128 MiB"),
        (c, "(c) p99.9, 128 MiB"),
        (d, "(d) mean, 128 MiB, splits"),
    ]:
        panel.set_title(title)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        panel.minorticks_off()
        panel.set_xlabel("probability that a chunk is lost")
    a.legend()
    d.legend()
    return figure


def shipped(settings: Settings, times: Times) -> Estimates:
    """Return the numbers that simulated messages give. Only short messages have quantiles."""
    path = (settings["bandwidth_bps"], settings["rtt_s"])
    found = {
        "mean_most": times.ratios("sr-rto", settings["code"], *path),
        "tail_most": times.ratios("sr-rto", settings["code"], *path, kind="p999_s"),
        "nack_gain_mean": times.ratios("sr-rto", "sr-nack", *path),
        "nack_gain_tail": times.ratios("sr-rto", "sr-nack", *path, kind="p999_s"),
    }
    # The paper does not consider losses above 1e-2 for these numbers.
    most = {name: [of for (_, loss), of in ratios.items() if loss < 1.1e-2] for name, ratios in found.items()}
    return {name: max(ratios, key=by_value) for name, ratios in most.items() if ratios}


def points(figure: Figure, settings: Settings, times: Times) -> None:
    """Add the means of the shipped protocols to the first two panels, as hollow markers."""
    by_size, by_loss = figure.axes[:2]
    path = (settings["bandwidth_bps"], settings["rtt_s"])
    for scheme, style in SCHEMES.items():
        look = style | {"linestyle": "none", "markersize": 7, "label": None}
        of_sizes: dict[float, Estimate] = {}
        of_losses: dict[float, Estimate] = {}
        for cell in times.of(scheme, *path):
            lossless = float(time(settings, "sr-rto", cell.message_bytes, 0.0).lossless_s)
            if np.isclose(cell.loss_chunk, settings["loss_chunk"]):
                of_sizes[cell.message_bytes] = cell.estimate().scaled(1 / lossless)
            if np.isclose(cell.message_bytes, settings["message_bytes"]):
                of_losses[cell.loss_chunk] = cell.estimate().scaled(1 / lossless)
        hollow(by_size, of_sizes, **look)
        hollow(by_loss, of_losses, **look)
    for panel in (by_size, by_loss):
        panel.set_title(panel.get_title() + "\nhollow: shipped protocols")
