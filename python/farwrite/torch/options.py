"""Options of groups."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

from farwrite.torch import environment
from farwrite.torch.keys import read_key
from farwrite.torch.problems import problem
from farwrite.torch.rates import Adaptive, RateControl


@dataclass(frozen=True)
class Exact:
    """A policy: every byte of every operation arrives, because a scheme repairs losses."""

    #: Name of the scheme: `sr-rto`, `sr-nack`, `ec-mds:32,8` and others of docs/plan.md. With `auto`, each
    #: rank chooses a scheme for each message that it sends. Default: FARWRITE_TORCH_SCHEME, or `auto`. A name
    #: is checked when a group is made.
    scheme: str = field(default_factory=environment.scheme)
    #: With `auto`: the share of packets that the network is expected to lose. A rank uses this value until it
    #: has measured the loss. None: 1e-5.
    expected_loss: float | None = None

    def __post_init__(self) -> None:  # noqa: D105
        _check_scheme(self.scheme)
        loss = self.expected_loss
        if loss is None:
            return
        is_number = isinstance(loss, int | float) and not isinstance(loss, bool)
        if not is_number or not 0 <= loss < 1:
            raise ValueError(problem(f"expected_loss = {loss!r}: must be a share from 0 to below 1"))
        object.__setattr__(self, "expected_loss", float(loss))
        if self.scheme != "auto":
            raise ValueError(problem(f"expected_loss = {loss!r}: needs scheme='auto', not {self.scheme!r}"))


@dataclass(frozen=True)
class Bounded:
    """A policy: large operations on floats leave out contributions that are late or lost.

    Such an operation stops waiting for contributions at a deadline. In an all-reduce, ranks then exchange the
    reduced parts exactly, and each rank waits for every other rank. So all ranks get the same result, and
    replicas of a model stay equal, bit for bit. `parts` can set a deadline for this exchange too. Bounded
    operations other than all-reduces end at the deadline. A sum does not include the missing contributions. A
    mean divides by the number of contributions that arrived. With `hadamard_block`, no contribution is
    missing from a value: all values of a block with a lost packet are inexact. If an operation reduces
    nothing, its missing values are 0. Operations that are not bounded are exact.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. The message names the argument and its value.
    """

    #: The largest share of contributed bytes that may fail to arrive, from 1e-6 to below 1. With
    #: ``timeouts="loss-target"``, the deadline is the shortest one that keeps the missing share below
    #: `loss_target`, as far as waiting helps.
    loss_target: float = 0.01
    #: The rule by which timeouts follow from earlier operations: `loss-target`, `optinic` or `celeris`. The
    #: last two are the rules of the papers with these names. Their timeouts tend to the typical time of an
    #: operation, so they cut many operations. They ignore `loss_target`.
    timeouts: str = "loss-target"
    #: The shortest and the longest deadline, in seconds.
    timeout_range_s: tuple[float, float] = (1e-3, 60.0)
    #: How the contributions to an all-reduce travel. `direct`: each rank sends them to the owners of the
    #: parts, so a lost packet costs the contribution of one rank. `ring`: partial sums travel from rank to
    #: rank, in the order of ranks, so each byte crosses a path between sites once or twice, and a lost packet
    #: costs the contributions of all ranks that were added before. `auto`: `ring` if more than two ranks are
    #: in several `sites` and the ranks of each site follow each other, else `direct`.
    algorithm: str = "auto"
    #: Name of the scheme that carries contributions. With `best-effort`, a rank adds parity or repeats that
    #: fit into the deadline, if the network drops more than `loss_target`. `best-effort+sr` always has
    #: repeats, and `best-effort+ec-mds:32,8` always has parity.
    scheme: str = "best-effort"
    #: Number of values of a block of the Hadamard transform: a power of two such as 1024. With the transform,
    #: a lost packet becomes a small error of many values, in sums and means of float32, float16 and bfloat16.
    #: The transform can multiply a value by up to the square root of the block: with blocks of 1024, float16
    #: values above 2047 can become infinite, and all values of their block NaN. None: no transform.
    hadamard_block: int | None = None
    #: Number of blocks that share a packet: a power of two. None: the number of values of a packet.
    hadamard_stride: int | None = None
    #: The operations that have a deadline: any of `all-reduce`, `reduce-scatter`, `all-gather`, `all-to-all`.
    #: Do not add `all-gather` if it carries weights, as with FSDP and ZeRO-3. An all-to-all with split sizes
    #: is always exact.
    operations: tuple[str, ...] = ("all-reduce", "reduce-scatter")
    #: How the reduced parts of an all-reduce reach all ranks: `exact`, or `bounded`, with a deadline for the
    #: whole operation. In place of a reduced part that has not arrived at the deadline, a rank uses its own
    #: contribution. So replicas of a model drift apart: use `resynchronise`. With `hadamard_block`, a rank
    #: scales up what has arrived of a group of blocks, and uses its own contribution only in place of a group
    #: of which nothing has arrived. Such all-reduces can be logged and replayed only with a ring.
    parts: str = "exact"
    #: An operation whose result at a rank has fewer bytes is exact.
    min_bytes: int = 65536
    #: The scheme of exact operations.
    exact: Exact = field(default_factory=Exact)

    def __post_init__(self) -> None:  # noqa: D105
        if not isinstance(self.loss_target, float) or not 1e-6 <= self.loss_target < 1:
            raise ValueError(
                problem(f"loss_target = {self.loss_target!r}: must be a share from 1e-6 to below 1")
            )
        if self.timeouts not in _TIMEOUTS:
            raise ValueError(problem(f"timeouts = {self.timeouts!r}: must be one of {', '.join(_TIMEOUTS)}"))
        if not _is_range(self.timeout_range_s):
            raise ValueError(
                problem(
                    f"timeout_range_s = {self.timeout_range_s!r}: must be two times in seconds, "
                    f"above 0 and at most {_LONGEST_S:g}, the shorter first"
                )
            )
        if self.algorithm not in _ALGORITHMS:
            raise ValueError(
                problem(f"algorithm = {self.algorithm!r}: must be one of {', '.join(_ALGORITHMS)}")
            )
        _check_scheme(self.scheme)
        if not isinstance(self.exact, Exact):
            raise TypeError(problem(f"exact = {self.exact!r}: must be Exact(...)"))
        if not isinstance(self.operations, Collection) or isinstance(self.operations, str):
            raise TypeError(problem(f"operations = {self.operations!r}: must be a tuple of names"))
        unknown = [name for name in self.operations if name not in _BOUNDED]
        if unknown:
            raise ValueError(problem(f"operations has {unknown[0]!r}: must be of {', '.join(_BOUNDED)}"))
        # Ranks compare texts of their policies. The order of a set differs between processes.
        object.__setattr__(self, "operations", tuple(name for name in _BOUNDED if name in self.operations))
        if not _is_size(self.min_bytes):
            raise ValueError(problem(f"min_bytes = {self.min_bytes!r}: must be a number of bytes"))
        for name in ("hadamard_block", "hadamard_stride"):
            value = getattr(self, name)
            is_power = _is_size(value) and value > 0 and value & (value - 1) == 0
            if value is not None and not (is_power and value <= 2**25):
                raise ValueError(
                    problem(f"{name} = {value!r}: must be a power of two, at most 2**25, or None")
                )
        if self.parts not in ("exact", "bounded"):
            raise ValueError(problem(f"parts = {self.parts!r}: must be 'exact' or 'bounded'"))
        if self.hadamard_stride is not None and self.hadamard_block is None:
            raise ValueError(problem(f"hadamard_stride = {self.hadamard_stride}: needs a hadamard_block"))

    def hadamard(self) -> tuple[int, int] | None:
        """Return the block and the stride, 0 for the default, of the Hadamard transform; None without it."""
        if self.hadamard_block is None:
            return None
        return self.hadamard_block, self.hadamard_stride or 0

    def can_replay(self) -> bool:
        """Return whether the missing contributions of operations determine their results."""
        return self.parts == "exact" or self.hadamard_block is None or self.algorithm == "ring"

    def native(self) -> dict[str, object]:
        """Return the settings of bounded operations for the native module."""
        return {
            "scheme": self.scheme,
            "timeouts": self.timeouts,
            "loss_target_ppm": round(self.loss_target * 1e6),
            "timeout_range_s": tuple(self.timeout_range_s),
            "hadamard": self.hadamard(),
            "has_bounded_parts": self.parts == "bounded",
            "algorithm": self.algorithm,
        }


_TIMEOUTS = ("loss-target", "optinic", "celeris")
_ALGORITHMS = ("auto", "direct", "ring")
#: The longest time that options accept, in seconds: longer than any operation takes.
_LONGEST_S = 86400.0
_SHORTEST_DEAD_AFTER_S = 0.1


def _is_range(seconds: object) -> bool:
    if not isinstance(seconds, list | tuple) or len(seconds) != 2:
        return False
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in seconds):
        return False
    return bool(0 < seconds[0] <= seconds[1] <= _LONGEST_S)


_LAST_SITE = 2**32 - 2


def _are_sites(sites: object) -> bool:
    return isinstance(sites, list | tuple) and all(
        isinstance(site, int) and not isinstance(site, bool) and 0 <= site <= _LAST_SITE for site in sites
    )


def _are_ports(ports: object) -> bool:
    if not isinstance(ports, list | tuple) or len(ports) != 2:
        return False
    if not all(isinstance(port, int) and not isinstance(port, bool) for port in ports):
        return False
    return bool(0 < ports[0] <= ports[1] < 2**16)


def _is_wait(seconds: object) -> bool:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return False
    return _SHORTEST_DEAD_AFTER_S <= seconds <= _LONGEST_S


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**63


def _is_packet(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size % 8 == 0 and 64 <= size <= 65464


def _check_scheme(scheme: object) -> None:
    if not isinstance(scheme, str):
        raise TypeError(problem(f"scheme = {scheme!r}: must be the name of a scheme, such as 'sr-nack'"))


_BOUNDED = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
#: How the operations of a group handle losses of the network.
Policy = Exact | Bounded


#: The variables of options whose value only `Options` checks.
_VARIABLES = {
    "sites": environment.SITES,
    "address": environment.ADDRESS,
    "ports": environment.PORTS,
    "dead_after_s": environment.DEAD_AFTER,
    "buffer_growth_bytes": environment.BUFFER_GROWTH,
}


def _named(option: str, value: object) -> str:
    """Return an option and its value, or the environment variable that has set this value."""
    variable = _VARIABLES[option]
    # If the value of the variable is invalid, `value` is that of an argument.
    with suppress(ValueError):
        if value is not None and variable in os.environ and getattr(environment, option)() == value:
            return f"{variable}={os.environ[variable]}"
    return f"{option} = {value!r}"


def _default_policy() -> Policy:
    loss_target = environment.loss_target()
    return Exact() if loss_target is None else Bounded(loss_target)


@dataclass(frozen=True)
class Options:
    """Options of one group: ``dist.init_process_group("farwrite", pg_options=Options(...))``.

    A group that is made without options, such as by ``dist.new_group(ranks)``, has the options of the default
    group. An option that is not passed has the value of its environment variable, if this variable is set.
    The ranks exchange the keys of their queue pairs through torch's store. Anyone who has these keys can
    change the results of the job. So `trusted_store` or `key` must be set, unless the ranks have loopback
    addresses.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid. The message names the option and its value.
    """

    #: Whether only the ranks can read and write the store and the network path to it. Variable:
    #: FARWRITE_TORCH_TRUSTED_STORE=1.
    trusted_store: bool = field(default_factory=environment.trusted_store)
    #: 32 secret bytes that all ranks have; or a file (`pathlib.Path`) or an open descriptor that contains
    #: these bytes, or 64 hexadecimal digits. With a key, all data, and the messages that ranks put into the
    #: store, are encrypted. Variables: FARWRITE_TORCH_KEY_FILE names a file; FARWRITE_TORCH_KEY contains the
    #: digits.
    key: bytes | Path | int | None = field(default_factory=environment.key, repr=False)
    #: Whether operations are exact or bounded. All ranks must pass the same policy. Variable:
    #: FARWRITE_TORCH_BOUNDED=0.01 for ``Bounded(0.01)``.
    policy: Policy = field(default_factory=_default_policy)
    #: The rate control. Ranks may have different ones, but if a rank has `Eqds`, all ranks must have it.
    #: Variable: FARWRITE_TORCH_MAX_BPS=1000000000 for ``Adaptive(1000000000)``.
    rate_control: RateControl = field(default_factory=lambda: Adaptive(environment.max_bps()))
    #: The site of each rank, in the order of ranks, as a number from 0: `(0, 0, 1, 1)` if ranks 0 and 1 are
    #: in one datacenter, and ranks 2 and 3 in another. An exact all-reduce of more than 64 KiB then reduces
    #: within sites first, so that each byte crosses between two sites once in each direction. All ranks must
    #: pass the same sites. None: all ranks are at one site. Variable: FARWRITE_TORCH_SITES=0,0,1,1.
    sites: Sequence[int] | None = field(default_factory=environment.sites)
    #: The address of this rank that the other ranks can reach. Behind 1:1 address translation, it is the
    #: public address. None: the address from which this machine reaches the store. Variable:
    #: FARWRITE_TORCH_ADDRESS.
    address: str | None = field(default_factory=environment.address)
    #: The first and the last UDP port that this rank may bind. Each group binds one port. None: the
    #: operating system chooses the port. Variable: FARWRITE_TORCH_PORTS=5000-5100.
    ports: tuple[int, int] | None = field(default_factory=environment.ports)
    #: While an operation waits, the ranks ask each other for their progress. If a rank does not answer for
    #: this number of seconds, it counts as dead, and the group ends with an error that names the rank. So a
    #: shorter interruption of the network or of a rank's machine does no harm. Ranks may have different
    #: values. Variable: FARWRITE_TORCH_DEAD_AFTER_S.
    dead_after_s: float = field(default_factory=environment.dead_after_s)
    #: Memory, in bytes, that the buffers of the group may take at this rank in addition to the first 11 MiB
    #: for each other rank and direction. Buffers grow while they limit the data in flight, as on long paths
    #: with a high rate. Ranks may have different values. Variable: FARWRITE_TORCH_BUFFER_GROWTH_BYTES.
    buffer_growth_bytes: int = field(default_factory=environment.buffer_growth_bytes)
    #: Bytes of data in a packet, a multiple of 8. All ranks must pass the same value. None: the largest size
    #: that all paths between ranks carry.
    packet_bytes: int | None = None
    #: A folder in which each rank of each group writes one file: a log of the contributions that its bounded
    #: operations lacked. Ranks may have different folders.
    missing_log: str | None = None
    #: The folder of the logs of an earlier run. If bounded operations have the inputs of the earlier run,
    #: they also have its results, bit for bit. Each of them takes the time of an exact exchange of all
    #: inputs.
    replay_log: str | None = None

    def __post_init__(self) -> None:  # noqa: D105
        environment.check_names()
        if not isinstance(self.trusted_store, bool):
            raise TypeError(problem(f"trusted_store = {self.trusted_store!r}: must be True or False"))
        if self.key is not None:
            # The message shows a path or a descriptor. It does not show another value, which may be the key.
            name = f"key = {self.key!r}" if isinstance(self.key, int | Path) else "key"
            object.__setattr__(self, "key", read_key(self.key, name))
        if not isinstance(self.policy, Exact | Bounded):
            raise TypeError(problem(f"policy = {self.policy!r}: must be Exact(...) or Bounded(...)"))
        if not isinstance(self.rate_control, RateControl):
            raise TypeError(
                problem(
                    f"rate_control = {self.rate_control!r}: must be Adaptive(...), Fixed(...), Dcqcn(...), "
                    "Swift(...) or Eqds(...)"
                )
            )
        if self.sites is not None and not _are_sites(self.sites):
            raise ValueError(
                problem(
                    f"{_named('sites', self.sites)}: must be the number of a site for each rank, "
                    f"from 0 to {_LAST_SITE}"
                )
            )
        if self.address is not None:
            try:
                # It also takes numbers.
                ip_address(self.address if isinstance(self.address, str) else "")
            except ValueError:
                raise ValueError(
                    problem(f"{_named('address', self.address)}: must be an IPv4 or IPv6 address, as a str")
                ) from None
        if self.packet_bytes is not None and not _is_packet(self.packet_bytes):
            raise ValueError(
                problem(
                    f"packet_bytes = {self.packet_bytes!r}: must be a multiple of 8 from 64 to 65464, or None"
                )
            )
        if not _is_size(self.buffer_growth_bytes):
            raise ValueError(
                problem(
                    f"{_named('buffer_growth_bytes', self.buffer_growth_bytes)}: must be a number of bytes "
                    "from 0 to 2**63 - 1"
                )
            )
        if self.ports is not None and not _are_ports(self.ports):
            raise ValueError(
                problem(f"{_named('ports', self.ports)}: must be two ports from 1 to 65535, the lower first")
            )
        if not _is_wait(self.dead_after_s):
            raise ValueError(
                problem(
                    f"{_named('dead_after_s', self.dead_after_s)}: must be a number of seconds from "
                    f"{_SHORTEST_DEAD_AFTER_S:g} to {_LONGEST_S:g}"
                )
            )
        for name in ("missing_log", "replay_log"):
            folder = getattr(self, name)
            if folder is not None and not isinstance(folder, str):
                raise TypeError(problem(f"{name} = {folder!r}: must be the name of a folder"))
            if folder is not None and not isinstance(self.policy, Bounded):
                raise ValueError(
                    problem(
                        f"{name} = {folder!r}: needs policy=Bounded(...), because exact groups lack no "
                        "contributions"
                    )
                )
            if folder is not None and isinstance(self.policy, Bounded) and not self.policy.can_replay():
                raise ValueError(
                    problem(
                        f"{name} = {folder!r}: all-reduces with parts='bounded' and a hadamard_block can be "
                        "replayed only with algorithm='ring': otherwise, a rank does not know the "
                        "contributors of a packet that it lacks"
                    )
                )
        if self.missing_log is not None and self.replay_log is not None:
            raise ValueError(
                problem(
                    f"missing_log = {self.missing_log!r}, replay_log = {self.replay_log!r}: a replayed run "
                    "lacks the same contributions as before, so pass only one of the two"
                )
            )

    def of_ranks(self, ranks: Sequence[int]) -> Options:
        """Return the options that a group of some ranks of a group with these options gets from it."""
        return self if self.sites is None else replace(self, sites=tuple(self.sites[rank] for rank in ranks))

    def native(self, timeout_s: float, sites: Sequence[int]) -> dict[str, object]:
        """Return the settings of a group with this timeout and these sites for the native module."""
        exact = self.policy.exact if isinstance(self.policy, Bounded) else self.policy
        return {
            "timeout_s": timeout_s,
            "dead_after_s": float(self.dead_after_s),
            "scheme": exact.scheme,
            "expected_loss": exact.expected_loss,
            "sites": list(sites),
            "buffer_growth_bytes": self.buffer_growth_bytes,
            "rate_control": self.rate_control.native(),
            "bounded": self.policy.native() if isinstance(self.policy, Bounded) else None,
        }
