"""The planner: it chooses the scheme for a message on a path.

`plan` compares selective repeat, go-back-N and erasure codes. The times are those of `farwrite.model`,
variant ``protocol``. Schemes that need more parity or more cores than are available are left out. If losses
come in bursts, the planner simulates messages, and `Alternative.draws` is their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farwrite import _native
from farwrite.model.arguments import Argument, numbers, places, words
from farwrite.model.loss import PROBABILITY, Markov


@dataclass(frozen=True)
class Alternative:
    """The predicted times and costs of one scheme for the message."""

    scheme: str
    #: The quantity that the planner minimises, in seconds.
    objective_s: float
    mean_s: float
    p99_s: float
    p999_s: float
    #: The objective divided by the time that the message takes without loss and without parity.
    slowdown: float
    #: Parity chunks for each data chunk.
    parity_overhead: float
    #: Cores that coding needs at each end to keep up with the rate of the path.
    cores: float
    #: Number of simulated messages from which the times are computed. The seed of the simulation is fixed.
    #: None: the times are exact.
    draws: int | None = None
    #: With `draws`, the interval in seconds that contains `objective_s` with a probability of 95 %. The upper
    #: end is None if there are too few draws for a bound.
    interval_s: tuple[float, float | None] | None = None


@dataclass(frozen=True)
class Border:
    """The value of an input beyond which the chosen scheme is no longer among the best."""

    #: The value of the input at the border, with an error of a few percent.
    value: float
    #: The best scheme beyond this value.
    scheme: str


@dataclass(frozen=True)
class Stake:
    """The cost of the chosen scheme if one input has another value."""

    #: The other value of the input.
    value: float
    #: The best scheme for the other value.
    best: str
    #: The objective of the chosen scheme divided by the objective of `best`, at the other value.
    cost: float


@dataclass(frozen=True)
class Sensitivity:
    """How the choice depends on one input, while all other inputs keep their values."""

    #: Name of the argument of `plan`.
    name: str
    #: Value of the argument.
    value: float
    #: The border below the value; None if there is no border within a factor of 1024.
    below: Border | None
    #: The border above the value; None if there is no border within a factor of 1024.
    above: Border | None
    #: The cost of the chosen scheme at 0.1, 0.5, 2 and 10 times the value.
    stakes: tuple[Stake, ...]


class Plan:
    """The result of `plan`: the chosen scheme, and the schemes that it was compared with."""

    def __init__(self, native: _native.Plan) -> None:
        self._native = native

    def __repr__(self) -> str:
        """Return the name and the objective of the chosen scheme."""
        return f"<Plan: {self.best.scheme}, {self.best.objective_s:.6g} s>"

    @property
    def best(self) -> Alternative:
        """The chosen scheme.

        Among the schemes whose objective is within `close` of the best objective, it has the least parity. Of
        several schemes with the least parity, it needs the fewest cores.
        """
        return _alternative(*self._native.best())

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """All schemes that keep within the parity and the cores, in ascending order of the objective."""
        return tuple(_alternative(*row) for row in self._native.alternatives())

    @property
    def left_out(self) -> dict[str, str]:
        """The candidates that cannot be evaluated, each with the reason.

        If `plan` got `candidates`, also those that exceed a limit. The candidates of `plan` itself are within
        the limits.
        """
        return dict(self._native.left_out())

    def sensitivity(self) -> tuple[Sensitivity, ...]:
        """Return how the choice depends on each input."""
        return tuple(
            Sensitivity(
                name,
                value,
                Border(*below) if below else None,
                Border(*above) if above else None,
                tuple(Stake(*stake) for stake in stakes),
            )
            for name, value, below, above, stakes in self._native.sensitivity()
        )


def _alternative(
    scheme: str, costs: Sequence[float], drawn: tuple[int, float, float | None] | None
) -> Alternative:
    objective_s, mean_s, p99_s, p999_s, slowdown, parity_overhead, cores = costs
    draws, interval_s = None, None
    if drawn is not None:
        draws, interval_s = drawn[0], drawn[1:]
    return Alternative(
        scheme, objective_s, mean_s, p99_s, p999_s, slowdown, parity_overhead, cores, draws, interval_s
    )


def plan(
    message_bytes: float,
    bandwidth_bps: float,
    rtt_s: float,
    loss_chunk: float | Markov,
    chunk_bytes: float = 4096,
    *,
    objective: str = "mean",
    max_parity_overhead: float = 0.25,
    cores: float | None = None,
    xor_bps: float | None = None,
    mds_bps: float | None = None,
    candidates: Sequence[str] | None = None,
    close: float = 0.01,
) -> Plan:
    """Find the best scheme for one message.

    Parameters
    ----------
    message_bytes, bandwidth_bps, rtt_s, loss_chunk, chunk_bytes
        As in `farwrite.model.completion_time`, one number each.
    objective
        The quantity to minimise: ``mean``, or a percentile of the time such as ``p99.9``, up to
        ``p99.9999999999999``.
    max_parity_overhead
        The largest number of parity chunks that a scheme may send for each data chunk.
    cores
        Cores that coding may use at each end. With 0, erasure codes are left out. None: one core,
        whatever the machine.
    xor_bps, mds_bps
        Speed of coding on one core, in bits of data per second. The speed of an MDS code is `mds_bps` divided
        by the number of parity chunks of a group. None: the speeds of Fig. 11 of the SDR-RDMA paper.
        ``farwrite codes bench`` measures the speeds of this machine.
    candidates
        Names of schemes to choose from. None: selective repeat, go-back-N, and codes of 4 to 128 data chunks.
    close
        Schemes whose objective exceeds the best objective by at most this share count as equal. The scheme
        with the least parity, and then the fewest cores, is chosen among them.

    Returns
    -------
    Plan
        The chosen scheme as `Plan.best`, all compared schemes, and the sensitivity of the choice.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, or is out of its range. The message names the argument and its unit.

    Examples
    --------
    >>> plan(128 * 2**20, 400e9, 25e-3, 1e-4, objective="p99.9", cores=8).best.scheme
    'ec-mds:128,2'
    """
    packets = 1
    if isinstance(loss_chunk, Markov):
        *chances, number = loss_chunk.arguments()
        loss = [_one(chance) for chance in chances]
        packets = int(_one(number))
    else:
        loss = [_one(numbers("loss_chunk", PROBABILITY, loss_chunk))]

    def optional(name: str, value: float | None, unit: str = "bit/s") -> float | None:
        return None if value is None else _one(numbers(name, unit, value))

    if not isinstance(objective, str):
        raise TypeError(f"objective must be one string, not {objective!r}")
    if candidates is not None:
        candidates = words("candidates", candidates).values.ravel().tolist()
    with places(()):
        native = _native.Plan(
            message_bytes=_one(numbers("message_bytes", "bytes", message_bytes)),
            bandwidth_bps=_one(numbers("bandwidth_bps", "bit/s", bandwidth_bps)),
            rtt_s=_one(numbers("rtt_s", "s", rtt_s)),
            loss=loss,
            packets_per_chunk=packets,
            chunk_bytes=_one(numbers("chunk_bytes", "bytes", chunk_bytes)),
            objective=objective,
            max_parity_overhead=_one(
                numbers("max_parity_overhead", "parity chunks a data chunk", max_parity_overhead)
            ),
            cores=optional("cores", cores, "cores"),
            xor_bps=optional("xor_bps", xor_bps),
            mds_bps=optional("mds_bps", mds_bps),
            candidates=candidates,
            close=_one(numbers("close", "as a share", close)),
        )
        return Plan(native)


def _one(argument: Argument) -> float:
    if argument.values.shape != ():
        raise TypeError(f"{argument.name} ({argument.unit}) must be one number, not an array")
    return float(argument.values)


__all__ = ["Alternative", "Border", "Plan", "Sensitivity", "Stake", "plan"]
