"""Rows of results in the form that `make -C lab figures` reads."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from paper_figures.rows import COLUMNS


@dataclass
class Table:
    """The rows of one figure."""

    figure: str
    conditions: str
    _rows: list[tuple[str | float, ...]] = field(default_factory=list)

    def add(self, panel: str, series: str, x: float, measure: str, value: float) -> None:
        """Add a row with one number, and print the number on standard error."""
        print(
            f"{self.figure}: {panel}, {series}, {x:g}: {measure} = {value:.4f}", file=sys.stderr, flush=True
        )
        self._rows.append((self.figure, panel, series, f"{x:g}", measure, f"{value:.6f}", self.conditions))

    def write(self, path: Path | None) -> None:
        """Write all rows to a file, or to standard output if `path` is None."""
        if path is None:
            self._write(sys.stdout)
            return
        with path.open("w", newline="", encoding="utf-8") as file:
            self._write(file)

    def _write(self, file: TextIO) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(self._rows)
