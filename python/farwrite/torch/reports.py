"""How operations went."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True)
class Report:
    """How the last operation of a group that was waited for went at this rank."""

    #: Which operation.
    operation: str
    #: Bytes of its result at this rank.
    result_bytes: int
    #: Bytes of the result that lack the contribution of a rank, of the transformed result where there is a
    #: Hadamard transform. Always 0 in an exact group.
    missing_bytes: int
    #: Seconds from its start to its end.
    elapsed_s: float
    #: Seconds that it waited for contributions at most; of an exact operation those that it was allowed
    #: to take.
    timeout_s: float
    #: What carried the contributions of this rank to a bounded operation, such as `best-effort+ec-mds:32,4`;
    #: None of an exact one.
    scheme: str | None
    #: Where the network drops more than the loss target, and neither parity nor repeats can help in the
    #: longest time that is allowed: the least share of bytes that would be missing. Else None.
    least_missing_share: float | None
    #: How many operations of the group were waited for.
    operations: int
    #: Which share of them ended with bytes missing.
    cut_share: float


class Tally:
    """Counts the operations of a group that were waited for. Any thread may wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ended = 0
        self._cut = 0
        self.last: Report | None = None

    def add(self, operation: str, ended: tuple[int, int, float, float, str | None, float | None]) -> None:
        """Count one: what `Ticket.wait` returned."""
        result_bytes, missing_bytes, elapsed_s, timeout_s, scheme, least_missing_share = ended
        with self._lock:
            self._ended += 1
            self._cut += missing_bytes > 0
            self.last = Report(
                operation,
                result_bytes,
                missing_bytes,
                elapsed_s,
                timeout_s,
                scheme,
                least_missing_share,
                self._ended,
                self._cut / self._ended,
            )
