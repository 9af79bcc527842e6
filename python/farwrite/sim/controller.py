"""Congestion controllers of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

#: What a port of a switch wrote into a packet: the port, the time in nanoseconds, the bytes in its queues
#: without the packet, the bytes that it had sent before, and its rate in bits per second.
Hop: TypeAlias = tuple[int, int, int, int, int]


class Controller:
    """A congestion controller of one flow. A subclass changes `pace_bps` and `window_bytes`.

    Parameters
    ----------
    rate_bps
        The rate of the sender's cable, in bits per second.
    rtt_ns
        The round-trip time of a full packet with empty queues, in nanoseconds.
    mtu_bytes
        The payload of a packet.
    """

    #: The pace of packets, headers included, in bits per second.
    pace_bps: int
    #: The most bytes in flight, headers included; None: no limit.
    window_bytes: int | None = None
    #: When to call `on_timeout`; None: never.
    timeout_ns: int | None = None
    #: Whether `on_acknowledged` is called: not at all, with round trips and marks, or also with hops, which
    #: take 42 bytes of each packet.
    detail: Literal["reports", "packets", "telemetry"] = "reports"

    def __init__(self, rate_bps: int, rtt_ns: int, mtu_bytes: int) -> None:
        self.pace_bps = rate_bps

    def on_sent(self, now_ns: int, sent_bytes: int) -> None:
        """Record that a packet left."""

    def on_feedback(self, now_ns: int, received_bytes: int, rtt_ns: int | None) -> None:
        """Process an acknowledgement: all bytes that have arrived, and the round trip of the newest packet.

        The round trip is None if the packet was sent more than once.
        """

    def on_acknowledged(
        self, now_ns: int, acked_bytes: int, rtt_ns: int | None, marked: bool, hops: list[Hop]
    ) -> None:
        """Process an acknowledgement of a packet, just before `on_feedback`.

        `acked_bytes` are new, and `rtt_ns` is the round trip of the newest packet, or None if it was sent
        more than once. `marked`: a switch has marked the packet. `hops`: what the switches on its way wrote
        into it.
        """

    def on_notification(self, now_ns: int) -> None:
        """Process a congestion notification: the receiver got a packet with a mark."""

    def on_loss(self, now_ns: int, timed_out: bool) -> None:
        """Record that packets are repeated, after a timeout or a report of the receiver."""

    def on_timeout(self, now_ns: int) -> None:
        """Process the time `timeout_ns`, and set the next one."""


#: Controllers by the names that plans have after a ``@``: classes, or functions that make a `Controller`.
Controllers: TypeAlias = Mapping[str, Callable[[int, int, int], Controller]]


def checked_controllers(controllers: Controllers | None) -> dict[str, Callable[[int, int, int], Controller]]:
    """Return controllers as a dict. Raise TypeError if one cannot be called."""
    given = dict(controllers or {})
    for name, make in given.items():
        if not callable(make):
            raise TypeError(
                f"controllers: {name} = {make!r}: must be a subclass of Controller, or a function"
            )
    return given
