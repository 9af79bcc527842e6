"""LoWAR and NetRT between devices of the kernel: what reliable connections carry over a path with losses."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.shares import draw_shares


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return rates over those without boxes."""
    plain, panel = settings["plain"], settings["panel"]

    def ratio(series: str, loss: float) -> float:
        return rows.value(panel, series, "share", loss) / rows.value(panel, plain, "share", loss)

    return {
        f"{name}_{text}": ratio(settings[name], loss)
        for name in ("adaptive", "netrt")
        for text, loss in (("lossless", 0), ("5e-3", 5e-3), ("2e-2", 2e-2))
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw shares of the rate without boxes and losses."""
    names = [settings[name] for name in ("plain", "narrow", "adaptive", "netrt")]
    return draw_shares(rows, settings["panel"], names)
