"""Reports on operations."""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import dataclass
from threading import Lock

from farwrite import _native


@dataclass(frozen=True)
class Arrival:
    """When exact messages of a rank arrived, in seconds from the start of the operation at this rank."""

    rank: int
    #: The first message. If it is late, that rank started late, or waited itself.
    first_s: float
    #: The last message.
    last_s: float


@dataclass(frozen=True)
class Peer:
    """Measurements of another rank that this rank exchanged exact messages with."""

    rank: int
    #: Share of the chunks to that rank that were lost since the group began; None if no chunk was judged.
    loss: float | None
    #: The round trip in seconds.
    rtt_s: float
    #: The rate that the network carries to that rank, in bits per second, as far as it is known; otherwise
    #: the rate at which packets are sent.
    rate_bps: int


@dataclass(frozen=True)
class Report:
    """The last operation of a group that this rank waited for, and totals of all operations so far."""

    #: Which operation.
    operation: str
    #: Bytes of its result at this rank.
    result_bytes: int
    #: Bytes of the result that lack the contribution of a rank. With a Hadamard transform, these are bytes of
    #: the transformed result. Always 0 in an exact group.
    missing_bytes: int
    #: Seconds from its start to its end.
    elapsed_s: float
    #: For a bounded operation, its deadline in seconds after the start of its first phase, which operations
    #: before it may delay. For an exact one, and during the warm-up of bounded ones, its timeout.
    timeout_s: float
    #: Whether it waited for contributions until `timeout_s`, and some had not arrived at this rank then.
    #: An operation that was not cut can still lack bytes that the network dropped. Always False for an exact
    #: operation.
    was_cut: bool
    #: The scheme that carried the contributions of this rank to a bounded operation, such as
    #: `best-effort+ec-mds:32,4`; None for an exact operation.
    scheme: str | None
    #: The schemes of the exact messages that this rank sent, such as `("sr-nack",)`. With `Exact("auto")`,
    #: there can be several. Bounded all-reduces have exact messages too.
    exact_schemes: tuple[str, ...]
    #: The smallest share of bytes that would still be missing, if the network drops more than the loss target
    #: and neither parity nor repeats help within the longest deadline. Otherwise None.
    least_missing_share: float | None
    #: When exact messages of other ranks arrived, in the order of ranks.
    arrivals: tuple[Arrival, ...]
    #: Measurements of the ranks that this rank exchanged exact messages with, in the order of ranks.
    peers: tuple[Peer, ...]
    #: Number of operations of the group that this rank has waited for.
    operations: int
    #: Number of bounded operations among these.
    bounded_operations: int
    #: Share of the bounded operations that were cut; 0 if there are none.
    cut_share: float
    #: Share of the bytes of their results that is missing; 0 if there are none.
    missing_share: float

    @property
    def waited_for(self) -> int | None:
        """The rank whose exact messages ended last; None if none had to arrive."""
        last = max(self.arrivals, key=lambda arrival: arrival.last_s, default=None)
        return None if last is None else last.rank


@dataclass(frozen=True)
class StepReport:
    """The operations of a group that this rank waited for in a step of training."""

    #: Their number, and the number of bounded ones that were cut.
    operations: int
    cut: int
    #: Bytes of their results at this rank, and how many of these lack the contribution of a rank.
    result_bytes: int
    missing_bytes: int
    #: Seconds in which the program waited for them. What a program computes meanwhile does not count.
    waited_s: float
    #: The operation that took longest; None if there was none.
    slowest: Report | None
    #: Share of the chunks to other ranks that were lost; None if no chunk was judged.
    loss: float | None
    #: The longest round trip in seconds and the lowest rate in bits per second to a rank; None if no exact
    #: message was exchanged.
    rtt_s: float | None
    rate_bps: int | None


#: After this number of bounded operations of a size, their times are compared with exact ones.
_COMPARED = 16
#: The least ratio of the two times that is worth a warning.
_SLOWER = 1.25


class Tally:
    """Sums up the operations of a group that were waited for. Any thread may wait."""

    def __init__(self, name: str = "", ranks: int = 1) -> None:
        self._name = name
        self._ranks = ranks
        self._lock = Lock()
        self._operations = 0
        self._bounded = 0
        self._cut = 0
        self._result_bytes = 0
        self._missing_bytes = 0
        self.last: Report | None = None
        #: By operation and bytes of a result: the times of bounded operations. None after the warning.
        self._times: dict[tuple[str, int], list[float]] | None = {}
        #: By rank: the numbers of chunks that were judged and lost since the group began.
        self._chunks: dict[int, tuple[int, int]] = {}
        # A program that never asks for a step must not fill the memory.
        self._step: deque[Report] = deque(maxlen=_MOST_IN_STEP)
        self._step_chunks = [0, 0]
        self._step_waited_s = 0.0

    def add(self, operation: str, ended: _native.Ended) -> None:
        """Add one operation."""
        with self._lock:
            self._operations += 1
            if ended.scheme is not None:
                self._bounded += 1
                self._cut += ended.was_cut
                self._result_bytes += ended.result_bytes
                self._missing_bytes += ended.missing_bytes
            self.last = Report(
                operation=operation,
                result_bytes=ended.result_bytes,
                missing_bytes=ended.missing_bytes,
                elapsed_s=ended.elapsed_s,
                timeout_s=ended.timeout_s,
                was_cut=ended.was_cut,
                scheme=ended.scheme,
                exact_schemes=tuple(ended.exact_schemes),
                least_missing_share=ended.least_missing_share,
                arrivals=tuple(Arrival(*arrival) for arrival in ended.arrivals),
                peers=tuple(
                    Peer(rank, lost / judged if judged else None, rtt_s, rate_bps)
                    for rank, rtt_s, rate_bps, judged, lost in ended.peers
                ),
                operations=self._operations,
                bounded_operations=self._bounded,
                cut_share=self._cut / max(1, self._bounded),
                missing_share=self._missing_bytes / max(1, self._result_bytes),
            )
            self._add_to_step(self.last, ended)
            slower = self._slower_than_exact(self.last)
        if slower:
            warnings.warn(slower, RuntimeWarning, stacklevel=3)

    def add_wait(self, seconds: float) -> None:
        """Add a time in which the program waited."""
        with self._lock:
            self._step_waited_s += seconds

    def step(self) -> StepReport:
        """Return the sums since the last call."""
        with self._lock:
            reports = list(self._step)
            self._step.clear()
            (judged, lost), self._step_chunks = self._step_chunks, [0, 0]
            waited_s, self._step_waited_s = self._step_waited_s, 0.0
        peers = [peer for report in reports for peer in report.peers]
        return StepReport(
            operations=len(reports),
            cut=sum(report.was_cut for report in reports),
            result_bytes=sum(report.result_bytes for report in reports),
            missing_bytes=sum(report.missing_bytes for report in reports),
            waited_s=waited_s,
            slowest=max(reports, key=lambda report: report.elapsed_s, default=None),
            loss=lost / judged if judged else None,
            rtt_s=max((peer.rtt_s for peer in peers), default=None),
            rate_bps=min((peer.rate_bps for peer in peers), default=None),
        )

    def _add_to_step(self, report: Report, ended: _native.Ended) -> None:
        self._step.append(report)
        for rank, _, _, judged, lost in ended.peers:
            before = self._chunks.get(rank, (0, 0))
            # Operations can end in another order than they are waited for.
            self._step_chunks[0] += max(0, judged - before[0])
            self._step_chunks[1] += max(0, lost - before[1])
            self._chunks[rank] = max(judged, before[0]), max(lost, before[1])

    def _slower_than_exact(self, report: Report) -> str | None:
        """Return a warning, once, if exact operations with parity would be faster than bounded ones."""
        if self._times is None or report.scheme is None or report.operation not in _STEPS or not report.peers:
            return None
        times = self._times.setdefault((report.operation, report.result_bytes), [])
        times.append(report.elapsed_s)
        if len(times) < _COMPARED:
            return None
        # The fastest one: others may wait for ranks that start late, and for operations before them.
        fastest_s = min(times)
        times.clear()
        exact_s = _exact_s(report, self._ranks)
        if fastest_s < _SLOWER * exact_s:
            return None
        self._times = None
        peer = max(report.peers, key=lambda peer: peer.rtt_s)
        network = (
            f"{1e3 * peer.rtt_s:.0f} ms round trip, {peer.rate_bps / 1e6:.0f} Mbit/s to rank {peer.rank}"
        )
        return (
            f"{self._name}: a bounded {report.operation} of {report.result_bytes} bytes takes at least "
            f"{1e3 * fastest_s:.0f} ms. An exact one with parity would take about {1e3 * exact_s:.0f} ms "
            f"on this network ({network}): try policy=Exact('auto')"
        )


#: A step keeps at most this number of operations.
_MOST_IN_STEP = 10_000
#: Operations whose exact time is estimated.
_STEPS = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor", "all_reduce_coalesced")


def _exact_s(report: Report, ranks: int) -> float:
    """Return the time of an exact operation: a ring, a quarter more bytes for parity, and no repeats."""
    is_whole = report.operation.startswith("all_reduce")
    part_bytes = report.result_bytes / ranks if is_whole else report.result_bytes
    steps = (2 if is_whole else 1) * (ranks - 1)
    step_s = [peer.rtt_s / 2 + 8 * 1.25 * part_bytes / peer.rate_bps for peer in report.peers]
    return steps * max(step_s)
