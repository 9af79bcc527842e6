"""How the ranks of a group join each other: they exchange messages through torch's store."""

from __future__ import annotations

import errno
import hashlib
import json
import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib.metadata import version
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import count
from time import monotonic, sleep
from uuid import uuid4

from torch.distributed import HashStore, PrefixStore, Store, TCPStore

from farwrite import _native
from farwrite.torch import environment, signs_of_life
from farwrite.torch.options import Options
from farwrite.torch.rates import Eqds
from farwrite.torch.signs_of_life import SignsOfLife

#: The address of all ranks if they are on one machine.
_LOOPBACK = "127.0.0.1"
#: The value that replaces the first message of a rank when all ranks have read it. It contains no key of a
#: queue pair, but shows that the rank has joined.
_WAS_READ = "met"
#: The longest text of another rank in an error message.
_LONGEST_TEXT = 1000
#: The interval at which a waiting rank checks whether the other ranks can join.
_CHECK_EVERY = timedelta(seconds=0.2)
#: The first and the longest pause between two queries to the store.
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
#: How long a rank that cannot join waits for rank 0, so that it can inform rank 0.
_INFORM_TIMEOUT = timedelta(seconds=10)
#: The longest wait in a round after the first one. In a round, a rank looks for a path for up to 10 seconds.
_ROUND_TIMEOUT = timedelta(seconds=60)


class RendezvousError(RuntimeError):
    """The ranks of a group cannot join each other. The message names the rank and the problem."""


@dataclass(frozen=True)
class Place:
    """Where a rank joins the other ranks of a group: the store, and the names of its keys in the store."""

    #: Name of the group.
    group: str
    store: Store
    rank: int
    size: int
    #: Distinguishes the groups of one name: a group may be destroyed and made again in the same store.
    instance: str = "0"
    #: The number of the attempt to join, which rank 0 draws. A launcher that starts a job again may keep the
    #: store of the attempt before, whose keys have another number.
    attempt: str = ""
    #: Returns the reason why this rank need not wait for the other ranks any more; None while it must.
    watch: Callable[[], str | None] = lambda: None
    signs: SignsOfLife = field(default_factory=SignsOfLife, compare=False, repr=False)

    @property
    def begun(self) -> str:
        """The key of the store under which the number of the attempt is."""
        return f"farwrite/{self.instance}/attempt"

    def key(self, name: object) -> str:
        """Return a key of the store for this attempt."""
        return f"farwrite/{self.instance}/{self.attempt}/{name}"

    @staticmethod
    def instance_of(ranks: Sequence[int], before: int) -> str:
        """Return the instance of a group of these ranks, which have made such groups `before` times."""
        if not ranks:
            return str(before)
        return f"{before}-{hashlib.blake2b(repr(tuple(ranks)).encode(), digest_size=8).hexdigest()}"

    def context(self) -> bytes:
        """Return the context to which the messages of ranks are bound: job, group and instance."""
        return json.dumps([environment.job(), self.group, self.instance]).encode()

    def describe(self) -> str:
        """Return the name of this rank in error messages."""
        return f"rank {self.rank} of group {self.group!r}"


def meet(
    place: Place, info: bytes, address: str, options: Options, timeout: timedelta
) -> tuple[Place, list[bytes]]:
    """Exchange the first messages of all ranks. `info` is the message of this rank.

    Return the place with the number of the attempt, and the messages in the order of ranks.

    Raises
    ------
    RendezvousError
        If a rank does not join or joins twice, if the versions, policies, group sizes or sites of ranks
        differ, if only some ranks have a key or `Eqds`, or if a rank announces an address that other ranks
        cannot reach.
    """
    mine = {
        "farwrite": version("farwrite"),
        "size": place.size,
        "policy": repr(options.policy) + (", replayed" if options.replay_log is not None else ""),
        "sites": None if options.sites is None else list(options.sites),
        "key": "no key" if options.key is None else "a key",
        "rate_control": type(options.rate_control).__name__,
        "address": address,
        "info": b64encode(info).decode(),
    }
    place = _gather(place, json.dumps(mine).encode(), timeout)
    values = place.store.multi_get(_keys(place, 0))
    received = [_parse(place, mine, rank, value) for rank, value in enumerate(values)]
    _compare(place, mine, received)
    return place, [_bytes(place, rank, theirs["info"]) for rank, theirs in enumerate(received)]


def _gather(place: Place, mine: bytes, timeout: timedelta) -> Place:
    """Wait until the store has the messages of all ranks for one attempt. Return the place with this attempt.

    Rank 0 begins the attempt, and confirms it when all ranks have joined. If a rank finds the attempt of an
    earlier start of the job, rank 0 does not confirm this attempt, and the rank waits for the next one.
    """
    until = monotonic() + timeout.total_seconds()
    if place.rank == 0:
        place = replace(place, attempt=uuid4().hex)
        place.store.set(place.key(0), mine.decode())
        place.store.set(place.begun, place.attempt)
        _wait_for_all(place, _keys(place, 0), timeout)
        _check_others(place)
        place.store.set(place.key("complete"), str(place.size))
        return place
    while not _has(place, [place.begun]):
        _check_others(place)
        if monotonic() > until:
            raise RendezvousError(f"{place.describe()}: rank 0 did not join within {timeout}")
    while True:
        place = _current(place)
        is_ours = _claim(place.store, place.key(place.rank), mine) == mine
        while _current(place).attempt == place.attempt:
            if is_ours and _has(place, [place.key("complete")]):
                _same_size(place, place.store.get(place.key("complete")))
                return place
            if is_ours:
                _check_others(place)
            if monotonic() > until:
                raise RendezvousError(f"{place.describe()}: {_absence(place, is_ours, timeout)}")
            if not is_ours:
                sleep(_CHECK_EVERY.total_seconds())


def _has(place: Place, keys: Sequence[str]) -> bool:
    """Return whether the store has these keys, or gets them within `_CHECK_EVERY`."""
    started = monotonic()
    # The method `wait` of the store is not used, because it prints a warning on stderr at each timeout.
    while not place.store.check(list(keys)):
        waited_s = monotonic() - started
        if waited_s > _CHECK_EVERY.total_seconds():
            return False
        # So a rank sees the keys later than they come by at most a quarter of the time that it has waited.
        sleep(min(max(_FIRST_PAUSE_S, waited_s / 4), _LONGEST_PAUSE_S))
    return True


def _current(place: Place) -> Place:
    """Return the place with the number of the current attempt, which is in the store."""
    return replace(place, attempt=place.store.get(place.begun).decode(errors="replace"))


def _check_others(place: Place) -> None:
    """Raise RendezvousError if another rank cannot join or was killed, or if `watch` has a reason."""
    if place.store.check([place.key("failed")]):
        reason = _load(place, 0, place.store.get(place.key("failed")))
        rank, error = (str(reason.get(name))[:_LONGEST_TEXT] for name in ("rank", "error"))
        raise RendezvousError(f"{place.describe()}: rank {rank} cannot join: {error}")
    # Rank 0 checks the signs of life of all other ranks. Each other rank checks those of rank 0.
    others = range(1, place.size) if place.rank == 0 else [0]
    dead = place.signs.dead(place.store, lambda rank: place.key(f"alive/{rank}"), place.rank, others)
    if dead is not None:
        error = (
            f"rank {dead} has given no sign of life for {signs_of_life.DEAD_AFTER_S:g} s: its process was "
            "killed, or its machine stopped"
        )
        place.store.set(place.key("failed"), json.dumps({"rank": place.rank, "error": error}))
        raise RendezvousError(f"{place.describe()}: {error}")
    if failure := place.watch():
        raise RendezvousError(f"{place.describe()}: {failure}")


@contextmanager
def refusing(place: Place) -> Iterator[None]:
    """Inform the other ranks if this rank cannot join because of an exception in the block."""
    try:
        yield
    except Exception as error:
        # The store may have raised the exception. Then this rank cannot inform the other ranks.
        with suppress(RuntimeError):
            # The identifier distinguishes this value from the value of an earlier start of the job.
            reason = {"rank": place.rank, "error": str(error)[:_LONGEST_TEXT], "id": uuid4().hex}
            _refuse(place, json.dumps(reason))
        raise


def _refuse(place: Place, reason: str) -> None:
    """Put the reason why this rank cannot join into the store, for the current attempt.

    If the store has a message of this rank for an attempt, the attempt belongs to an earlier start of the
    job.
    """
    if place.rank == 0:
        place = replace(place, attempt=uuid4().hex)
        place.store.set(place.key("failed"), reason)
        place.store.set(place.begun, place.attempt)
        return
    until = monotonic() + _INFORM_TIMEOUT.total_seconds()
    while monotonic() < until:
        if _has(place, [place.begun]):
            place = _current(place)
            place.store.set(place.key("failed"), reason)
            if _claim(place.store, place.key(place.rank), reason.encode()) == reason.encode():
                return
            sleep(_CHECK_EVERY.total_seconds())


def _same_size(place: Place, theirs: bytes) -> None:
    if theirs != str(place.size).encode():
        raise RendezvousError(
            f"{place.describe()}: rank 0 has size {theirs[:20].decode(errors='replace')}, and this "
            f"rank has {place.size}: all ranks must have the same size"
        )


def _absence(place: Place, is_ours: bool, timeout: timedelta) -> str:
    """Return the reason why this rank could not join."""
    if not is_ours:
        return (
            f"the store already has a rank {place.rank} of a group of this name, and rank 0 began no new "
            f"attempt within {timeout}: give each of two groups of one name its own store or prefix"
        )
    absent = [str(rank) for rank in range(place.size) if not place.store.check([place.key(rank)])]
    return f"rank {', '.join(absent or ['0'])} did not join within {timeout}"


def join(
    place: Place, communicator: _native.Communicator, address: str, options: Options, timeout: timedelta
) -> int:
    """Join this rank to all other ranks. Return the number of bytes of data in a packet.

    In the first round, the ranks compare the settings that must be equal on all ranks. In later rounds, they
    find the paths to each other, and agree on the packet size.

    Raises
    ------
    RendezvousError
        For the reasons that `meet` lists, or if another rank cannot join. The message contains its reason.
    farwrite.torch.CollectiveError
        If this rank cannot join, for example because it finds no path to another rank.
    """
    message = communicator.meet([])
    place, messages = meet(place, message or b"", address, options, timeout)
    for number in count(1):
        try:
            message = communicator.meet(messages)
        except Exception as error:
            # The other ranks read the error, so they do not wait until their timeouts.
            place.store.set(_keys(place, number)[place.rank], json.dumps({"error": str(error)}))
            raise
        if message is None:
            # This round shows that all ranks have read the last messages, and that none has failed.
            exchange(place, number, b"", timeout)
            return communicator.packet_bytes or 0
        messages = exchange(place, number, message, timeout)
    raise AssertionError("the rounds have an end")


def exchange(place: Place, number: int, message: bytes, timeout: timedelta) -> list[bytes]:
    """Exchange the messages of all ranks in round `number`, and return them in the order of ranks.

    Raises
    ------
    RendezvousError
        If a rank sends no message in this round, or cannot join.
    """
    keys = _keys(place, number)
    place.store.set(keys[place.rank], json.dumps({"message": b64encode(message).decode()}))
    _wait_for_all(place, keys, min(timeout, _ROUND_TIMEOUT))
    received = [_parse_round(place, rank, value) for rank, value in enumerate(place.store.multi_get(keys))]
    # All ranks have read the messages of the round before, because each has sent one in this round.
    if number == 1:
        place.store.set(_keys(place, 0)[place.rank], _WAS_READ)
    else:
        place.store.delete_key(_keys(place, number - 1)[place.rank])
    for rank, theirs in enumerate(received):
        if "error" in theirs:
            raise RendezvousError(f"{place.describe()}: rank {rank} cannot join: {theirs['error']}")
    return [_bytes(place, rank, theirs["message"]) for rank, theirs in enumerate(received)]


def _keys(place: Place, number: int) -> list[str]:
    """Return the keys of the messages of a round in the order of ranks. Round 0 is `meet`."""
    names = (f"round{number}/{rank}" if number else rank for rank in range(place.size))
    return [place.key(name) for name in names]


def bound_address(address: str) -> str:
    """Return the address that a rank binds if it announces `address`.

    Behind 1:1 address translation, the machine does not have the announced address. The rank then binds the
    address from which the machine reaches the announced address.
    """
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
        else:
            return address
        # Any port will do, because connecting a UDP socket sends nothing.
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def without_prefix(store: Store) -> Store:
    """Return the store below any number of `PrefixStore`."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def local_address(place: Place, options: Options) -> str:
    """Return the address that this rank announces to the other ranks."""
    if options.address is not None:
        return options.address
    if environment.is_one_host():
        return _LOOPBACK
    store = without_prefix(place.store)
    if isinstance(store, HashStore):
        # All of its ranks are threads of this process.
        return _LOOPBACK
    if not isinstance(store, TCPStore):
        raise RendezvousError(
            f"{place.describe()}: a {type(store).__name__} does not show which address of this machine "
            "the other ranks can reach: pass Options(address=...)"
        )
    family, kind, protocol, _, peer = socket.getaddrinfo(store.host, store.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Connecting a UDP socket sends nothing, but the kernel chooses the source address.
        probe.connect(peer)
        return str(probe.getsockname()[0])


def _claim(store: Store, key: str, mine: bytes) -> bytes:
    return store.compare_set(key, "", mine)  # type: ignore[arg-type] # torch takes bytes


def _wait_for_all(place: Place, keys: Sequence[str], timeout: timedelta) -> None:
    until = monotonic() + timeout.total_seconds()
    absent = asked = list(keys)
    while absent:
        if _has(place, asked):
            absent = asked = absent[len(asked) :]
            continue
        # Each query contains all of its keys. A late rank may be late for long, so the next ones have fewer.
        asked = asked[: (len(asked) + 1) // 2]
        _check_others(place)
        if monotonic() > until:
            ranks = [str(rank) for rank, key in enumerate(keys) if not place.store.check([key])]
            # The last key may have arrived after the wait, so that no rank is absent.
            if ranks:
                what = f"rank {', '.join(ranks)} did not join within {timeout}"
                raise RendezvousError(f"{place.describe()}: {what}")


def _parse(place: Place, mine: dict[str, object], rank: int, value: bytes) -> dict[str, object]:
    """Return the fields of the first message of a rank, which must be of the version of this rank."""
    fields = _load(place, rank, value)
    if isinstance(fields.get("farwrite"), str):
        # A message of another version may lack other fields.
        _check_same(place, mine, rank, fields, "farwrite")
    if mine.keys() <= fields.keys():
        return fields
    raise _foreign(place, rank, value)


def _parse_round(place: Place, rank: int, value: bytes) -> dict[str, object]:
    fields = _load(place, rank, value)
    if fields.keys() in ({"message"}, {"error"}):
        return fields
    raise _foreign(place, rank, value)


def _load(place: Place, rank: int, value: bytes) -> dict[str, object]:
    """Return the fields of a value of the store. The value may consist of any bytes."""
    try:
        fields = json.loads(value)
    # A value with many nested brackets causes a RecursionError.
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise _foreign(place, rank, value)
    return fields


def _bytes(place: Place, rank: int, text: object) -> bytes:
    """Return the bytes that a field contains in base64."""
    try:
        return b64decode(str(text), validate=True)
    except ValueError:
        raise _foreign(place, rank, str(text).encode(errors="replace")) from None


def _foreign(place: Place, rank: int, value: bytes) -> RendezvousError:
    return RendezvousError(
        f"{place.describe()}: the data that rank {rank} stored is not from this version of farwrite, "
        f"{version('farwrite')}: {value[:40]!r}"
    )


def _compare(place: Place, mine: dict[str, object], received: Sequence[dict[str, object]]) -> None:
    for rank, theirs in enumerate(received):
        for name in ("farwrite", "size", "policy", "sites"):
            _check_same(place, mine, rank, theirs, name)
        if theirs["key"] != mine["key"]:
            raise RendezvousError(
                f"{place.describe()}: rank {rank} has {theirs['key']}, and this rank has {mine['key']}: all "
                "ranks must have the same key, or none"
            )
        controls = theirs["rate_control"], mine["rate_control"]
        if controls[0] != controls[1] and Eqds.__name__ in controls:
            raise RendezvousError(
                f"{place.describe()}: rank {rank} has the rate control {controls[0]}, and this rank has "
                f"{controls[1]}: if a rank has {Eqds.__name__}, all ranks must have it"
            )
    local = [rank for rank, theirs in enumerate(received) if _address(place, rank, theirs).is_loopback]
    if local and len(local) < len(received):
        raise RendezvousError(
            f"{place.describe()}: rank {local[0]} announces {received[local[0]]['address']}, which only its "
            "own machine can reach: pass Options(address=...) on that rank, or set MASTER_ADDR to an address "
            "that is not a loopback address"
        )


def _check_same(
    place: Place, mine: dict[str, object], rank: int, theirs: dict[str, object], name: str
) -> None:
    """Raise RendezvousError if the messages of another rank and of this rank differ in a field."""
    if theirs[name] != mine[name]:
        what = "version" if name == "farwrite" else name
        raise RendezvousError(
            f"{place.describe()}: rank {rank} has {what} {theirs[name]}, and this rank has {mine[name]}: all "
            f"ranks must have the same {what}"
        )


def _address(place: Place, rank: int, theirs: dict[str, object]) -> IPv4Address | IPv6Address:
    address = str(theirs["address"])
    try:
        return ip_address(address)
    except ValueError:
        raise RendezvousError(
            f"{place.describe()}: rank {rank} announces the address {address[:40]!r}, which is not an IP "
            "address: pass Options(address=...) on that rank"
        ) from None
