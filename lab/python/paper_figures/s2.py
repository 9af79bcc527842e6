"""Fig. 2: loss between two sites by the size of packets."""

from __future__ import annotations

from math import hypot

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, Array, Style, bytes_text, legend_beside, panels

PROBE = "farwrite probe"


def counts(rows: Rows, panel: str) -> tuple[Array, Array, Array, Array]:
    """Return the sizes of payloads, how many packets were sent and lost, and the known loss."""
    sizes, packets = rows.line(panel, PROBE, "packets")
    lost, known = (rows.line(panel, PROBE, measure)[1] for measure in ["lost", "known_share"])
    return sizes, packets, lost, known


def links(settings: Settings) -> list[str]:
    """Return the panels of the links, by their bit errors."""
    return [f"bit errors {text}" for text in settings["bit_errors"]]


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    distances = []
    for panel in links(settings):
        _, packets, lost, known = counts(rows, panel)
        distances.append(np.abs(lost - packets * known) / np.sqrt(packets * known * (1 - known)))
    _, packets, lost, known = counts(rows, links(settings)[-1])
    share = lost / packets
    steps = share[1:] / share[:-1]
    return {
        "least_step": float(steps.min()),
        "ratio": float(share[-1] / share[0]),
        "known_ratio": float(known[-1] / known[0]),
        "largest_distance": float(np.max(distances)),
    }


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard error of the ratio of the largest to the smallest size."""
    _, packets, lost, _ = counts(rows, links(settings)[-1])
    share = lost / packets
    relative = np.sqrt((1 - share) / lost)
    return {"ratio": float(share[-1] / share[0] * hypot(relative[0], relative[-1]))}


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw measured and known losses over the size, and the ranges that the paper states."""
    figure, [axes] = panels(1, height=3.6, width=6.4)
    for number, (panel, colour) in enumerate(zip(links(settings), SPLITS, strict=False)):
        sizes, packets, lost, known = counts(rows, panel)
        share = lost / packets
        two_errors = 2 * np.sqrt(share * (1 - share) / packets)
        look: Style = {"color": colour, "marker": "osD"[number], "linestyle": "none", "capsize": 3}
        axes.errorbar(sizes, share, yerr=two_errors, label=f"probe, {panel}", **look)
        axes.plot(sizes, known, color=colour, linewidth=1, label=f"known, {panel}")
    for size, low, high in settings["paper_ranges"]:
        first = size == settings["paper_ranges"][0][0]
        label = "paper: range of its trials" if first else None
        axes.plot([0.9 * size] * 2, [low, high], color="black", linewidth=5, alpha=0.3, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [bytes_text(size) for size in sizes])
    axes.set_xlabel("payload of a packet")
    axes.set_ylabel("share of packets lost")
    legend_beside(axes)
    return figure
