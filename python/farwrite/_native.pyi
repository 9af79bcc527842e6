"""Native module of the package farwrite, for use by this package only.

Columns and lists have one entry for each point.
"""

from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from os import PathLike
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CollectiveError",
    "CollectiveTimes",
    "Communicator",
    "CompletionTimes",
    "Ended",
    "Plan",
    "PointError",
    "Settings",
    "SimPlan",
    "Ticket",
    "Trace",
    "chunk_loss",
    "group_failure",
    "hadamard",
    "losses_in_burst",
    "parity_overhead",
    "plan_text",
    "replay",
]

_Column: TypeAlias = NDArray[np.float64]

class PointError(ValueError):
    """An argument is out of its range. `args` are the message and the number of the point, or None."""

_Alternative: TypeAlias = tuple[str, Sequence[float], tuple[int, float, float | None] | None]
_Edge: TypeAlias = tuple[float, str] | None

@final
class Plan:
    """The choice of the scheme for a message."""

    def __new__(
        cls,
        *,
        message_bytes: float,
        bandwidth_bps: float,
        rtt_s: float,
        loss: Sequence[float],
        packets_per_chunk: int,
        chunk_bytes: float,
        objective: str,
        max_parity_overhead: float,
        cores: float | None,
        xor_bps: float | None,
        mds_bps: float | None,
        candidates: Sequence[str] | None,
        close: float,
    ) -> Plan: ...
    def best(self) -> _Alternative: ...
    def alternatives(self) -> list[_Alternative]: ...
    def left_out(self) -> list[tuple[str, str]]: ...
    def sensitivity(self) -> list[tuple[str, float, _Edge, _Edge, list[tuple[float, str, float]]]]: ...

@final
class Settings:
    """The settings of all points: scheme, message and path."""

    def __new__(
        cls,
        *,
        scheme: Sequence[str],
        message_bytes: _Column,
        bandwidth_bps: _Column,
        rtt_s: _Column,
        loss: Sequence[_Column],
        packets_per_chunk: Sequence[int] | None,
        chunk_bytes: _Column,
        rto_rtts: _Column | None,
        beta: _Column,
        variant: str,
        encode_bps: _Column | None,
        decode_bps: _Column | None,
    ) -> Settings: ...
    def completion_times(self) -> CompletionTimes: ...
    def collective_times(self, collective: str, sites: Sequence[int]) -> CollectiveTimes: ...

@final
class CompletionTimes:
    """Completion times in seconds: one distribution for each point."""

    def lossless_s(self) -> _Column: ...
    def mean(self) -> _Column: ...
    def mean_bounds(self) -> tuple[_Column, _Column]: ...
    def quantile(self, points: Sequence[int], q: _Column) -> _Column: ...
    def quantile_bounds(self, points: Sequence[int], q: _Column) -> tuple[_Column, _Column]: ...
    def cdf(self, points: Sequence[int], t_s: _Column) -> _Column: ...
    def cdf_bounds(self, points: Sequence[int], t_s: _Column) -> tuple[_Column, _Column]: ...
    def survival(self, points: Sequence[int], t_s: _Column) -> _Column: ...
    def sample(self, n: int, seed: int) -> _Column: ...

@final
class CollectiveTimes:
    """Completion times of collectives in seconds: a lower and an upper distribution for each point."""

    def mean(self, barrier: bool) -> _Column: ...
    def quantile(self, barrier: bool, points: Sequence[int], q: _Column) -> _Column: ...
    def quantile_bounds(
        self, barrier: bool, points: Sequence[int], q: _Column
    ) -> tuple[_Column, _Column]: ...
    def sample(self, n: int, seed: int) -> _Column: ...

_Flow: TypeAlias = tuple[
    int,
    int,
    int,
    Sequence[int | None],
    Sequence[float | None],
    Sequence[int],
    float | None,
    bool,
    Sequence[str],
]

def plan_text(path: str | PathLike[str]) -> str: ...

@final
class SimPlan:
    """A plan of simulations whose parts have been checked."""

    def __new__(
        cls,
        text: str,
        files: Mapping[str, str],
        directory: str | PathLike[str],
        controllers: Mapping[str, Callable[[int, int, int], object]],
    ) -> SimPlan: ...
    def files(self) -> dict[str, str]: ...
    def notes(self) -> list[str]: ...
    def memory_bytes(self) -> tuple[int, int]: ...
    def count(self) -> int: ...
    def key(self, number: int) -> tuple[str, str, str, str, float | None, int]: ...
    def stop(self) -> None: ...
    def run(
        self, number: int
    ) -> tuple[list[tuple[str, int]], list[_Flow], tuple[int, int, list[tuple[int, int]]]]: ...
    def compare(
        self, number: int, file: str
    ) -> list[
        tuple[
            tuple[int | None, int | None],
            int,
            int,
            int | None,
            tuple[float | None, float | None, float | None, float | None],
            str,
        ]
    ]: ...

@final
class Trace:
    """Records the events of the endpoints of this process in a file. A process has at most one trace."""

    def __new__(cls, file: str | PathLike[str]) -> Trace: ...
    def flush(self) -> None: ...

class CollectiveError(RuntimeError):
    """An operation or its group has failed. The message names the rank."""

@final
class Communicator:
    """One rank of a group, which communicates over UDP."""

    def __new__(
        cls,
        rank: int,
        size: int,
        *,
        address: IPv4Address | IPv6Address,
        key: bytes | None,
        context: bytes,
        settings: Mapping[str, object],
        advertised: IPv4Address | IPv6Address | None = None,
        packet_bytes: int | None = None,
        ports: tuple[int, int] | None = None,
    ) -> Communicator: ...
    @property
    def packet_bytes(self) -> int | None: ...
    def meet(self, messages: Sequence[bytes]) -> bytes | None: ...
    def submit(
        self,
        operation: str,
        *,
        input: NDArray[np.uint8] | None = None,
        output: NDArray[np.uint8] | None = None,
        peer: int = 0,
        tag: int = 0,
        element: str | None = None,
        reduction: str | None = None,
        send_bytes: Sequence[int] = ...,
        receive_bytes: Sequence[int] = ...,
        bounded: bool = False,
        timeout_s: float | None = None,
    ) -> Ticket: ...
    def refuse(self, reason: str) -> None: ...
    def abort(self, reason: str) -> None: ...
    def failure(self) -> Literal["timeout", "remote", "local"] | None: ...
    def watch(self, watches: bool) -> str | None: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...

@final
class Ticket:
    """An operation that has been started."""

    def is_done(self) -> bool: ...
    def wait(self, timeout_s: float | None) -> Ended: ...

@final
class Ended:
    """The results of an operation at this rank: sizes, times and what is missing."""

    @property
    def operation(self) -> int: ...
    @property
    def source(self) -> int | None: ...
    @property
    def result_bytes(self) -> int: ...
    @property
    def missing_bytes(self) -> int: ...
    @property
    def elapsed_s(self) -> float: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def scheme(self) -> str | None: ...
    @property
    def exact_schemes(self) -> list[str]: ...
    @property
    def least_missing_share(self) -> float | None: ...
    @property
    def was_cut(self) -> bool: ...
    @property
    def missing(self) -> list[tuple[int, int, list[int]]]: ...
    @property
    def arrivals(self) -> list[tuple[int, float, float]]: ...
    @property
    def peers(self) -> list[tuple[int, float, int, int, int]]: ...

def chunk_loss(loss_packet: _Column, packets: Sequence[int]) -> _Column: ...
def group_failure(scheme: Sequence[str], loss_chunk: _Column) -> _Column: ...
def losses_in_burst(loss: _Column, mean_burst_s: _Column, interval_s: _Column) -> _Column: ...
def parity_overhead(scheme: str) -> float: ...
def replay(
    operation: str,
    rank: int,
    inputs: Sequence[NDArray[np.uint8]],
    missing: Sequence[tuple[int, int, Sequence[int]]],
    *,
    packet_bytes: int,
    algorithm: str,
    sites: Sequence[int],
    hadamard: tuple[int, int] | None = None,
    element: str | None = None,
    reduction: str | None = None,
) -> NDArray[np.uint8]: ...
def hadamard(
    values: NDArray[np.uint8],
    *,
    element: str,
    block: int,
    packet: int,
    stride: int,
    segment_ends: Sequence[int],
    inverse: bool,
) -> NDArray[np.uint8]: ...
