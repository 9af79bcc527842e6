"""Results of runs, as tables of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from farwrite.model.table import Table
from farwrite.sim.sizes import sizes_of, spreads_of

#: The results of one run: its row of `Results.runs`, its columns of `Results.flows` and of `Results.queues`.
Ran: TypeAlias = tuple[dict[str, Any], dict[str, list[Any]], dict[str, list[Any]]]


@dataclass(frozen=True)
class Results:
    """The results of runs of a plan."""

    #: A row for each run: its settings, its seed, its completion times and slowdowns, and counts of what
    #: happened in the network, as in ``runs.csv``. NaN if no flow is done. In place of times in microseconds
    #: are ``last_done_ns`` and ``pfc_stopped_ns``. ``trace`` is a hash of all events of the run.
    runs: Table
    #: A row for each flow of each run, with the columns of ``flows.csv``. Missing values are NaN.
    flows: Table
    #: Bytes in the queues of switch ports over time, up to 2048 rows for each run: ``run``, ``time_ns``,
    #: bytes in the longest queue (``deepest_bytes``) and in all queues (``total_bytes``). If a row stands for
    #: an interval of time, it has the largest value of each column in this interval.
    queues: Table
    #: A row for each setting and size class, with the columns of ``sizes.csv``: means and 99th percentiles,
    #: averaged over seeds, and the half widths of their 95% confidence intervals (``..._ci95``; NaN if there
    #: is one seed). ``up_to_bytes`` is infinite in the row for flows of all sizes.
    sizes: Table
    #: Warnings: which parts of input files were left out, and which transports do not suit the switches.
    notes: Sequence[str]

    @classmethod
    def of(cls, ran: Sequence[Ran], text: str, notes: Sequence[str]) -> Results:
        """Join the results of runs. Each row has the number of its run."""
        settings = {"plan": text, "farwrite": version("farwrite")}
        runs = {name: column([row[name] for row, _, _ in ran]) for name in ran[0][0]}
        flows = _joined([columns for _, columns, _ in ran])
        runs |= spreads_of(runs, flows)
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
