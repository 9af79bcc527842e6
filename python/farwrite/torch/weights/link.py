"""The connection of a publisher and a site: a group of two ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from time import monotonic, sleep
from uuid import uuid4

import torch
from torch.distributed import Store, TCPStore

from farwrite.torch.group import Group
from farwrite.torch.memory import octets
from farwrite.torch.options import Options
from farwrite.torch.rendezvous import Place, RendezvousError, without_prefix
from farwrite.torch.work import Work

PUBLISHER, SITE = 0, 1
#: The timeout of a receive that waits until the other rank has something to say.
UNLIMITED = timedelta(days=365)
#: Seconds between two looks at whether a publisher or a site has come.
JOIN_EVERY_S = 0.1
#: The most bytes of one send, and of all sends that run at the same time, and the most such sends.
_PIECE_BYTES = 2**24
_RUNNING_BYTES = 2**27
_MOST_RUNNING = 256


class Join:
    """How a publisher and its sites find each other in a store."""

    def __init__(self, store: Store, name: str, options: Options | None, timeout: timedelta) -> None:
        if timeout <= timedelta(0):
            raise ValueError(f"timeout = {timeout}: must be longer than 0")
        self._store = _own_connection(store)
        self._name = name
        # The sites of a default group are not those of a group of two.
        self._options = replace(options or Options(), sites=None)
        self.timeout = timeout
        #: Identifies the publisher. Another one in the same store has another value.
        self._publisher = ""

    @property
    def _key(self) -> str:
        """The key of the publisher: it has its identity, or nothing after it has left."""
        return f"farwrite-weights/{self._name}"

    @property
    def _joined(self) -> str:
        """The key of the number of sites that have joined the publisher."""
        return f"{self._key}/{self._publisher}"

    def begin(self) -> None:
        """Let sites join this publisher."""
        self._publisher = uuid4().hex
        self._store.set(self._joined, "0")
        self._store.set(self._key, self._publisher)

    def end(self) -> None:
        """Let no site join this publisher any more."""
        # The process that has the store may have ended.
        with suppress(RuntimeError):
            # Another publisher of this name may have begun, whose key `compare_set` does not change.
            self._store.compare_set(self._key, self._publisher, "")
            self._store.delete_key(self._joined)

    def enter(self) -> int:
        """Find the publisher. Return the number of this site, from 1 on."""
        until = monotonic() + self.timeout.total_seconds()
        while not (publisher := self._present()):
            if monotonic() > until:
                raise RendezvousError(f"the store has no publisher of {self._name!r} within {self.timeout}")
            sleep(JOIN_EVERY_S)
        self._publisher = publisher
        return self._store.add(self._joined, 1)

    def absence(self) -> str | None:
        """Return why a site need not wait for the publisher that it has found; None while it is there."""
        return None if self._present() == self._publisher else "the publisher has left"

    def count(self) -> int:
        """Return how many sites have joined the publisher."""
        # Adding 0 would write to the store, and so make the file of a `FileStore` longer each time.
        return int(self._store.get(self._joined))

    def _present(self) -> str:
        """Return the identity of the publisher in the store; an empty text if there is none."""
        if not self._store.check([self._key]):
            return ""
        return self._store.get(self._key).decode(errors="replace")

    def group(self, number: int, rank: int, watch: Callable[[], str | None]) -> Group:
        """Return the group of the publisher and a site. `watch` returns why this rank need not join it."""
        instance = f"weights-{self._publisher}-{number}"
        place = Place(self._name, self._store, rank, 2, instance, watch=watch)
        return Group(place, self._options, self.timeout, is_elastic=False)


def _own_connection(store: Store) -> Store:
    """Return a store; if it is a `TCPStore`, with a connection of its own.

    The calls of one connection wait for each other, so a call of the program that waits for a key would stop
    the threads of a publisher.
    """
    # A clone of a `FileStore` would count as one more process that has ended. torch 2.7 has no clones.
    if isinstance(without_prefix(store), TCPStore) and hasattr(store, "clone"):
        return store.clone()
    return store


class Link:
    """One rank of a group of two. It sends to the other rank, and receives from it, in order."""

    def __init__(self, group: Group, timeout: timedelta) -> None:
        self._group = group
        self._other = 1 - group.rank()
        self._timeout = timeout

    def send(self, tensor: torch.Tensor) -> Work:
        """Start to send a tensor."""
        self._group.set_timeout(self._timeout)
        return self._group.send([tensor], self._other, 0)

    def receive(self, tensor: torch.Tensor, timeout: timedelta | None = None) -> Work:
        """Start to receive a tensor. None: with the timeout of sends."""
        self._group.set_timeout(timeout or self._timeout)
        return self._group.recv([tensor], self._other, 0)

    def send_number(self, number: int) -> Work:
        """Start to send a number of 8 bytes."""
        return self.send(torch.tensor([number]))

    def receive_number(self, timeout: timedelta | None = None) -> int:
        """Wait for a number."""
        number = torch.zeros(1, dtype=torch.int64)
        self.receive(number, timeout).wait()
        return int(number)


class Running:
    """Operations that run at the same time, up to a number of bytes."""

    def __init__(self) -> None:
        self._operations: deque[tuple[Work, int, Callable[[], None]]] = deque()
        self._bytes = 0

    def add(
        self,
        start: Callable[[torch.Tensor], Work],
        values: torch.Tensor,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Start operations on contiguous values in memory of the host. Call `then` after the last one.

        Wait first if too many operations run.
        """
        pieces = [piece for piece in octets(values).split(_PIECE_BYTES) if len(piece)]
        for piece in pieces:
            while self._bytes + len(piece) > _RUNNING_BYTES or len(self._operations) >= _MOST_RUNNING:
                self._end_one()
            is_last = piece is pieces[-1]
            self._operations.append((start(piece), len(piece), then if is_last else lambda: None))
            self._bytes += len(piece)

    def end(self) -> None:
        """Wait for all operations."""
        while self._operations:
            self._end_one()

    def _end_one(self) -> None:
        work, size, then = self._operations.popleft()
        work.wait()
        self._bytes -= size
        then()
