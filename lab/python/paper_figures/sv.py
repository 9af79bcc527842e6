"""A reliable connection of the kernel beside selective repeat and an erasure code over an unreliable one."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.shares import draw_shares


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the shares of its own rate that each way keeps at 1e-2, and those of schemes over that of RC."""
    panel = settings["panel"]

    def kept(name: str) -> float:
        series = settings[name]
        return rows.value(panel, series, "share", 1e-2) / rows.value(panel, series, "share", 0)

    shares = {name: kept(name) for name in ("plain", "repeat", "code")}
    gains = {f"{name}_gain": shares[name] / shares["plain"] for name in ("repeat", "code")}
    return {f"{name}_kept": share for name, share in shares.items()} | gains


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw shares of the rate of the reliable connection without losses."""
    return draw_shares(rows, settings["panel"], [settings[name] for name in ("plain", "repeat", "code")])
