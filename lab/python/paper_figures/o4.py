"""OptiNIC's Fig. 4: throughput, time to the first token and accuracy of inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.rows import Rows
from paper_figures.style import SPLITS, Array, bars, legend_below, panels, places


def numbers(settings: Settings, rows: Rows) -> Numbers:
    """Return the numbers to compare: how many times each series is better than the base.

    Quantiles are those of the times of all seeds together. Other numbers are means over the seeds.
    """
    base, loss = settings["base"], settings["loss"]
    split, seeds = settings["main"], settings["seeds"]
    base_times = _times(rows, split, base, loss, seeds)
    found: Numbers = {}
    for short, series in settings["series"].items():
        times = _times(rows, split, series, loss, seeds)
        found[f"{short}_first_p99"] = float(np.quantile(base_times, 0.99) / np.quantile(times, 0.99))
        found[f"{short}_first_mean"] = float(base_times.mean() / times.mean())
        found[f"{short}_tokens"] = _over(rows, split, series, base, "tokens_s", loss, seeds)
    for short in settings["inexact"]:
        for measure in ("first_p99", "tokens"):
            found[f"{short}_over_exact_{measure}"] = found[f"{short}_{measure}"] / found[f"exact_{measure}"]
        series = settings["series"][short]
        found[f"{short}_accuracy"] = _mean(rows, split, series, "accuracy_percent", loss, seeds) - _mean(
            rows, split, base, "accuracy_percent", loss, seeds
        )
        found[f"{short}_missing"] = _mean(rows, split, series, "missing_percent", loss, seeds)
    for short, (panel, series) in settings["others"].items():
        found[f"{short}_tokens"] = _over(rows, panel, series, base, "tokens_s", loss, [1])
        found[f"{short}_accuracy"] = _mean(rows, panel, series, "accuracy_percent", loss, [1]) - _mean(
            rows, panel, base, "accuracy_percent", loss, [1]
        )
    return found


def draw(settings: Settings, rows: Rows) -> Figure:
    """Draw shares of requests over the time to their first token, and tokens each second of each way."""
    figure, [left, right] = panels(2, width=4.4)
    names = [settings["base"], *settings["series"].values()]
    for number, series in enumerate(names):
        times = np.sort(_times(rows, settings["main"], series, settings["loss"], settings["seeds"]))
        shares = 100 * np.arange(1, len(times) + 1) / len(times)
        left.step(times, shares, where="post", label=series, color=SPLITS[number], **_line(number))
    left.set_xlabel("time to the first token, ms")
    left.set_ylabel("requests, %")
    left.set_title(f"{settings['main']}, {settings['loss']:g}% loss")
    heights = {series: _tokens(rows, settings, series) for series in names}
    bars(right, heights)
    places(right, [panel.replace(", ", "\n") for panel in settings["ways"]])
    right.set_ylabel("tokens each second")
    right.set_title(f"{settings['loss']:g}% loss, seed 1")
    legend_below(figure, left, len(names))
    return figure


def _line(number: int) -> dict[str, Any]:
    return {"linewidth": 1.4, "linestyle": ["-", "--", "-.", ":"][number % 4]}


def _tokens(rows: Rows, settings: Settings, series: str) -> Array:
    """Return tokens per second of each way; an empty list if a series is not measured."""
    found = []
    for panel in settings["ways"]:
        has = series in rows.series(f"{panel}, seed 1")
        found.append(rows.value(f"{panel}, seed 1", series, "tokens_s", settings["loss"]) if has else np.nan)
    return np.array(found)


def _times(rows: Rows, split: str, series: str, loss: float, seeds: Sequence[int]) -> Array:
    """Return the times to the first token of all requests."""
    return np.concatenate(
        [rows.line(f"{split}, seed {seed}, loss {loss:g}%", series, "first_ms")[1] for seed in seeds]
    )


def _mean(rows: Rows, split: str, series: str, measure: str, loss: float, seeds: Sequence[int]) -> float:
    return float(np.mean([rows.value(f"{split}, seed {seed}", series, measure, loss) for seed in seeds]))


def _over(
    rows: Rows, split: str, series: str, base: str, measure: str, loss: float, seeds: Sequence[int]
) -> float:
    return _mean(rows, split, series, measure, loss, seeds) / _mean(rows, split, base, measure, loss, seeds)
