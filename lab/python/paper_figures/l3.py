"""LoWAR's Fig. 3a: goodput of Go-Back-N in a local network and over a long path."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, legend_below, loss_places, panels

GOODPUT = "goodput_gbps"
MARKERS = "osD"
#: The local network with an ACK timeout near its round trip.
SHORT = "LAN, short timeout"


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""
    one, many, most = settings["connections"]

    def goodput(panel: str, series: str, loss: float) -> float:
        return rows.value(panel, series, GOODPUT, loss)

    def kept(panel: str, loss: float) -> float:
        return goodput(panel, one, loss) / goodput(panel, one, 0)

    return {
        "wan_lossless": goodput("WAN", one, 0),
        "wan_1e-5": goodput("WAN", one, 1e-5),
        "wan_2e-3": goodput("WAN", one, 2e-3),
        "lan_kept_5e-3": kept("LAN", 5e-3),
        "lan_kept_2e-2": kept("LAN", 2e-2),
        "lan_short_kept_5e-3": kept(SHORT, 5e-3),
        "lan_short_kept_2e-2": kept(SHORT, 2e-2),
        "most_over_many_1e-4": goodput("WAN", most, 1e-4) / goodput("WAN", many, 1e-4),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot with our numbers."""
    figure, axes = panels(3)
    for panel, name in zip(axes, ["LAN", "WAN", SHORT], strict=True):
        for number, series in enumerate(settings["connections"]):
            losses, values = rows.line(name, series, GOODPUT)
            panel.errorbar(
                range(len(losses)),
                values,
                yerr=rows.intervals(name, series, losses, "error_gbps"),
                elinewidth=0.8,
                label=series,
                color=SPLITS[number],
                marker=MARKERS[number],
                linewidth=1.4,
            )
        loss_places(panel, losses)
        panel.tick_params(axis="x", labelsize=7)
        panel.set_ylim(0, 10)
        panel.set_title(name)
    axes[0].set_ylabel("goodput, Gbit/s")
    legend_below(figure, axes[0], 3)
    return figure
