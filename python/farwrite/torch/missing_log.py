"""Logs of what bounded operations lacked. A run that reads them again has the same results, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from farwrite import _native
from farwrite.torch.options import Bounded, Options
from farwrite.torch.rendezvous import Place

#: Start and end of bytes of a result, and the ranks whose contributions they lack.
Missing = Sequence[tuple[int, int, Sequence[int]]]


class MissingLogError(RuntimeError):
    """A log cannot be written, or is not of this run; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Head:
    """What the results of a group depend on besides its inputs and what is missing: a log's first line."""

    group: str
    rank: int
    size: int
    #: As Python writes it.
    policy: str
    packet_bytes: int
    #: Block and stride.
    hadamard: tuple[int, int] | None


@dataclass(frozen=True)
class Entry:
    """A bounded operation: any other line of a log."""

    #: Its number among the operations of the group.
    operation: int
    name: str
    element: str | None
    reduction: str | None
    #: Of its result at this rank.
    result_bytes: int
    missing: Missing


class Writer:
    """Writes the log of a rank, a line for each bounded operation that was waited for.

    Any thread may wait.
    """

    def __init__(self, folder: str, place: Place, head: Head) -> None:
        self._path = _path(folder, place)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Another run's log stays as it is.
            self._path.touch(exist_ok=False)
        except OSError as error:
            raise MissingLogError(f"{place.describe()}: missing_log: {error}") from error
        self._lock = Lock()
        self._write(asdict(head))

    def add(self, entry: Entry) -> None:
        """Add an operation."""
        self._write(asdict(entry))

    def _write(self, line: dict[str, Any]) -> None:
        # Each line is written at once: a run that is killed leaves a log, too.
        try:
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise MissingLogError(f"missing_log: {self._path}: {error}") from error


class Reader:
    """The log of a rank, to compute its results again."""

    def __init__(self, folder: str, place: Place, head: Head) -> None:
        self._path = _path(folder, place)
        try:
            first, *lines = map(json.loads, self._path.read_text(encoding="utf-8").splitlines())
            self._head = _head(first)
            self._entries = {entry.operation: entry for entry in map(_entry, lines)}
        except (OSError, ValueError, TypeError) as error:
            raise MissingLogError(f"{place.describe()}: replay_log: {self._path}: {error}") from error
        # A replay may use other packets than the run, as over a loopback address.
        for name in ("group", "rank", "size", "policy", "hadamard"):
            theirs, ours = getattr(self._head, name), getattr(head, name)
            if theirs != ours:
                raise MissingLogError(
                    f"{place.describe()}: replay_log: {self._path} is of a run with {name} {theirs}, "
                    f"this run has {ours}"
                )

    def result(self, wanted: Entry, inputs: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Return the result of an operation, from the inputs of all ranks.

        Raises
        ------
        MissingLogError
            Where the log has no operation of this number, or another one.
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
                hadamard=self._head.hadamard,
                element=entry.element,
                reduction=entry.reduction,
            )
        except ValueError as error:
            raise MissingLogError(f"{self._path}: operation {entry.operation}: {error}") from error


def open_logs(place: Place, options: Options, packet_bytes: int) -> tuple[Writer | None, Reader | None]:
    """Open the log that a rank writes and the one that it reads, where its options have them."""
    if not isinstance(options.policy, Bounded):
        return None, None
    hadamard = options.policy.hadamard()
    head = Head(place.group, place.rank, place.size, repr(options.policy), packet_bytes, hadamard)
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
    return Head(head.group, head.rank, head.size, head.policy, head.packet_bytes, hadamard)
