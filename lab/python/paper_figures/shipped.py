"""Simulated times of the shipped protocols, which ``make -C lab figures-protocol`` writes.

The program ``agreement`` (``lab/results/agreement.md`` of the repository) sends messages between two
endpoints in virtual time, or runs all-reduces among the endpoints of a ring. Its CSV files are in a folder
beside the folders of the claims. Its rates are chosen so that the payload has the bandwidth of the paper.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from math import hypot, isclose, isnan, nan
from pathlib import Path
from typing import TypeAlias

from paper_figures.verdict import ERRORS

#: Name of the folder of the CSV files.
FOLDER = "protocol"
#: The columns with times.
TIMES = (
    "mean_s", "error_s", "p99_s", "p999_s", "p999_low_s", "p999_high_s", "model_s", "model_p999_s",
)  # fmt: skip
#: Bytes of headers around the payload of a packet: IPv4, UDP, BTH, RETH, immediate, ICRC.
HEADER_BYTES = 64


@dataclass(frozen=True)
class Estimate:
    """A number, and how far its interval of 95% reaches below and above it."""

    value: float
    below: float
    above: float

    @property
    def half(self) -> float:
        """The longer half of the interval; NaN if it is not known."""
        return max(self.below, self.above)

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit."""
        return Estimate(factor * self.value, factor * self.below, factor * self.above)

    def over(self, other: Estimate) -> Estimate:
        """Return the ratio to an independent estimate."""
        ratio = self.value / other.value
        below = hypot(self.below / self.value, other.above / other.value)
        above = hypot(self.above / self.value, other.below / other.value)
        return Estimate(ratio, ratio * below, ratio * above)


# Numbers of the shipped protocols, by name.
Estimates: TypeAlias = dict[str, Estimate]


def by_value(estimate: Estimate) -> float:
    """Return what sorts estimates."""
    return estimate.value


@dataclass(frozen=True)
class Cell:
    """Times of messages of one size and scheme over one path, or of all-reduces.

    Quantiles and what belongs to them are NaN if there are too few messages.
    """

    scheme: str
    #: Size of a message, or of the buffer of a site.
    message_bytes: float
    #: The number of sites of the ring; 0 for messages between two endpoints.
    sites: int
    #: The rate of the payload.
    bandwidth_bps: float
    rtt_s: float
    loss_chunk: float
    messages: int
    mean_s: float
    #: The standard error of the mean.
    error_s: float
    p99_s: float
    p999_s: float
    #: The interval of 95% of the 99.9th percentile.
    p999_low_s: float
    p999_high_s: float
    #: What the model expects with the waits of the protocol.
    model_s: float
    model_p999_s: float

    def estimate(self, kind: str = "mean_s") -> Estimate:
        """Return the mean or, for ``p999_s``, the 99.9th percentile. Other kinds have no interval."""
        if kind == "mean_s":
            return Estimate(self.mean_s, ERRORS * self.error_s, ERRORS * self.error_s)
        if kind == "p999_s":
            below, above = self.p999_s - self.p999_low_s, self.p999_high_s - self.p999_s
            return Estimate(self.p999_s, below, above)
        return Estimate(getattr(self, kind), nan, nan)


@dataclass(frozen=True)
class Times:
    """All simulated cells, of messages or of all-reduces."""

    cells: tuple[Cell, ...]
    #: What a cell has: messages or all-reduces.
    kind: str = "messages"

    def find(
        self,
        scheme: str,
        message_bytes: float,
        bandwidth_bps: float,
        rtt_s: float,
        loss_chunk: float,
        sites: int = 0,
    ) -> Cell | None:
        """Return the cell with these properties; None if it was not simulated."""
        place = (message_bytes, bandwidth_bps, rtt_s, loss_chunk, sites)
        for cell in self.cells:
            its = (cell.message_bytes, cell.bandwidth_bps, cell.rtt_s, cell.loss_chunk, cell.sites)
            if cell.scheme == scheme and all(map(_same, its, place)):
                return cell
        return None

    def of(self, scheme: str, bandwidth_bps: float, rtt_s: float, sites: int = 0) -> list[Cell]:
        """Return the cells of a scheme over one path, at all sizes and losses."""
        return [
            cell
            for cell in self.cells
            if cell.scheme == scheme
            and _same(cell.bandwidth_bps, bandwidth_bps)
            and _same(cell.rtt_s, rtt_s)
            and cell.sites == sites
        ]

    def ratios(
        self, slow: str, fast: str, bandwidth_bps: float, rtt_s: float, kind: str = "mean_s", sites: int = 0
    ) -> dict[tuple[float, float], Estimate]:
        """Return the ratio of one scheme's times to another's, by size and loss, if both were simulated."""
        found = {}
        for cell in self.of(slow, bandwidth_bps, rtt_s, sites):
            place = (cell.message_bytes, cell.loss_chunk)
            other = self.find(fast, cell.message_bytes, bandwidth_bps, rtt_s, cell.loss_chunk, sites)
            if other and not isnan(getattr(cell, kind) / getattr(other, kind)):
                found[place] = cell.estimate(kind).over(other.estimate(kind))
        return found

    @property
    def messages(self) -> str:
        """The numbers of messages or all-reduces of a cell."""
        counts = sorted({cell.messages for cell in self.cells})
        return f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])


def load(folder: Path, *, rings: bool = False) -> Times:
    """Read the messages, or the all-reduces of rings, of all files of a folder, which need not exist."""
    cells = (cell for path in sorted(folder.glob("*.csv")) for cell in _read(path))
    kind = "all-reduces" if rings else "messages"
    return Times(tuple(cell for cell in cells if (cell.sites > 0) == rings), kind)


def _read(path: Path) -> list[Cell]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Cell(
            scheme=row["scheme"],
            message_bytes=float(row["bytes"]),
            sites=int(row.get("sites") or 0),
            bandwidth_bps=float(row["rate_bps"]) * int(row["mtu"]) / (int(row["mtu"]) + HEADER_BYTES),
            rtt_s=float(row["rtt_s"]),
            loss_chunk=float(row["loss_packet"]),
            messages=int(row["samples"]),
            **{name: float(row.get(name) or nan) for name in TIMES},
        )
        for row in rows
    ]


def _same(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-9)
