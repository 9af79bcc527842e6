"""How fast packets are sent."""

from __future__ import annotations

from dataclasses import dataclass

from farwrite.torch.problems import problem


@dataclass(frozen=True)
class Adaptive:
    """The rate follows the path: queues stay short, others get a fair share, losses alone change nothing."""

    #: The highest rate, in bits per second on the wire. None: no limit other than the path.
    max_bps: int | None = None

    def __post_init__(self) -> None:  # noqa: D105
        if self.max_bps is not None:
            _check("max_bps", self.max_bps)

    def native(self) -> dict[str, object]:
        """Return what the native half wants."""
        return _native("adaptive", self.max_bps)


@dataclass(frozen=True)
class Fixed:
    """A constant rate, for a path of which you have a reserved share. There is no congestion control."""

    #: The rate to each other rank, in bits per second on the wire.
    rate_bps: int

    def __post_init__(self) -> None:  # noqa: D105
        _check("rate_bps", self.rate_bps)

    def native(self) -> dict[str, object]:
        """Return what the native half wants."""
        return _native("fixed", self.rate_bps)


@dataclass(frozen=True)
class Dcqcn:
    """DCQCN with the values of its paper, for datacenters with switches that mark packets."""

    #: The rate of the port of this rank, in bits per second.
    line_rate_bps: int

    def __post_init__(self) -> None:  # noqa: D105
        _check("line_rate_bps", self.line_rate_bps)

    def native(self) -> dict[str, object]:
        """Return what the native half wants."""
        return _native("dcqcn", self.line_rate_bps)


@dataclass(frozen=True)
class Swift:
    """Swift, for datacenters: it keeps the delay at a target of 20 us, and 3 us for each hop."""

    #: The rate of the port of this rank, in bits per second.
    line_rate_bps: int
    #: The switches on the path.
    hops: int = 5

    def __post_init__(self) -> None:  # noqa: D105
        _check("line_rate_bps", self.line_rate_bps)
        _check("hops", self.hops)

    def native(self) -> dict[str, object]:
        """Return what the native half wants."""
        return _native("swift", self.line_rate_bps, hops=self.hops)


@dataclass(frozen=True)
class Eqds:
    """EQDS, for datacenters in which the ports of receivers are the bottlenecks. All ranks need it."""

    #: The rate of the ports of all ranks, in bits per second.
    line_rate_bps: int
    #: What a rank may send before it has credit: the bytes of a round trip at the rate of the port.
    first_window_bytes: int = 64 * 1024

    def __post_init__(self) -> None:  # noqa: D105
        _check("line_rate_bps", self.line_rate_bps)
        _check("first_window_bytes", self.first_window_bytes)

    def native(self) -> dict[str, object]:
        """Return what the native half wants."""
        return _native("eqds", self.line_rate_bps, first_window_bytes=self.first_window_bytes)


#: How fast a group sends.
RateControl = Adaptive | Fixed | Dcqcn | Swift | Eqds
_MOST = {"hops": 255}


def _check(name: str, value: object) -> None:
    most = _MOST.get(name, 2**62)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise ValueError(problem(f"{name} = {value!r}: must be an integer from 1 to {most}"))


def _native(
    name: str, rate_bps: int | None, *, hops: int = 0, first_window_bytes: int = 0
) -> dict[str, object]:
    return {"name": name, "rate_bps": rate_bps, "hops": hops, "first_window_bytes": first_window_bytes}
