"""Completion times of collectives between sites."""

from __future__ import annotations

from typing import Any

from farwrite import _native
from farwrite.model.arguments import Numbers, Words, against, numbers, places, shaped
from farwrite.model.completion import draws
from farwrite.model.loss import PROBABILITY, Markov
from farwrite.model.setting import settings


class StageSum:
    """The distribution of a sum of independent stages, or an array of distributions. Times are in seconds."""

    def __init__(self, native: _native.CollectiveTimes, shape: tuple[int, ...], barrier: bool) -> None:
        self._native = native
        self._shape = shape
        self._barrier = barrier

    @property
    def mean(self) -> Any:
        """The mean time."""
        return shaped(self._native.mean(self._barrier), self._shape)

    def quantile(self, q: Numbers) -> Any:
        """Return the least time within which all stages end with probability `q`, 0 <= q < 1."""
        shape, points, column = against(self._shape, numbers("q", PROBABILITY, q))
        with places(shape):
            return shaped(self._native.quantile(self._barrier, points, column), shape)

    def quantile_bounds(self, q: Numbers) -> tuple[Any, Any]:
        """Return a lower and an upper bound of the quantile: stages are added on a grid of times."""
        shape, points, column = against(self._shape, numbers("q", PROBABILITY, q))
        with places(shape):
            low, high = self._native.quantile_bounds(self._barrier, points, column)
        return shaped(low, shape), shaped(high, shape)


class CollectiveTime:
    """The completion time of a collective, or an array of completion times of shape `shape`.

    Its distribution is not computed: it lies between the distributions `path` and `barrier`. `sample` draws
    from it.
    """

    def __init__(self, native: _native.CollectiveTimes, shape: tuple[int, ...]) -> None:
        self._native = native
        self._shape = shape

    def __repr__(self) -> str:
        """Return the class and the shape."""
        return f"<CollectiveTime of shape {self._shape}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape to which the arguments were broadcast; () for one collective."""
        return self._shape

    @property
    def path(self) -> StageSum:
        """A lower bound: the transfers of one longest chain of dependences (SDR-RDMA, appendix C)."""
        return StageSum(self._native, self._shape, barrier=False)

    @property
    def barrier(self) -> StageSum:
        """An upper bound: rounds follow each other, and each round takes as long as its longest transfer."""
        return StageSum(self._native, self._shape, barrier=True)

    def sample(self, n: int, seed: int) -> Any:
        """Draw `n` completion times of each point, with all dependences between transfers.

        Return seconds in an array of shape ``(*shape, n)``. Seeds are used as in `CompletionTime.sample`.
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
    """Return the time that an all-reduce between sites takes (SDR-RDMA, section 5.3).

    Parameters
    ----------
    collective
        ``ring``, ``tree`` or ``recursive-doubling``.
    sites
        How many sites take part: whole numbers from 2 to 256.
    message_bytes
        Length of the buffer of each site in bytes. A transfer of a ring has ``message_bytes / sites`` bytes.
    scheme, bandwidth_bps, rtt_s, loss_chunk, chunk_bytes, rto_rtts, beta, variant, encode_bps, decode_bps
        The scheme and the path of each transfer, as in `completion_time`. Transfers are independent of each
        other.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, or is out of its range. The message names the argument and its unit.
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
