"""Results that programs of the repository write as CSV files, one row for each number.

The files are in folders beside the folders of the claims. ``make -C lab figures-boxes`` writes ``boxes``:
NICs with and without LoWAR and NetRT boxes, in virtual time. ``make -C lab figures-collectives`` writes
``collectives``: collectives with NICs and endpoints, in virtual time; ``make -C lab figures-steps`` adds
``steps.csv``: training with their losses. ``make -C lab figures-optinic`` writes ``optinic``: the
Hadamard transform, the adaptive timeouts and the bytes of queue pairs; ``make -C lab rtl`` adds
``rtl.csv``: the hardware of XP. ``make -C lab figures-training`` writes ``training``: training and
inference with drops; ``make -C lab bench-train`` adds ``lossy.csv``: training over a path. ``make -C lab
bench-inference`` writes ``inference``: inference over a path. ``make -C lab figures-vm`` writes ``vm``:
RDMA devices of the kernel in a virtual machine. ``make -C lab figures-paths`` writes ``paths``: the loss
of an emulated path by the size of packets, and processor time over loopback by the size of chunks; ``make
-C lab bench-path`` writes ``alternatives.csv`` there: seconds of files.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paper_figures.verdict import ERRORS

COLUMNS = ("figure", "panel", "series", "x", "measure", "value", "conditions")


@dataclass(frozen=True)
class Row:
    """One number of a figure."""

    panel: str
    series: str
    x: float
    #: Name of the quantity. It ends in the unit of the value, unless the value is a count.
    measure: str
    value: float
    conditions: str


@dataclass(frozen=True)
class Rows:
    """All numbers of a figure, or of several ones."""

    #: The figures, for error messages.
    figure: str
    rows: tuple[Row, ...]

    def line(self, panel: str, series: str, measure: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the places and values of a series, in the order of the places."""
        place = (panel, series, measure)
        points = [(row.x, row.value) for row in self.rows if (row.panel, row.series, row.measure) == place]
        if not points:
            raise KeyError(f"{self.figure}: no row has panel, series and measure {place}")
        x, values = np.array(sorted(points)).T
        return x, values

    def value(self, panel: str, series: str, measure: str, x: float) -> float:
        """Return the number of a series at x."""
        places, values = self.line(panel, series, measure)
        at = np.flatnonzero(np.isclose(places, x))
        if at.size != 1:
            raise KeyError(f"{self.figure}: {at.size} rows of {panel}, {series}, {measure} have x = {x:g}")
        return float(values[at[0]])

    def error(self, panel: str, series: str, measure: str, x: float) -> float:
        """Return the standard error of a number of a series at x; 0 where one run shows none."""
        place = (panel, series, measure)
        found = [
            row.value for row in self.rows if (row.panel, row.series, row.measure) == place and row.x == x
        ]
        return found[0] if found else 0.0

    def intervals(self, panel: str, series: str, x: NDArray[np.float64], measure: str) -> NDArray[np.float64]:
        """Return two standard errors at each place."""
        return np.array([ERRORS * self.error(panel, series, measure, float(place)) for place in x])

    def series(self, panel: str) -> list[str]:
        """Return the names of the series of a panel, in the order of the rows."""
        return list(dict.fromkeys(row.series for row in self.rows if row.panel == panel))

    @property
    def conditions(self) -> str:
        """Return the conditions of the numbers."""
        return "; ".join(dict.fromkeys(row.conditions for row in self.rows))


def load(folder: Path, *figures: str) -> Rows:
    """Read the rows of figures from all files of a folder."""
    rows = [row for path in sorted(folder.glob("*.csv")) for name, row in _read(path) if name in figures]
    named = " and ".join(figures)
    if not rows:
        raise ValueError(f"{folder} has no rows of {named}: make figures-{folder.name} writes them")
    return Rows(named, tuple(rows))


def _read(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a file, each with the name of its figure."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        for column in COLUMNS:
            if column not in (reader.fieldnames or ()):
                raise ValueError(f"{path} has no column {column}")
        for fields in reader:
            place = f"{path}:{reader.line_num}"
            for column in COLUMNS:
                if not fields[column]:
                    raise ValueError(f"{place}: column {column} is empty")
            yield (
                fields["figure"],
                Row(
                    panel=fields["panel"],
                    series=fields["series"],
                    x=_number(fields["x"], place, "x"),
                    measure=fields["measure"],
                    value=_number(fields["value"], place, "value"),
                    conditions=fields["conditions"],
                ),
            )


def _number(text: str, place: str, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise ValueError(f"{place}: {text} in column {column} is not a finite number")
    return number
