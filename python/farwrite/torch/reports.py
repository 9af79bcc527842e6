"""How operations went."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from farwrite import _native


@dataclass(frozen=True)
class Report:
    """The last operation of a group that this rank waited for, and totals of all operations so far."""

    #: Which operation.
    operation: str
    #: Bytes of its result at this rank.
    result_bytes: int
    #: Bytes of the result that lack the contribution of a rank, of the transformed result where there is a
    #: Hadamard transform. Always 0 in an exact group.
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
    #: What carried the contributions of this rank to a bounded operation, such as `best-effort+ec-mds:32,4`;
    #: None of an exact one.
    scheme: str | None
    #: What repaired the exact messages that this rank sent, such as `("sr-nack",)`: several with
    #: `Exact("auto")`. Bounded all-reduces have exact messages too.
    exact_schemes: tuple[str, ...]
    #: Where the network drops more than the loss target, and neither parity nor repeats can help in the
    #: longest time that is allowed: the least share of bytes that would be missing. Else None.
    least_missing_share: float | None
    #: Number of operations of the group that this rank has waited for.
    operations: int
    #: Number of bounded operations among these.
    bounded_operations: int
    #: Share of the bounded operations that were cut; 0 if there are none.
    cut_share: float
    #: Share of the bytes of their results that is missing; 0 if there are none.
    missing_share: float


class Tally:
    """Sums up the operations of a group that were waited for. Any thread may wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._operations = 0
        self._bounded = 0
        self._cut = 0
        self._result_bytes = 0
        self._missing_bytes = 0
        self.last: Report | None = None

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
                operations=self._operations,
                bounded_operations=self._bounded,
                cut_share=self._cut / max(1, self._bounded),
                missing_share=self._missing_bytes / max(1, self._result_bytes),
            )
