"""NetRT's Fig. 10: flows of the WebSearch sizes between servers."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import Array, bars, legend_below, log_y, panels, places


def values(panels: list[str], rows: Rows, name: str, measure: str) -> Array:
    """Return a number for each panel."""
    # Each panel has one load, which is the value of x in its rows.
    lines = [rows.line(panel, name, measure) for panel in panels]
    return np.array([value for _, (value,) in lines])


def intervals(settings: Settings, rows: Rows, name: str, measure: str) -> Array:
    """Return two standard errors of a time for each load and buffer."""
    found = []
    for panel in settings["panels"]:
        x, _ = rows.line(panel, name, measure)
        found.append(rows.intervals(panel, name, x, measure.replace("_us", "_error_us"))[0])
    return np.array(found)


def lower(settings: Settings, rows: Rows, name: str, measure: str, panels: str = "panels") -> Array:
    """Return by how many percent times are lower than with Go-Back-N, for each load and buffer."""
    plain = values(settings[panels], rows, settings["plain"], measure)
    return 100 * (1 - values(settings[panels], rows, name, measure) / plain)


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    large, irn, pfc = settings["large_pool"], settings["irn"], settings["pfc"]
    mean, tail = (lower(settings, rows, large, f"short_{kind}_us", "all") for kind in ["mean", "p90"])
    small_mean, small_tail = (
        lower(settings, rows, settings["small_pool"], f"short_{kind}_us", "all") for kind in ["mean", "p90"]
    )
    at = settings["panels"].index(settings["lossy"])
    return {
        "short_mean_least": float(mean.min()),
        "short_mean_most": float(mean.max()),
        "short_tail_most": float(tail.max()),
        "small_pool_mean_least": float(small_mean.min()),
        "small_pool_mean_most": float(small_mean.max()),
        "small_pool_tail_most": float(small_tail.max()),
        "long_mean_most": float(lower(settings, rows, large, "long_mean_us").max()),
        "irn_short_mean": float(lower(settings, rows, irn, "short_mean_us")[at]),
        "pfc_short_tail": 1 - float(lower(settings, rows, pfc, "short_p90_us")[at]) / 100,
        "repeated_large_pool": float(values(settings["panels"], rows, large, "repeated")[at]),
        "repeated_all_kept": float(values(settings["panels"], rows, settings["all_kept"], "repeated")[at]),
        "window_short_mean": float(lower(settings, rows, settings["window"], "short_mean_us")[at]),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot with our numbers."""
    figure, axes = panels(4, width=3.4)
    shown = [
        ("(a) short flows, mean", "short_mean_us"),
        ("(b) short flows, p90", "short_p90_us"),
        ("(c) long flows, mean", "long_mean_us"),
        ("(d) long flows, p90", "long_p90_us"),
    ]
    for panel, (title, measure) in zip(axes, shown, strict=True):
        names = settings["series"]
        errors = {name: intervals(settings, rows, name, measure) for name in names}
        found = {name: values(settings["panels"], rows, name, measure) for name in names}
        bars(panel, found, intervals=errors)
        places(panel, [name.replace(", ", "\n") for name in settings["panels"]])
        log_y(panel)
        panel.set_xlabel("load towards the core, buffer of a switch")
        panel.set_title(title)
    axes[0].set_ylabel("completion time, us")
    legend_below(figure, axes[0], len(settings["series"]))
    return figure
