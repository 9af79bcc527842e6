"""The ranks that torch's `reconfigure` gives to a group: handles, and the place where their ranks join."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import uuid4

from torch.distributed import PrefixStore, Store, TCPStore

from farwrite.torch.options import Options
from farwrite.torch.rendezvous import Place, RendezvousError, without_prefix


@dataclass(frozen=True)
class Handle:
    """What the handle of a rank says."""

    farwrite: str
    #: The name of the rank's group.
    group: str
    #: The host and the port of the rank's store. None: another kind of store, which all ranks must share.
    store: tuple[str, int] | None
    #: The site of the rank, if its options have sites.
    site: int

    @staticmethod
    def parse(text: str) -> Handle:
        """Return what a handle says."""
        try:
            fields = json.loads(text)
            store = fields["store"]
            return Handle(
                str(fields["farwrite"]),
                str(fields["group"]),
                None if store is None else (str(store[0]), int(store[1])),
                int(fields["site"]),
            )
        except (ValueError, TypeError, LookupError, RecursionError):
            raise ValueError(f"handle {text[:80]!r}: is not one of farwrite") from None


class Members:
    """What a rank must remember to join other ranks than those with which its group began."""

    def __init__(self, place: Place, options: Options) -> None:
        self._first = place
        self._used: set[int] = set()
        # Without the prefixes that torch adds, which differ between jobs.
        self._store = without_prefix(place.store)
        site = 0 if options.sites is None or place.rank >= len(options.sites) else options.sites[place.rank]
        #: The handle of this rank.
        self.handle = json.dumps(
            asdict(Handle(uuid4().hex, place.group, _address(self._store), site)), sort_keys=True
        )
        self._rank = place.rank
        self._size = place.size

    def next(self, uuid: int, handles: Collection[str]) -> list[Handle]:
        """Check the arguments of `reconfigure`. Return the handles in the order of ranks."""
        # A set has no order, so that all ranks sort it.
        texts = list(handles) if isinstance(handles, Sequence) else sorted(handles)
        if uuid in self._used:
            raise RuntimeError(f"{self._first.describe()}: uuid = {uuid}: already used by this group")
        parsed = [Handle.parse(text) for text in texts]
        if texts.count(self.handle) != 1 or len(set(texts)) != len(texts):
            raise ValueError(
                f"{self._first.describe()}: handles: must have the handles of this rank and of the others "
                f"once, and this rank's is there {texts.count(self.handle)} times among {len(texts)}"
            )
        self._used.add(uuid)
        self._rank, self._size = texts.index(self.handle), len(texts)
        return parsed

    def place(self, uuid: int, handles: Sequence[Handle], timeout: timedelta) -> Place:
        """Return the place where the ranks of these handles join: in the store of the first one."""
        first = handles[0]
        ranks = hashlib.blake2b(repr([one.farwrite for one in handles]).encode(), digest_size=8).hexdigest()
        store: Store = self._store
        if first.store is not None and first.store != _address(store):
            try:
                store = TCPStore(*first.store, is_master=False, wait_for_workers=False, timeout=timeout)
            except RuntimeError as error:
                raise RendezvousError(
                    f"{self._first.describe()}: cannot reach the store of the first rank, "
                    f"{first.store[0]}:{first.store[1]}: {error}"
                ) from error
        store = PrefixStore("farwrite-reconfigure", store)
        return Place(first.group, store, self._rank, self._size, f"{uuid}-{ranks}")


def _address(store: Store) -> tuple[str, int] | None:
    return (store.host, store.port) if isinstance(store, TCPStore) else None
