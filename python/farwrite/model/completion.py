"""Completion times of single messages."""

from __future__ import annotations

from typing import Any

from farwrite import _native
from farwrite.model.arguments import (
    Evaluate,
    EvaluateTwo,
    Numbers,
    Words,
    against,
    numbers,
    places,
    shaped,
    whole,
)
from farwrite.model.loss import PROBABILITY, Markov
from farwrite.model.setting import settings

# The most values that one call may draw: an array of 8 GB.
MAX_DRAWS = 10**9


class CompletionTime:
    """The distribution of a completion time, or an array of distributions of shape `shape`.

    Distributions are evaluated exactly. If an evaluation merges neighbouring cases to save time, the
    ``_bounds`` methods return a lower and an upper bound of the exact value. Arguments of methods broadcast
    against `shape`. Times are in seconds. Results are NumPy arrays of the broadcast shape, or numbers if this
    shape is ().
    """

    def __init__(self, native: _native.CompletionTimes, shape: tuple[int, ...]) -> None:
        self._native = native
        self._shape = shape

    def __repr__(self) -> str:
        """Return the class and the shape."""
        return f"<CompletionTime of shape {self._shape}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape to which the arguments were broadcast; () for one distribution."""
        return self._shape

    @property
    def mean(self) -> Any:
        """The mean time."""
        return shaped(self._native.mean(), self._shape)

    @property
    def mean_bounds(self) -> tuple[Any, Any]:
        """A lower and an upper bound of the mean time."""
        low, high = self._native.mean_bounds()
        return shaped(low, self._shape), shaped(high, self._shape)

    @property
    def lossless_s(self) -> Any:
        """The completion time without losses and without parity."""
        return shaped(self._native.lossless_s(), self._shape)

    def quantile(self, q: Numbers) -> Any:
        """Return the least time within which the message completes with probability `q`, 0 <= q < 1."""
        return self._one(self._native.quantile, "q", PROBABILITY, q)

    def quantile_bounds(self, q: Numbers) -> tuple[Any, Any]:
        """Return a lower and an upper bound of `quantile(q)`."""
        return self._two(self._native.quantile_bounds, "q", PROBABILITY, q)

    def cdf(self, t_s: Numbers) -> Any:
        """Return the probability that the message completes within `t_s` seconds."""
        return self._one(self._native.cdf, "t_s", "s", t_s)

    def cdf_bounds(self, t_s: Numbers) -> tuple[Any, Any]:
        """Return a lower and an upper bound of `cdf(t_s)`."""
        return self._two(self._native.cdf_bounds, "t_s", "s", t_s)

    def survival(self, t_s: Numbers) -> Any:
        """Return the probability that the message takes longer than `t_s` seconds.

        Small probabilities are more accurate than ``1 - cdf(t_s)``.
        """
        return self._one(self._native.survival, "t_s", "s", t_s)

    def sample(self, n: int, seed: int) -> Any:
        """Draw `n` completion times of each point by a simulation of the protocol.

        Return seconds in an array of shape ``(*shape, n)``. The points, in C order, have the seeds `seed`,
        `seed + 1` and so on (modulo 2^64). Two calls with the same seed return the same times.
        """
        return draws(self._native, self._shape, n, seed)

    def _one(self, f: Evaluate, name: str, unit: str, value: Numbers) -> Any:
        shape, points, column = against(self._shape, numbers(name, unit, value))
        with places(shape):
            return shaped(f(points, column), shape)

    def _two(self, f: EvaluateTwo, name: str, unit: str, value: Numbers) -> tuple[Any, Any]:
        shape, points, column = against(self._shape, numbers(name, unit, value))
        with places(shape):
            low, high = f(points, column)
        return shaped(low, shape), shaped(high, shape)


def draws(
    native: _native.CompletionTimes | _native.CollectiveTimes,
    shape: tuple[int, ...],
    n: int,
    seed: int,
) -> Any:
    """Return `n` draws of each point, in an array of shape ``(*shape, n)``."""
    points = 1
    for axis in shape:
        points *= axis
    n = whole("n", "draws a point", n, 0, MAX_DRAWS // max(points, 1))
    seed = whole("seed", "as a seed", seed, 0, 2**64 - 1)
    return native.sample(n, seed).reshape(*shape, n)


def completion_time(
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
) -> CompletionTime:
    """Return the distribution of the time from the first chunk of a message to its last acknowledgement.

    All arguments except `variant` broadcast against each other.

    Parameters
    ----------
    scheme
        ``sr-rto``, ``sr-nack``, ``gbn``, ``ec-mds:K,M`` or ``ec-xor:K,M``.
    message_bytes
        Length of the message in bytes, up to 2^40 chunks.
    bandwidth_bps
        Rate of the path in bits per second.
    rtt_s
        Round-trip time in seconds.
    loss_chunk
        Probability that a chunk is lost, 0 to 0.99, independently of other chunks. `chunk_loss` computes it
        from the loss of packets. For losses in bursts, a `Markov`. A chunk counts as one packet, so with
        variant ``protocol`` control messages are lost as often as chunks; `farwrite plan --mtu` counts
        their packets.
    chunk_bytes
        Bytes of a chunk, the unit of repetition and coding.
    rto_rtts
        Timeout after which a chunk is sent again, in round trips, at least 1. None: the default of the
        scheme, which is 3 for ``sr-rto`` and for the repetitions of erasure coding, and 1 for ``sr-nack`` and
        ``gbn``.
    beta
        How long the receiver of erasure coding waits before it asks for repetition, as a share of a round
        trip. The wait begins when the last chunk has been sent.
    variant
        ``paper``, ``serial`` or ``protocol``; see `farwrite.model`.
    encode_bps, decode_bps
        Speed of coding in bits of data per second, with ``serial`` or ``protocol``. None: coding takes no
        time.

    Returns
    -------
    CompletionTime
        One distribution, or an array of distributions of the broadcast shape.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    ValueError
        An argument is out of its range, or shapes do not match. The message names the argument and its unit.

    Examples
    --------
    >>> time = completion_time("sr-rto", 128 * 2**20, 400e9, 25e-3, 1e-5)
    >>> f"{time.mean * 1e3:.2f} ms, p99.9 {time.quantile(0.999) * 1e3:.2f} ms"
    '48.29 ms, p99.9 102.68 ms'
    """
    shape, native, _ = settings(
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
    )
    with places(shape):
        return CompletionTime(native.completion_times(), shape)
