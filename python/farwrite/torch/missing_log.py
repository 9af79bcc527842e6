"""Logs of the contributions that bounded operations lacked.

A run that replays these logs has the results of the logged run, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from farwrite import _native
from farwrite.torch.options import Bounded, Options
from farwrite.torch.rendezvous import Place

#: Ranges of bytes of a result: start, end, and the ranks whose contributions the range lacks.
Missing = Sequence[tuple[int, int, Sequence[int]]]


class MissingLogError(RuntimeError):
    """A log cannot be written, or does not fit this run. The message names the file and the problem."""


@dataclass(frozen=True)
class Head:
    """The first line of a log: what determines results, besides inputs and missing contributions."""

    group: str
    rank: int
    size: int
    #: The policy as `repr` writes it.
    policy: str
    packet_bytes: int
    #: The block and the stride of the Hadamard transform.
    hadamard: tuple[int, int] | None
    #: The site of each rank, or none.
    sites: tuple[int, ...]
    #: The algorithm of bounded all-reduces.
    algorithm: str


@dataclass(frozen=True)
class Entry:
    """A bounded operation: each line of a log after the first one."""

    #: The number of the operation in the group.
    operation: int
    name: str
    element: str | None
    reduction: str | None
    #: The size of the result at this rank.
    result_bytes: int
    missing: Missing


class Writer:
    """Writes the log of a rank: a line for each bounded operation that this rank waited for.

    Any thread may call its methods.
    """

    def __init__(self, folder: str, place: Place, head: Head) -> None:
        self._path = _path(folder, place)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # The log of another run is not overwritten.
            self._path.touch(exist_ok=False)
        except OSError as error:
            raise MissingLogError(f"{place.describe()}: missing_log: {error}") from error
        self._lock = Lock()
        self._write(asdict(head))

    def add(self, entry: Entry) -> None:
        """Write the line of an operation."""
        self._write(asdict(entry))

    def _write(self, line: dict[str, Any]) -> None:
        # Each line is written immediately, so that a run that is killed leaves a log too.
        try:
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise MissingLogError(f"missing_log: {self._path}: {error}") from error


class Reader:
    """Reads the log of a rank, and computes the results of its operations again."""

    def __init__(self, folder: str, place: Place, head: Head) -> None:
        self._path = _path(folder, place)
        try:
            first, *lines = map(json.loads, self._path.read_text(encoding="utf-8").splitlines())
            self._head = _head(first)
            self._entries = {entry.operation: entry for entry in map(_entry, lines)}
        except (OSError, ValueError, TypeError) as error:
            raise MissingLogError(f"{place.describe()}: replay_log: {self._path}: {error}") from error
        # A replay may have another packet size than the logged run, for example over a loopback address.
        for name in ("group", "rank", "size", "policy", "hadamard", "sites"):
            theirs, ours = getattr(self._head, name), getattr(head, name)
            if theirs != ours:
                raise MissingLogError(
                    f"{place.describe()}: replay_log: {self._path} is of a run with {name} {theirs}, "
                    f"this run has {ours}"
                )

    def result(self, wanted: Entry, inputs: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Return the result that an operation had in the logged run, from the inputs of all ranks.

        Raises
        ------
        MissingLogError
            If the log has no operation with this number, or a different operation.
        """
        entry = self._entries.get(wanted.operation)
        if entry is None:
            raise MissingLogError(f"{self._path} has no bounded operation {wanted.operation} ({wanted.name})")
        for name in ("name", "element", "reduction", "result_bytes"):
            theirs, ours = getattr(entry, name), getattr(wanted, name)
            if theirs != ours:
                raise MissingLogError(
                    f"{self._path}: operation {entry.operation} has {name} {theirs}, this run has {ours}"
                )
        try:
            return _native.replay(
                entry.name,
                self._head.rank,
                inputs,
                entry.missing,
                packet_bytes=self._head.packet_bytes,
                algorithm=self._head.algorithm,
                sites=self._head.sites,
                hadamard=self._head.hadamard,
                element=entry.element,
                reduction=entry.reduction,
            )
        except ValueError as error:
            raise MissingLogError(f"{self._path}: operation {entry.operation}: {error}") from error


def open_logs(place: Place, options: Options, packet_bytes: int) -> tuple[Writer | None, Reader | None]:
    """Return the log that a rank writes and the log that it replays; None for a log that the options lack."""
    if not isinstance(options.policy, Bounded):
        return None, None
    head = Head(
        place.group,
        place.rank,
        place.size,
        repr(options.policy),
        packet_bytes,
        options.policy.hadamard(),
        tuple(options.sites or ()),
        options.policy.algorithm,
    )
    return (
        None if options.missing_log is None else Writer(options.missing_log, place, head),
        None if options.replay_log is None else Reader(options.replay_log, place, head),
    )


def _path(folder: str, place: Place) -> Path:
    name = quote(place.group, safe="")
    return Path(folder) / f"{name}.{place.instance}.rank{place.rank}.jsonl"


def _entry(line: dict[str, Any]) -> Entry:
    missing = [(start, end, ranks) for start, end, ranks in line.pop("missing")]
    return Entry(**line, missing=missing)


def _head(line: dict[str, Any]) -> Head:
    head = Head(**line)
    hadamard = None if head.hadamard is None else (head.hadamard[0], head.hadamard[1])
    return replace(head, hadamard=hadamard, sites=tuple(head.sites))
