"""A site's end: it receives versions into its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType

import torch
from torch.distributed import Store

from farwrite.torch.arguments import Call
from farwrite.torch.memory import Memory
from farwrite.torch.options import Options
from farwrite.torch.process_exit import forget
from farwrite.torch.weights.header import LONGEST, Entry, check_fit, decode, digest
from farwrite.torch.weights.link import SITE, UNLIMITED, Join, Link, Running
from farwrite.torch.work import Work


class Subscriber:
    """A site's end.

    Parameters
    ----------
    store
        The store that the trainer gave to its `Publisher`, or one that is connected to it.
    name, options, timeout
        As for `Publisher`, with the same policy. `timeout` also limits the wait for a publisher.

    Raises
    ------
    farwrite.torch.RendezvousError
        If there is no publisher of this name within `timeout`, or if the two cannot reach each other.
    """

    def __init__(
        self,
        store: Store,
        name: str = "weights",
        *,
        options: Options | None = None,
        timeout: timedelta = timedelta(minutes=5),
    ) -> None:
        join = Join(store, name, options, timeout)
        self._group = join.group(join.enter(), SITE, join.absence)
        self._link = Link(self._group, timeout)
        self._version = 0
        #: The addresses of the tensors that have the version.
        self._places: dict[str, int] = {}
        #: The length of the header of the next version, after this site has asked for it.
        self._length: tuple[Work, torch.Tensor] | None = None
        self._ended: str | None = None

    @property
    def version(self) -> int:
        """The version that this site has; 0: none."""
        return self._version

    def receive(self, into: Mapping[str, torch.Tensor], timeout: timedelta | None = None) -> int:
        """Wait for a version after that of this site, write it into tensors, and return its number.

        It is the newest version. Only the tensors that have changed since the version of this site are sent.
        If the publisher or the path fails in the middle, some tensors are new and others are not. Another
        `Subscriber` then receives all tensors.

        Parameters
        ----------
        into
            The tensors by name, on the host or on a GPU: the same in each call, such as `model.state_dict()`.
        timeout
            The longest wait for another version. None: no limit. 0: do not wait.

        Raises
        ------
        TimeoutError
            If there is no other version within `timeout`. All other errors end the subscriber.
        ValueError, TypeError
            If names, types or shapes differ from those of the publisher. The message names the tensor, and
            nothing is written.
        farwrite.torch.CollectiveError
            If the publisher has left or does not answer.
        RuntimeError
            If the BLAKE2b digest of a tensor is not that of the publisher.
        """
        if self._ended is not None:
            raise RuntimeError(f"the subscriber has ended, make another one: {self._ended}")
        try:
            tensors = self._check(into)
            self._wait_for_newer(timeout)
            return self._receive(tensors)
        except TimeoutError:
            raise
        except BaseException as error:
            # Also after Ctrl-C, parts of the version may be on the way.
            self._ended = str(error) or type(error).__name__
            forget(self._group)
            # The publisher notes the reason.
            self._group.announce_end(self._ended)
            self._group.shutdown()
            raise

    def close(self) -> None:
        """Leave the publisher."""
        if self._ended is None:
            self._ended = "it is closed"
            self._group.shutdown()

    def __enter__(self) -> Subscriber:
        """Return the subscriber."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the subscriber."""
        self.close()

    def _check(self, into: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        call = Call(SITE, 2, "receive", lambda reason: None, None)
        call.check_names("into", into)
        tensors = {name: call.check(f"into[{name!r}]", tensor) for name, tensor in into.items()}
        places = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        if self._version and places != self._places:
            raise ValueError(
                f"into: are other tensors than those that received version {self._version}: pass these"
            )
        self._places = places
        return tensors

    def _wait_for_newer(self, timeout: timedelta | None) -> None:
        """Ask for a version, unless an earlier call has asked, and wait for it."""
        if self._length is None:
            self._link.send_number(self._version).wait()
            length = torch.zeros(1, dtype=torch.int64)
            self._length = self._link.receive(length, UNLIMITED), length
        work, _ = self._length
        if timeout is None:
            work.wait()
        elif timeout > timedelta(0):
            work.wait(timeout)
        elif not work.is_completed():
            raise TimeoutError(f"there is no version after {self._version}")

    def _receive(self, tensors: dict[str, torch.Tensor]) -> int:
        version, entries = decode(self._header())
        check_fit(tensors, entries, "at the publisher", may_add=self._version > 0)
        running = Running()
        for name, entry in entries.items():
            _receive_tensor(self._link, running, name, tensors[name], entry)
        running.end()
        self._link.send_number(version).wait()
        self._version = version
        return version

    def _header(self) -> bytes:
        assert self._length is not None
        work, length = self._length
        # It raises the error of a receive that has failed.
        work.wait()
        self._length = None
        size = int(length)
        if not 0 < size <= LONGEST:
            raise RuntimeError(f"the header of a version has {size} bytes: must have at most {LONGEST}")
        header = torch.empty(size, dtype=torch.uint8)
        running = Running()
        running.add(self._link.receive, header)
        running.end()
        return header.numpy().tobytes()


def _receive_tensor(link: Link, running: Running, name: str, tensor: torch.Tensor, entry: Entry) -> None:
    """Start to receive the values of a tensor, in place if they are contiguous and on the host."""
    values = tensor.detach()
    in_place = values.device.type == "cpu" and values.is_contiguous()
    host = values if in_place else torch.empty(values.shape, dtype=values.dtype)

    def check() -> None:
        if digest(Memory([host]).buffer()) != entry.digest:
            raise RuntimeError(
                f"tensor {name!r}: its values are not those of the publisher: the BLAKE2b digest differs"
            )
        if not in_place:
            with torch.inference_mode(tensor.is_inference()):
                values.copy_(host)

    running.add(link.receive, host, check)
