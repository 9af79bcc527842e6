"""Rates of an emulated machine, as shares of one rate without losses."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.rows import Rows
from paper_figures.style import REPAIRS, legend_below, loss_places, panels


def draw_shares(rows: Rows, panel: str, names: list[str]) -> Figure:
    """Draw the best run of each series by loss, beside one series and beside itself.

    Bars reach down to the lowest run.
    """
    figure, (beside, own) = panels(2)
    for number, name in enumerate(names):
        losses, best = rows.line(panel, name, "share")
        _, least = rows.line(panel, name, "least")
        # Beside each other, so that bars do not cover each other.
        x = [place + 0.06 * (number - (len(names) - 1) / 2) for place in range(len(losses))]
        for axes, whole in ((beside, 1.0), (own, best[0])):
            below = [(best - least) / whole, 0 * best]
            axes.errorbar(
                x, best / whole, yerr=below, label=name, linewidth=1.4, elinewidth=0.8, **REPAIRS[name]
            )
            loss_places(axes, losses)
            axes.set_ylim(0, 1.15)
    beside.set_title(f"over “{names[0]}” at loss 0")
    own.set_title("over the same series at loss 0")
    beside.set_ylabel("rate of the best run (line: to the lowest)")
    legend_below(figure, beside, 4)
    return figure
