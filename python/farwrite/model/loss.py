"""Models of how chunks are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from farwrite import _native
from farwrite.model.arguments import (
    Argument,
    Numbers,
    Words,
    broadcast,
    counts,
    numbers,
    places,
    shaped,
    words,
)

PROBABILITY = "as a probability"


@dataclass(frozen=True)
class Markov:
    """Losses in bursts, which can be passed as `loss_chunk`: the chain of Gilbert and Elliott.

    The chain has a good and a bad state, and makes one step for each packet. A message finds it in its
    stationary distribution. A chunk is lost if any of its packets is lost. Fields may be arrays, which
    broadcast.
    """

    #: Probability that the chain is in the bad state at a packet, if it was in the good state at the packet
    #: before.
    p_good_to_bad: Numbers
    #: Probability that the chain is in the good state at a packet, if it was in the bad state at the packet
    #: before.
    p_bad_to_good: Numbers
    #: Probability that a packet is lost in the bad state.
    loss_bad: Numbers = 1.0
    #: Probability that a packet is lost in the good state.
    loss_good: Numbers = 0.0
    #: Number of packets of a chunk, 1 to 2**20.
    packets_per_chunk: Numbers = 1

    @classmethod
    def in_bursts_of_time(
        cls,
        loss_packet: Numbers,
        burst_s: Numbers,
        interval_s: Numbers,
        *,
        packets_per_chunk: Numbers = 1,
    ) -> Markov:
        """Return a chain that loses all packets in bursts, whose durations have a mean of `burst_s`.

        The number of packets in a burst depends on the rate of the packets, so `interval_s` is needed.

        Parameters
        ----------
        loss_packet
            Share of the time, and so of the packets, that bursts take: above 0, at most 0.99.
        burst_s
            Mean duration of a burst in seconds, above 0.
        interval_s
            Time from one packet to the next packet in seconds, above 0.
        packets_per_chunk
            Number of packets of a chunk, 1 to 2**20.

        Raises
        ------
        TypeError, ValueError
            An argument has the wrong type, or is out of its range. The message names the argument.
        """
        arguments = [
            numbers("loss_packet", PROBABILITY, loss_packet),
            numbers("burst_s", "seconds", burst_s),
            numbers("interval_s", "seconds", interval_s),
        ]
        shape, (loss, burst, interval) = broadcast(arguments)
        if np.any(loss == 0):
            raise ValueError(
                f"loss_packet = {loss_packet} {PROBABILITY}: must be above 0; "
                "without losses, pass loss_chunk = 0"
            )
        with places(shape):
            losses = _native.losses_in_burst(loss, burst, interval)
        return cls(
            p_good_to_bad=shaped(loss / (losses * (1 - loss)), shape),
            p_bad_to_good=shaped(1 / losses, shape),
            packets_per_chunk=packets_per_chunk,
        )

    def arguments(self) -> list[Argument]:
        """Return the five fields in the order in which the native module takes them."""
        names = ["p_good_to_bad", "p_bad_to_good", "loss_good", "loss_bad"]
        chances = [numbers(name, PROBABILITY, getattr(self, name)) for name in names]
        return [*chances, counts("packets_per_chunk", "packets", self.packets_per_chunk)]


def chunk_loss(loss_packet: Numbers, packets: Numbers) -> Any:
    """Return the probability that a chunk of `packets` packets is lost: ``1 - (1 - loss_packet)**packets``.

    Losses of packets are independent (SDR-RDMA, section 5.4).

    Parameters
    ----------
    loss_packet
        Probability that a packet is lost, 0 to 1.
    packets
        Number of packets of a chunk: whole numbers from 1.
    """
    arguments = [
        numbers("loss_packet", PROBABILITY, loss_packet),
        counts("packets", "packets", packets),
    ]
    shape, (loss, number) = broadcast(arguments)
    with places(shape):
        return shaped(_native.chunk_loss(loss, number.tolist()), shape)


def group_failure(scheme: Words, loss_chunk: Numbers) -> Any:
    """Return the probability that a group of an erasure code cannot be decoded (SDR-RDMA, appendix B).

    Parameters
    ----------
    scheme
        ``ec-mds:K,M`` or ``ec-xor:K,M``.
    loss_chunk
        Probability that a chunk is lost, 0 to 1, independently of other chunks.
    """
    arguments = [words("scheme", scheme), numbers("loss_chunk", PROBABILITY, loss_chunk)]
    shape, (names, loss) = broadcast(arguments)
    with places(shape):
        return shaped(_native.group_failure(names.tolist(), loss), shape)


def parity_overhead(scheme: str) -> float:
    """Return the number of parity chunks for each data chunk, M / K; 0 for schemes without parity."""
    if not isinstance(scheme, str):
        raise TypeError(f"scheme must be one string, not {scheme!r}")
    with places(()):
        return _native.parity_overhead(scheme)
