"""Results of runs, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from farwrite.model.table import Table
from farwrite.sim.sizes import sizes_of

#: A row of each column of `Results.runs`, and the columns of the flows and of the queues.
Ran: TypeAlias = tuple[dict[str, Any], dict[str, list[Any]], dict[str, list[Any]]]


@dataclass(frozen=True)
class Results:
    """What came out of runs of a plan."""

    #: A row for each run: its settings and seed, and what happened in the network. The columns are those
    #: of ``runs.csv`` that are counts, with ``last_done_ns``; ``trace`` is a hash of the whole course.
    runs: Table
    #: A row for each flow of each run, with the columns of ``flows.csv``. Missing values are NaN.
    flows: Table
    #: What waits at the ports of switches over time, up to 2048 rows for each run: ``run``, ``time_ns``,
    #: bytes at the deepest port (``deepest_bytes``) and at all ports (``total_bytes``). Where a row stands
    #: for several moments, it has the most of each.
    queues: Table
    #: A row for each setting and size class, with the columns of ``sizes.csv``: means and 99th percentiles,
    #: averaged over seeds, and the half widths of their 95% confidence intervals (``..._ci95``; NaN with one
    #: seed). ``up_to_bytes`` is infinite for flows of all sizes.
    sizes: Table
    #: What was left out of input files, and transports that do not fit the switches.
    notes: Sequence[str]

    @classmethod
    def of(cls, ran: Sequence[Ran], text: str, notes: Sequence[str]) -> Results:
        """Put rows together; each run knows its number."""
        settings = {"plan": text, "farwrite": version("farwrite")}
        runs = {name: column([row[name] for row, _, _ in ran]) for name in ran[0][0]}
        flows = _joined([columns for _, columns, _ in ran])
        queues = _joined([columns for _, _, columns in ran])
        sizes = {name: column(values) for name, values in sizes_of(runs, flows).items()}
        return cls(
            Table(runs, settings),
            Table(flows, settings),
            Table(queues, settings),
            Table(sizes, settings),
            notes,
        )


def _joined(parts: Sequence[dict[str, list[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: column([value for part in parts for value in part[name]]) for name in parts[0]}


def column(values: list[Any]) -> NDArray[Any]:
    """Return values as an array, with NaN for each None."""
    if any(value is None for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return np.array(values)
