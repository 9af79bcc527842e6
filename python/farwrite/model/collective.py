"""Completion times of collectives between sites."""

from __future__ import annotations

from typing import Any

from farwrite import _native
from farwrite.model.arguments import Numbers, Words, against, numbers, places, shaped
from farwrite.model.completion import draws
from farwrite.model.loss import PROBABILITY, Markov
from farwrite.model.setting import settings


class StageSum:
    """Distribution of a sum of independent stages, or an array of them; times in seconds."""

    def __init__(self, native: _native.CollectiveTimes, shape: tuple[int, ...], barrier: bool) -> None:
        self._native = native
        self._shape = shape
        self._barrier = barrier

    @property
    def mean(self) -> Any:
        """The mean."""
        return shaped(self._native.mean(self._barrier), self._shape)

    def quantile(self, q: Numbers) -> Any:
        """Least time within which all is complete with probability `q`, 0 <= q < 1."""
        shape, points, column = against(self._shape, numbers("q", PROBABILITY, q))
        with places(shape):
            return shaped(self._native.quantile(self._barrier, points, column), shape)

    def quantile_bounds(self, q: Numbers) -> tuple[Any, Any]:
        """Lower and upper bound of the quantile, given the grid on which stages are added."""
        shape, points, column = against(self._shape, numbers("q", PROBABILITY, q))
        with places(shape):
            low, high = self._native.quantile_bounds(self._barrier, points, column)
        return shaped(low, shape), shaped(high, shape)


class CollectiveTime:
    """Completion time of a collective, or an array of them of shape `shape`.

    It lies between the distributions `path` and `barrier`; `sample` draws it.
    """

    def __init__(self, native: _native.CollectiveTimes, shape: tuple[int, ...]) -> None:
        self._native = native
        self._shape = shape

    def __repr__(self) -> str:
        """Class and shape."""
        return f"<CollectiveTime of shape {self._shape}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """What the arguments were broadcast to."""
        return self._shape

    @property
    def path(self) -> StageSum:
        """Lower bound: the transfers of one longest chain of dependences (paper appendix C)."""
        return StageSum(self._native, self._shape, barrier=False)

    @property
    def barrier(self) -> StageSum:
        """Upper bound: rounds one after the other, each as long as its longest transfer."""
        return StageSum(self._native, self._shape, barrier=True)

    def sample(self, n: int, seed: int) -> Any:
        """`n` completion times of each point with all dependences, of shape ``(*shape, n)``.

        Seeds as in `CompletionTime.sample`.
        """
        return draws(self._native, self._shape, n, seed)


def collective_time(
    collective: str,
    sites: Numbers,
    scheme: Words,
    message_bytes: Numbers,
    bandwidth_bps: Numbers,
    rtt_s: Numbers,
    loss_chunk: Numbers | Markov,
    chunk_bytes: Numbers = 4096,
    rto_rtts: Numbers | None = None,
    beta: Numbers = 0.5,
    variant: str = "paper",
    *,
    encode_bps: Numbers | None = None,
    decode_bps: Numbers | None = None,
) -> CollectiveTime:
    """How long an Allreduce between sites takes (paper section 5.3).

    Parameters
    ----------
    collective
        ``ring``, ``tree`` or ``recursive-doubling``.
    sites
        How many take part, whole numbers from 2 to 256.
    message_bytes
        Length of the buffer of a site in bytes. Transfers of a ring are 1/sites of it.
    scheme, bandwidth_bps, rtt_s, loss_chunk, chunk_bytes, rto_rtts, beta, variant, encode_bps, decode_bps
        Of each transfer, as in `completion_time`. Transfers are independent of each other.

    Raises
    ------
    TypeError, ValueError
        As `completion_time`.
    """
    if not isinstance(collective, str):
        raise TypeError(f"collective must be one string, not {collective!r}")
    shape, native, column = settings(
        scheme,
        message_bytes,
        bandwidth_bps,
        rtt_s,
        loss_chunk,
        chunk_bytes,
        rto_rtts,
        beta,
        variant,
        encode_bps,
        decode_bps,
        sites,
    )
    with places(shape):
        return CollectiveTime(native.collective_times(collective, column), shape)
