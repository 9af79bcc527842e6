"""Reports on the operations of a group."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from threading import Lock

from farwrite import _native


@dataclass(frozen=True)
class Arrival:
    """When exact messages of another rank arrived, in seconds after the operation started at this rank."""

    #: The rank that sent the messages.
    rank: int
    #: Arrival of the first message. If it is late, its sender started the operation late, or waited for
    #: another rank.
    first_s: float
    #: Arrival of the last message.
    last_s: float


@dataclass(frozen=True)
class Peer:
    """Measurements of the network to another rank, from the exact messages that both ranks exchanged."""

    #: The other rank.
    rank: int
    #: Share of the chunks to the other rank that were lost since the group began. None if this rank does not
    #: know of any chunk whether it was lost.
    loss: float | None
    #: The round trip to the other rank, in seconds.
    rtt_s: float
    #: The rate that the network carries to the other rank, in bits per second. If it is not known, the rate
    #: at which this rank sends packets.
    rate_bps: int


@dataclass(frozen=True)
class Report:
    """The last operation of a group that this rank waited for, and totals of all operations it waited for."""

    #: Name of the operation, such as `all_reduce`.
    operation: str
    #: Bytes of the result of the operation at this rank.
    result_bytes: int
    #: Bytes of the result that lack the contribution of a rank. With a Hadamard transform, these are bytes of
    #: the transformed result. Always 0 in an exact group.
    missing_bytes: int
    #: Seconds from the start to the end of the operation.
    elapsed_s: float
    #: The deadline of a bounded operation, in seconds after the start of its first phase. Earlier operations
    #: may delay this start. For an exact operation, and for a bounded one during the warm-up: the timeout in
    #: seconds.
    timeout_s: float
    #: Whether the operation waited for contributions until its deadline, and some had not arrived at this
    #: rank at the deadline. An operation that was not cut can also lack bytes, if the network dropped
    #: packets. Always False for an exact operation.
    was_cut: bool
    #: The scheme that carried the contributions of this rank to a bounded operation, such as
    #: `best-effort+ec-mds:32,4`; None for an exact operation.
    scheme: str | None
    #: The schemes of the exact messages that this rank sent, such as `("sr-nack",)`. With `Exact("auto")`,
    #: there can be several schemes. Bounded all-reduces also send exact messages.
    exact_schemes: tuple[str, ...]
    #: If the network drops more than the loss target, and neither parity nor repeats help within the longest
    #: deadline: the smallest share of bytes that would be missing. Otherwise None.
    least_missing_share: float | None
    #: When exact messages of other ranks arrived, in the order of ranks.
    arrivals: tuple[Arrival, ...]
    #: Measurements of the network to each rank that this rank exchanged exact messages with, in rank order.
    peers: tuple[Peer, ...]
    #: Total number of operations of the group that this rank has waited for.
    operations: int
    #: Total number of bounded operations that this rank has waited for.
    bounded_operations: int
    #: Share of all bounded operations that were cut; 0 if there are no bounded operations.
    cut_share: float
    #: Share of the bytes of the results of all bounded operations that is missing; 0 if there are no bounded
    #: operations.
    missing_share: float

    @property
    def waited_for(self) -> int | None:
        """The rank whose exact messages ended last; None if the operation receives no exact messages."""
        last = max(self.arrivals, key=lambda arrival: arrival.last_s, default=None)
        return None if last is None else last.rank


@dataclass(frozen=True)
class StepReport:
    """The operations of a group that this rank waited for in a step of training."""

    #: Number of operations.
    operations: int
    #: Number of bounded operations that were cut.
    cut: int
    #: Bytes of the results of the operations at this rank.
    result_bytes: int
    #: Bytes of these results that lack the contribution of a rank.
    missing_bytes: int
    #: Seconds that the program spent waiting for the operations. Time in which it computed while operations
    #: ran does not count.
    waited_s: float
    #: The operation that took longest; None if there were no operations.
    slowest: Report | None
    #: Share of the chunks to other ranks that were lost in the step. None if this rank does not know of any
    #: chunk whether it was lost.
    loss: float | None
    #: The longest round trip to another rank in seconds; None if no exact message was exchanged.
    rtt_s: float | None
    #: The lowest rate to another rank in bits per second; None if no exact message was exchanged.
    rate_bps: int | None


class _Step:
    """Sums of the operations since the last report of a step. A program may never ask for this report."""

    def __init__(self) -> None:
        self.operations = self.cut = self.result_bytes = self.missing_bytes = 0
        self.judged = self.lost = 0
        self.waited_s = 0.0
        self.slowest: Report | None = None
        self.rtt_s: float | None = None
        self.rate_bps: int | None = None

    def add(self, report: Report) -> None:
        """Add an operation."""
        self.operations += 1
        self.cut += report.was_cut
        self.result_bytes += report.result_bytes
        self.missing_bytes += report.missing_bytes
        if self.slowest is None or report.elapsed_s > self.slowest.elapsed_s:
            self.slowest = report
        for peer in report.peers:
            self.rtt_s = peer.rtt_s if self.rtt_s is None else max(self.rtt_s, peer.rtt_s)
            self.rate_bps = peer.rate_bps if self.rate_bps is None else min(self.rate_bps, peer.rate_bps)

    def report(self) -> StepReport:
        """Return the report of the step."""
        return StepReport(
            operations=self.operations,
            cut=self.cut,
            result_bytes=self.result_bytes,
            missing_bytes=self.missing_bytes,
            waited_s=self.waited_s,
            slowest=self.slowest,
            loss=self.lost / self.judged if self.judged else None,
            rtt_s=self.rtt_s,
            rate_bps=self.rate_bps,
        )


#: After this number of bounded operations of one size, their times are compared with the time of an exact
#: operation.
_COMPARED = 16
#: The least ratio of the bounded to the exact time at which this rank warns.
_SLOWER = 1.25


class Totals:
    """Sums up the operations of a group that this rank waited for. Any thread may call its methods."""

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
        self.last_error: _native.CollectiveError | None = None
        #: For each operation and size of its result: the times of bounded operations. None after the warning.
        self._times: dict[tuple[str, int], list[float]] | None = {}
        #: For each rank: the number of chunks that arrived or were lost since the group began, and the number
        #: of lost ones.
        self._chunks: dict[int, tuple[int, int]] = {}
        self._step = _Step()

    def add(self, operation: str, ended: _native.Ended) -> None:
        """Add an operation that this rank has waited for."""
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

    def fail(self, error: _native.CollectiveError) -> None:
        """Note that an operation that this rank has waited for has failed."""
        # The copy has no traceback, whose frames would keep the tensors of the program.
        self.last_error = type(error)(*error.args)

    def add_wait(self, seconds: float) -> None:
        """Add a number of seconds that the program spent waiting."""
        with self._lock:
            self._step.waited_s += seconds

    def step(self) -> StepReport:
        """Return the sums of the operations that were added since the last call of this method."""
        with self._lock:
            step, self._step = self._step, _Step()
        return step.report()

    def _add_to_step(self, report: Report, ended: _native.Ended) -> None:
        self._step.add(report)
        for rank, _, _, judged, lost in ended.peers:
            before = self._chunks.get(rank, (0, 0))
            # The program can wait for operations in another order than they end, so the numbers can be lower
            # than those of the operation before.
            self._step.judged += max(0, judged - before[0])
            self._step.lost += max(0, lost - before[1])
            self._chunks[rank] = max(judged, before[0]), max(lost, before[1])

    def _slower_than_exact(self, report: Report) -> str | None:
        """Return a warning, only once, if exact operations with parity would be faster than bounded ones."""
        if self._times is None or report.scheme is None or report.operation not in _STEPS or not report.peers:
            return None
        times = self._times.setdefault((report.operation, report.result_bytes), [])
        times.append(report.elapsed_s)
        if len(times) < _COMPARED:
            return None
        # The fastest operation is compared, because other operations may have waited for late ranks, and
        # for earlier operations.
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


#: Names of the operations whose exact time is estimated.
_STEPS = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor", "all_reduce_coalesced")


def _exact_s(report: Report, ranks: int) -> float:
    """Return the estimated time of an exact operation in seconds: a ring, a quarter of parity, no repeats."""
    is_whole = report.operation.startswith("all_reduce")
    part_bytes = report.result_bytes / ranks if is_whole else report.result_bytes
    steps = (2 if is_whole else 1) * (ranks - 1)
    step_s = [peer.rtt_s / 2 + 8 * 1.25 * part_bytes / peer.rate_bps for peer in report.peers]
    return steps * max(step_s)
