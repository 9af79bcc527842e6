"""How the ranks of a group meet: each puts what the others must know into torch's store."""

from __future__ import annotations

import json
import socket
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from ipaddress import ip_address

from torch.distributed import PrefixStore, Store, TCPStore

from farwrite.torch.options import Options

#: What is left in the place of a rank when all have read it: no key, but the place stays taken.
_MET = "met"


class RendezvousError(RuntimeError):
    """The ranks of a group cannot work together; the message names the rank and what is wrong."""


@dataclass(frozen=True)
class Place:
    """Where a rank meets the others."""

    #: Name of the group.
    group: str
    store: Store
    rank: int
    size: int
    #: How many groups of this name the process made before: a group may be destroyed and made again in the
    #: same store.
    before: int = 0

    def describe(self) -> str:
        """Return how messages name this rank."""
        return f"rank {self.rank} of group {self.group!r}"


def meet(place: Place, info: bytes, address: str, options: Options, timeout: timedelta) -> list[bytes]:
    """Exchange the information of all ranks, and return it by rank.

    Raises
    ------
    RendezvousError
        Where a rank does not come, is there twice, has another version, policy, size or sites of the group,
        or announces an address that others cannot reach.
    """
    keys = [f"farwrite/{place.before}/{rank}" for rank in range(place.size)]
    said = {
        "farwrite": version("farwrite"),
        "size": place.size,
        "policy": repr(options.policy) + (", replayed" if options.replay_log is not None else ""),
        "sites": None if options.sites is None else list(options.sites),
        "address": address,
        "info": b64encode(info).decode(),
    }
    mine = json.dumps(said).encode()
    if _claim(place.store, keys[place.rank], mine) != mine:
        raise RendezvousError(
            f"{place.describe()}: the store has a rank {place.rank} of a group of this name already: two "
            "groups of one name need stores or prefixes of their own, and so does a process that starts again"
        )
    _wait_for_all(place, keys, timeout)
    heard = [_parse(place, rank, place.store.get(key)) for rank, key in enumerate(keys)]
    # The last one to read clears the keys of the queue pairs from the store.
    if place.store.add(f"farwrite/{place.before}/read", 1) == place.size:
        for key in keys:
            place.store.set(key, _MET)
    _compare(place, said, heard)
    return [b64decode(str(theirs["info"])) for theirs in heard]


def local_address(place: Place, options: Options) -> str:
    """Return the address that this rank announces to the others."""
    if options.address is not None:
        return options.address
    store = place.store
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        raise RendezvousError(
            f"{place.describe()}: a {type(store).__name__} does not show which address of this machine "
            "the other ranks can reach: pass Options(address=...)"
        )
    family, kind, protocol, _, peer = socket.getaddrinfo(store.host, store.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Connecting a UDP socket sends nothing; it makes the kernel choose the source address.
        probe.connect(peer)
        return str(probe.getsockname()[0])


def _claim(store: Store, key: str, mine: bytes) -> bytes:
    return store.compare_set(key, "", mine)  # type: ignore[arg-type] # as above


def _wait_for_all(place: Place, keys: Sequence[str], timeout: timedelta) -> None:
    try:
        place.store.wait(list(keys), timeout)
    except RuntimeError as error:
        absent = [rank for rank, key in enumerate(keys) if not place.store.check([key])]
        if not absent:
            raise
        raise RendezvousError(
            f"{place.describe()}: no sign of rank {', '.join(map(str, absent))} after {timeout}"
        ) from error


def _parse(place: Place, rank: int, value: bytes) -> dict[str, object]:
    try:
        said = json.loads(value)
        if (
            isinstance(said, dict)
            and {"farwrite", "size", "policy", "sites", "address", "info"} <= said.keys()
        ):
            return said
    except ValueError:
        pass
    raise RendezvousError(
        f"{place.describe()}: what rank {rank} put into the store is not of this version of farwrite, "
        f"{version('farwrite')}: {value[:40]!r}"
    )


def _compare(place: Place, mine: dict[str, object], heard: Sequence[dict[str, object]]) -> None:
    for rank, theirs in enumerate(heard):
        for name in ("farwrite", "size", "policy", "sites"):
            if theirs[name] != mine[name]:
                what = "version" if name == "farwrite" else name
                raise RendezvousError(
                    f"{place.describe()}: rank {rank} has {what} {theirs[name]}, this rank {mine[name]}: "
                    "all ranks must have the same"
                )
    local = [rank for rank, theirs in enumerate(heard) if ip_address(str(theirs["address"])).is_loopback]
    if local and len(local) < len(heard):
        raise RendezvousError(
            f"{place.describe()}: rank {local[0]} announces {heard[local[0]]['address']}, which only its own "
            "machine can reach: pass Options(address=...) there, or a MASTER_ADDR that is no loopback address"
        )
