"""Completion times and slowdowns by message size, with confidence intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The columns that identify a setting. Runs of one setting differ only in their seeds.
SETTING = ("topology", "workload", "switch", "transport", "loss")
#: Upper ends of size classes, in bytes; the last class has all larger messages.
CLASSES = (*(10.0**power for power in range(3, 9)), np.inf)
#: Quantiles 0.975 of Student's t distribution by degrees of freedom. `farwrite sim` uses the same values.
#: Between two entries, the entry with fewer degrees of freedom applies.
STUDENT_T = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    12: 2.179,
    15: 2.131,
    19: 2.093,
    24: 2.064,
    29: 2.045,
    39: 2.023,
    59: 2.001,
    119: 1.980,
}

_Columns = Mapping[str, NDArray[Any]]


def runs_by_setting(runs: _Columns) -> dict[tuple[str, ...], NDArray[Any]]:
    """Return the indices of the runs of each setting, in the order of the plan."""
    keys = list(zip(*(runs[name].astype(str).tolist() for name in SETTING), strict=True))
    return {
        key: np.array([place for place, other in enumerate(keys) if other == key])
        for key in dict.fromkeys(keys)
    }


def sizes_of(runs: _Columns, flows: _Columns) -> dict[str, list[Any]]:
    """Return the columns of ``Results.sizes``."""
    rows: list[dict[str, Any]] = []
    for places in runs_by_setting(runs).values():
        setting = {name: runs[name][places[0]] for name in SETTING} | {"seeds": places.size}
        of_runs = [_done(flows, number) for number in runs["run"][places]]
        for above, up_to in _bounds():
            of_class = [_between(flows, above, up_to) for flows in of_runs]
            of_class = [chosen for chosen in of_class if chosen["bytes"].size]
            # A class without a finished flow has no row.
            if of_class:
                rows.append(setting | {"up_to_bytes": up_to} | _estimates(of_class))
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else COLUMNS)}


def spreads_of(runs: _Columns, flows: _Columns) -> dict[str, NDArray[Any]]:
    """Return the columns of ``Results.runs`` for completion times and slowdowns."""
    of_runs = [_done(flows, number) for number in runs["run"]]
    kinds: dict[str, Callable[[NDArray[Any]], float]] = {
        "mean": lambda values: float(values.mean()),
        "p50": lambda values: percentile(values, 50),
        "p99": lambda values: percentile(values, 99),
        "max": lambda values: float(values.max()),
    }
    return {
        f"{name}_{kind}{unit}": np.array(
            [of_kind(done[name]) if done[name].size else np.nan for done in of_runs]
        )
        for name, unit in (("fct", "_us"), ("slowdown", ""))
        for kind, of_kind in kinds.items()
    }


#: The columns of `Results.sizes`, also if it has no rows.
COLUMNS = (
    *SETTING,
    "seeds",
    "up_to_bytes",
    "flows",
    *(
        f"{value}_{kind}{end}"
        for value, unit in (("fct", "_us"), ("slowdown", ""))
        for kind in (f"mean{unit}", f"p99{unit}")
        for end in ("", "_ci95")
    ),
)


def _bounds() -> Iterator[tuple[float, float]]:
    """Yield the lower (exclusive) and the upper end of each class. The last class has all sizes."""
    yield from zip((0.0, *CLASSES), CLASSES, strict=False)
    yield 0.0, np.inf


def _done(flows: _Columns, run: int) -> dict[str, NDArray[Any]]:
    """Return the sizes, times in microseconds and slowdowns of the measured flows of a run that ended."""
    chosen = (flows["run"] == run) & flows["measured"] & ~np.isnan(flows["fct_ns"])
    return {
        "bytes": flows["bytes"][chosen],
        "fct": flows["fct_ns"][chosen] / 1e3,
        "slowdown": flows["slowdown"][chosen],
    }


def _between(flows: _Columns, above: float, up_to: float) -> dict[str, NDArray[Any]]:
    chosen = (flows["bytes"] > above) & (flows["bytes"] <= up_to)
    return {name: values[chosen] for name, values in flows.items()}


def _estimates(of_seeds: Sequence[_Columns]) -> dict[str, Any]:
    found: dict[str, Any] = {"flows": sum(flows["bytes"].size for flows in of_seeds)}
    for name, unit in (("fct", "_us"), ("slowdown", "")):
        means = [float(flows[name].mean()) for flows in of_seeds]
        tails = [percentile(flows[name], 99) for flows in of_seeds]
        for kind, values in (("mean", means), ("p99", tails)):
            column = f"{name}_{kind}{unit}"
            found[column], found[f"{column}_ci95"] = interval(values)
    return found


def percentile(values: NDArray[Any], percent: float) -> float:
    """Return the least value that at least `percent` percent of the values do not exceed."""
    return float(np.percentile(values, percent, method="inverted_cdf"))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values and the half width of its 95% confidence interval.

    With a single value, the half width is NaN.
    """
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    freedom = len(values) - 1
    student_t = next(t for least, t in reversed(STUDENT_T.items()) if least <= freedom)
    return float(np.mean(values)), student_t * float(np.std(values, ddof=1)) / len(values) ** 0.5
