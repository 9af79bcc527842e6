"""NetRT's Fig. 6: completion times on a chain that loses packets."""

from __future__ import annotations

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import bars, legend_below, log_y, loss_places, panels

#: What the panels with losses both ways add to the size of the writes.
BOTH = ", losses both ways"
#: What the panels of NICs with IRN's timeout add.
SHORT = ", ACK timeout of 320 us"


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers that are compared with the paper's numbers."""

    def most_lower(boxes: str, ways: str = "") -> float:
        lower = []
        for size in settings["sizes"]:
            (_, plain), (_, repaired) = (
                rows.line(size + ways, name, "mean_us") for name in [settings["plain"], boxes]
            )
            lower.append(float(100 * (1 - repaired / plain).max()))
        return max(lower)

    def growth(size: str, name: str) -> float:
        _, means = rows.line(size, name, "mean_us")
        return float(means[-1] / means[0])

    def step(size: str, name: str) -> float:
        """Return the geometric mean of the growths from each loss to the next."""
        _, means = rows.line(size, name, "mean_us")
        return float(growth(size, name) ** (1 / (len(means) - 1)))

    small, middle, large = settings["sizes"]
    plain, one, two = settings["plain"], settings["one"], settings["two"]
    return {
        "lower_1_bdp": most_lower(one),
        "lower_2_bdp": most_lower(two),
        "plain_growth_1_mb": growth(large, plain),
        "plain_step_1_mb": step(large, plain),
        "growth_10_kb": growth(small, one),
        "growth_100_kb": growth(middle, one),
        "growth_1_mb": growth(large, one),
        "growth_1_mb_2_bdp": growth(large, two),
        "repeated_1_mb_5e-2": rows.value(large, two, "repeated", 0.05),
        "short_lower_1_bdp": most_lower(one, SHORT),
        "short_lower_2_bdp": most_lower(two, SHORT),
        "short_plain_growth_1_mb": growth(large + SHORT, plain),
        "short_plain_step_1_mb": step(large + SHORT, plain),
        "both_lower_1_bdp": most_lower(one, BOTH),
        "both_lower_2_bdp": most_lower(two, BOTH),
        "both_growth_10_kb": growth(small + BOTH, one),
        "both_growth_100_kb": growth(middle + BOTH, one),
        "both_growth_1_mb": growth(large + BOTH, two),
    }


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw the paper's plot with our numbers, also with IRN's timeout, and with losses both ways."""
    figure, axes = panels(3, rows=3)
    names = [settings["plain"], settings["one"], settings["two"]]
    shown = [size + ways for ways in ("", SHORT, BOTH) for size in settings["sizes"]]
    for panel, size in zip(axes, shown, strict=True):
        means, tails = (
            {name: rows.line(size, name, measure)[1] for name in names} for measure in ["mean_us", "p99_us"]
        )
        losses = rows.line(size, names[0], "mean_us")[0]
        errors = {name: rows.intervals(size, name, losses, "mean_error_us") for name in names}
        bars(panel, means, tails, errors)
        loss_places(panel, losses)
        log_y(panel)
        panel.set_title(f"writes of {size}")
    for panel in axes[::3]:
        panel.set_ylabel("mean time, us (marks: p99)")
    legend_below(figure, axes[0], len(names))
    return figure
