"""Rate controls: how fast a rank sends packets to each other rank."""

from __future__ import annotations

from dataclasses import dataclass

from farwrite.torch.problems import problem


@dataclass(frozen=True)
class Adaptive:
    """The rate follows the path: queues stay short, and other flows get a fair share.

    Losses alone do not reduce the rate.
    """

    #: The highest rate to each other rank, in bits per second on the wire. None: only the path limits the
    #: rate.
    max_bps: int | None = None

    def __post_init__(self) -> None:  # noqa: D105
        if self.max_bps is not None:
            _check("max_bps", self.max_bps)

    def native(self) -> dict[str, object]:
        """Return the settings of the rate control for the native module."""
        return _native("adaptive", self.max_bps)


@dataclass(frozen=True)
class Fixed:
    """A constant rate without congestion control, for a path with a reserved share."""

    #: The rate to each other rank, in bits per second on the wire.
    rate_bps: int

    def __post_init__(self) -> None:  # noqa: D105
        _check("rate_bps", self.rate_bps)

    def native(self) -> dict[str, object]:
        """Return the settings of the rate control for the native module."""
        return _native("fixed", self.rate_bps)


@dataclass(frozen=True)
class Dcqcn:
    """DCQCN with the parameters of its paper, for datacenters whose switches mark packets."""

    #: The rate of the port of this rank, in bits per second.
    line_rate_bps: int

    def __post_init__(self) -> None:  # noqa: D105
        _check("line_rate_bps", self.line_rate_bps)

    def native(self) -> dict[str, object]:
        """Return the settings of the rate control for the native module."""
        return _native("dcqcn", self.line_rate_bps)


@dataclass(frozen=True)
class Swift:
    """Swift, for datacenters. The target of the delay is 20 us, plus 3 us for each hop."""

    #: The rate of the port of this rank, in bits per second.
    line_rate_bps: int
    #: The number of switches on the path.
    hops: int = 5

    def __post_init__(self) -> None:  # noqa: D105
        _check("line_rate_bps", self.line_rate_bps)
        _check("hops", self.hops)

    def native(self) -> dict[str, object]:
        """Return the settings of the rate control for the native module."""
        return _native("swift", self.line_rate_bps, hops=self.hops)


@dataclass(frozen=True)
class Eqds:
    """EQDS, for datacenters in which the ports of receivers are the bottlenecks. All ranks must use it."""

    #: The rate of the ports of all ranks, in bits per second.
    line_rate_bps: int
    #: The bytes that a rank may send before it has credit, such as those of one round trip at the rate of the
    #: port.
    first_window_bytes: int = 64 * 1024

    def __post_init__(self) -> None:  # noqa: D105
        _check("line_rate_bps", self.line_rate_bps)
        _check("first_window_bytes", self.first_window_bytes)

    def native(self) -> dict[str, object]:
        """Return the settings of the rate control for the native module."""
        return _native("eqds", self.line_rate_bps, first_window_bytes=self.first_window_bytes)


#: Any of the rate controls.
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
