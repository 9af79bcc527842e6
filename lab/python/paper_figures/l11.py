"""LoWAR's Fig. 11: goodput over a long path that loses packets in bursts."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import legend_below, lines, panels, places

GOODPUT = "goodput_gbps"
ERROR = "error_gbps"


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    coded = settings["code"]
    found: Numbers = {}
    for share in settings["shares_lost"]:
        fixed, mean = (f"{kind} length, {share} lost" for kind in ["fixed", "mean"])
        lengths, goodput = rows.line(fixed, coded, GOODPUT)
        found |= {
            f"fixed_to_8_{share}": float(goodput[lengths <= 8].min()),
            f"fixed_12_{share}": rows.value(fixed, coded, GOODPUT, 12),
            f"mean_8_{share}": rows.value(mean, coded, GOODPUT, 8),
            f"plain_12_{share}": rows.value(fixed, settings["plain"], GOODPUT, 12),
            f"nic_12_{share}": rows.value(f"{fixed}, in the NIC", coded, GOODPUT, 12),
        }
    return found


def errors(settings: Settings, rows: Rows) -> Numbers:
    """Return the standard errors of the numbers that are means of several runs."""
    found: Numbers = {}
    for share in settings["shares_lost"]:
        fixed, mean = (f"{kind} length, {share} lost" for kind in ["fixed", "mean"])
        found |= {
            f"fixed_12_{share}": rows.error(fixed, settings["code"], ERROR, 12),
            f"mean_8_{share}": rows.error(mean, settings["code"], ERROR, 8),
            f"plain_12_{share}": rows.error(fixed, settings["plain"], ERROR, 12),
        }
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot, for bursts of a fixed length and of a mean length, with two standard errors."""
    names = [
        f"{kind} length, {share} lost" for kind in ["fixed", "mean"] for share in settings["shares_lost"]
    ]
    figure, axes = panels(len(names), width=3.0)
    series = [settings["plain"], settings["code"], settings["adaptive"]]
    for panel, name in zip(axes, names, strict=True):
        places(panel, [f"{length:g}" for length in lines(panel, rows, name, series, GOODPUT, ERROR)])
        panel.set_ylim(0, 10)
        panel.set_title(name)
        panel.set_xlabel("length of a burst, packets")
    axes[0].set_ylabel("goodput, Gbit/s")
    legend_below(figure, axes[0], len(series))
    return figure
