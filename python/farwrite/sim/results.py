"""Results of runs, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from farwrite.model.table import Table

#: A row of each column of `Results.runs`, and the columns of the flows.
Ran: TypeAlias = tuple[dict[str, Any], dict[str, list[Any]]]


@dataclass(frozen=True)
class Results:
    """What came out of runs of a plan."""

    #: A row for each run: its settings and seed, and what happened in the network. The columns are those
    #: of ``runs.csv`` that are counts, with ``last_done_ns``; ``trace`` is a hash of the whole course.
    runs: Table
    #: A row for each flow of each run, with the columns of ``flows.csv``. What a flow lacks is NaN.
    flows: Table
    #: What was left out of input files, and transports that do not fit the switches.
    notes: Sequence[str]

    @classmethod
    def of(cls, ran: Sequence[Ran], text: str, notes: Sequence[str]) -> Results:
        """Put rows together; each run knows its number."""
        settings = {"plan": text, "farwrite": version("farwrite")}
        runs = {name: _column([row[name] for row, _ in ran]) for name in ran[0][0]}
        flows = {
            name: _column([value for _, columns in ran for value in columns[name]]) for name in ran[0][1]
        }
        return cls(Table(runs, settings), Table(flows, settings), notes)


def _column(values: list[Any]) -> NDArray[Any]:
    if any(value is None for value in values):
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return np.array(values)
