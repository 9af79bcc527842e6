"""The trainer's end: versions of a state dict, and the threads that send them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition, Lock, Thread
from time import sleep
from types import TracebackType

import torch
from torch.distributed import Store

from farwrite.torch.arguments import Call
from farwrite.torch.group import Group
from farwrite.torch.memory import Memory
from farwrite.torch.options import Options
from farwrite.torch.process_exit import forget, leave_at_exit
from farwrite.torch.weights.header import Entry, check_fit, check_type, digest, encode
from farwrite.torch.weights.link import JOIN_EVERY_S, PUBLISHER, UNLIMITED, Join, Link, Running

#: Seconds between two looks at whether a site that waits for a version is alive.
_ALIVE_EVERY_S = 1.0
#: How many sites that have left a publisher remembers.
_MOST_LEFT = 100
#: The longest wait for a thread when a publisher is closed. Looking for a path takes up to 10 s.
_LONGEST_JOIN_S = 15.0
_CLOSED = "the publisher is closed"


@dataclass(frozen=True)
class Site:
    """What a publisher knows of a site."""

    #: The newest version that the site has received, with right digests; 0: none.
    version: int
    #: Why the site gets no more versions; None: it does.
    left: str | None = None


@dataclass(frozen=True)
class _Copy:
    """The values of a tensor, and the version that brought them."""

    values: torch.Tensor
    entry: Entry
    since: int


@dataclass(frozen=True)
class _Version:
    number: int
    copies: dict[str, _Copy]


class Publisher:
    """The trainer's end. It sends the newest version to each site that asks, from threads of its own.

    Parameters
    ----------
    store
        The store of torch through which sites join, such as a `TCPStore` of the trainer.
    name
        The name of the weights. A store can have several publishers with different names. A publisher takes
        the place of an earlier one of its name, as after a restart: sites that join afterwards join it.
    options
        The options of the groups of two ranks; None: those of environment variables. If trainer and sites are
        on different machines, they need a key or a trusted store.
    timeout
        The longest time that joining a site takes, and that a site may take for 128 MiB. A site that takes
        longer gets no more versions, until it subscribes again.
    """

    def __init__(
        self,
        store: Store,
        name: str = "weights",
        *,
        options: Options | None = None,
        timeout: timedelta = timedelta(minutes=5),
    ) -> None:
        self._join = Join(store, name, options, timeout)
        self._join.begin()
        #: A process that is forked from this one has none of the threads of the publisher.
        self._process = os.getpid()
        self._publishing = Lock()
        #: Protects the following fields, and is notified when one changes.
        self._changed = Condition()
        self._newest = _Version(0, {})
        #: How many sites receive a version at present.
        self._sending: Counter[int] = Counter()
        self._sites: dict[int, Site] = {}
        self._serving: dict[int, Thread] = {}
        self._groups: dict[int, Group] = {}
        self._is_closed = False
        self._accepting = Thread(target=self._accept, name="farwrite-weights", daemon=True)
        self._accepting.start()
        leave_at_exit(self)

    def publish(self, state_dict: Mapping[str, torch.Tensor], version: int | None = None) -> int:
        """Make a state dict the newest version, and return its number.

        The tensors are copied to memory of the host, so that the trainer may write to them afterwards. The
        publisher has at most two copies of a state dict. So it waits for sites that still receive the version
        before the last one, and for no other sites.

        Parameters
        ----------
        state_dict
            Dense tensors by name. Names, types and shapes are those of the first version.
        version
            The number of the version, larger than the last one. None: the next number, from 1 on.

        Raises
        ------
        ValueError, TypeError
            If the version is not larger, or if a tensor does not fit. The message names the tensor.
        RuntimeError
            If the publisher is closed.
        """
        return self._publish(state_dict, version, is_delta=False)

    def publish_delta(self, changed: Mapping[str, torch.Tensor], version: int | None = None) -> int:
        """Do what `publish` does with new values of some tensors. The others keep theirs.

        A site that has the version before receives only these tensors.
        """
        return self._publish(changed, version, is_delta=True)

    def sites(self) -> dict[int, Site]:
        """Return the sites by number, from 1 on, in the order in which they joined.

        The publisher remembers the last 100 sites that have left.
        """
        with self._changed:
            return dict(self._sites)

    def wait(self, version: int, sites: int, timeout: timedelta | None = None) -> bool:
        """Wait until at least `sites` sites have received `version`, or a newer one. Return whether they did.

        Sites that have left afterwards count, too.
        """

        def have_received() -> bool:
            return sum(site.version >= version for site in self._sites.values()) >= sites

        with self._changed:
            limit_s = None if timeout is None else timeout.total_seconds()
            self._changed.wait_for(lambda: self._is_closed or have_received(), limit_s)
            return have_received()

    def close(self) -> None:
        """Leave all sites, also those that receive a version at present. Call `wait` first to end these.

        In a process that is forked from that of the publisher, do nothing.
        """
        forget(self)
        self.announce_end(None)
        self.shutdown()

    def __enter__(self) -> Publisher:
        """Return the publisher."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the publisher."""
        self.close()

    def announce_end(self, reason: str | None) -> None:
        """Start nothing more. At the end of the process, the groups inform the sites."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def shutdown(self) -> None:
        """Wait until all threads have ended."""
        if os.getpid() != self._process:
            return
        self._accepting.join(_LONGEST_JOIN_S)
        # That thread reads a key that `end` deletes, and would wait for it.
        if not self._accepting.is_alive():
            self._join.end()
        with self._changed:
            groups, threads = list(self._groups.values()), list(self._serving.values())
        for group in groups:
            group.shutdown()
        for thread in threads:
            thread.join(_LONGEST_JOIN_S)

    def _publish(self, tensors: Mapping[str, torch.Tensor], version: int | None, *, is_delta: bool) -> int:
        with self._publishing:
            last = self._newest
            number = last.number + 1 if version is None else version
            if not last.number < number < 2**63:
                raise ValueError(f"version = {number}: must be larger than {last.number}, the last version")
            _check(tensors, last, is_delta=is_delta)
            self._wait_for_memory(last.number)
            copies = {name: _copy(tensor, number) for name, tensor in tensors.items()}
            with self._changed:
                self._newest = _Version(number, last.copies | copies)
                self._changed.notify_all()
            return number

    def _wait_for_memory(self, newest: int) -> None:
        """Wait until no site receives a version before the newest one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or all(one >= newest for one in self._sending))
            if self._is_closed:
                raise RuntimeError(_CLOSED)

    def _accept(self) -> None:
        """Start a thread for each site that joins."""
        number = 0
        while not self._is_closed:
            try:
                joined = self._join.count()
            except RuntimeError:
                # The process that has the store has ended.
                return
            while number < joined:
                number += 1
                name = f"farwrite-weights-{number}"
                thread = Thread(target=self._serve, args=[number], name=name, daemon=True)
                with self._changed:
                    self._serving[number] = thread
                thread.start()
            sleep(JOIN_EVERY_S)

    def _serve(self, number: int) -> None:
        """Send versions to a site until it leaves or fails."""
        self._note(number, Site(0))
        group = None
        try:
            group = self._join.group(number, PUBLISHER, lambda: _CLOSED if self._is_closed else None)
            with self._changed:
                if self._is_closed:
                    raise RuntimeError(_CLOSED)
                self._groups[number] = group
            self._send_versions(number, group)
        except (RuntimeError, ValueError, OSError) as error:
            self._note(number, Site(self._sites[number].version, str(error)))
        finally:
            if group is not None:
                group.shutdown()
            with self._changed:
                self._groups.pop(number, None)
                del self._serving[number]

    def _send_versions(self, number: int, group: Group) -> None:
        link = Link(group, self._join.timeout)
        while True:
            has = link.receive_number(UNLIMITED)
            newer = self._newer(group, has)
            try:
                _send(link, newer, has)
                received = link.receive_number()
            finally:
                self._end_sending(newer.number)
            self._note(number, Site(received))
            # The copies may be replaced while the site does not ask.
            del newer

    def _newer(self, group: Group, has: int) -> _Version:
        """Wait for a version after that of a site, and note that the site receives it."""
        with self._changed:
            while not self._is_closed and self._newest.number <= has:
                if why := group.watch(True):
                    raise RuntimeError(why)
                self._changed.wait(_ALIVE_EVERY_S)
            if self._is_closed:
                raise RuntimeError(_CLOSED)
            self._sending[self._newest.number] += 1
            return self._newest

    def _end_sending(self, version: int) -> None:
        with self._changed:
            self._sending[version] -= 1
            # Without the versions that no site receives.
            self._sending = +self._sending
            self._changed.notify_all()

    def _note(self, number: int, site: Site) -> None:
        with self._changed:
            self._sites[number] = site
            left = [number for number, site in self._sites.items() if site.left is not None]
            for oldest in left[: max(0, len(left) - _MOST_LEFT)]:
                del self._sites[oldest]
            self._changed.notify_all()


def _check(tensors: Mapping[str, torch.Tensor], last: _Version, *, is_delta: bool) -> None:
    """Check the tensors of a version that comes after another one."""
    call = Call(PUBLISHER, 2, "publish", lambda reason: None, None)
    call.check_names("state_dict", tensors)
    for name, tensor in tensors.items():
        check_type(name, call.check(f"state_dict[{name!r}]", tensor))
    if is_delta and not last.number:
        raise ValueError("publish_delta: there is no version yet: publish a whole state dict first")
    if last.number:
        entries = {name: copy.entry for name, copy in last.copies.items()}
        check_fit(tensors, entries, f"in version {last.number}", may_lack=is_delta)


def _copy(tensor: torch.Tensor, version: int) -> _Copy:
    values = torch.empty(tensor.shape, dtype=tensor.dtype)
    values.copy_(tensor.detach())
    entry = Entry(tensor.dtype, tuple(tensor.shape), digest(Memory([values]).buffer()))
    return _Copy(values, entry, version)


def _send(link: Link, newer: _Version, has: int) -> None:
    """Send the tensors of a version that have changed after the version `has`, as a file of safetensors."""
    copies = {name: copy for name, copy in newer.copies.items() if copy.since > has}
    header = encode(newer.number, {name: copy.entry for name, copy in copies.items()})
    running = Running()
    running.add(link.send, torch.tensor([len(header)]))
    running.add(link.send, torch.frombuffer(bytearray(header), dtype=torch.uint8))
    for copy in copies.values():
        running.add(link.send, copy.values)
    running.end()
