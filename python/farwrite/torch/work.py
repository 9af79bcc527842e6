"""An operation that runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Lock, Thread
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from farwrite import _native
from farwrite.torch.reports import Tally
from farwrite.torch.stream import Stream
from farwrite.torch.untraced import untraced

#: An operation of the native half, and what brings its result to where it belongs when it has ended.
Started = tuple[_native.Ticket, Callable[[_native.Ended], None]]


@untraced
class Work(dist.Work):
    """What an asynchronous call returns. Any thread may wait for it, more than once."""

    def __init__(
        self,
        operation: str,
        started: Sequence[Started],
        outputs: Sequence[torch.Tensor],
        tally: Tally,
    ) -> None:
        super().__init__()
        self._operation = operation
        self._tickets = [ticket for ticket, _ in started]
        self._stores = [store for _, store in started]
        self._outputs = list(outputs)
        self._tally = tally
        self._stream = Stream(outputs)
        self._lock = Lock()
        self._stored = False
        # Such tensors can be written in this mode only, and each thread has the mode for itself.
        self._is_inference = any(tensor.is_inference() for tensor in outputs)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the end, and make the result visible to what this thread does next.

        Parameters
        ----------
        timeout
            How long to wait at most; 0 is until the operation's own timeout.

        Raises
        ------
        CollectiveError
            Where the operation failed.
        TimeoutError
            Where the operation still runs after ``timeout``.
        """
        # torch has no timeout where it is 0, or -1 ms.
        started = monotonic()
        until = started + timeout.total_seconds() if timeout > timedelta(0) else None
        ended = [
            ticket.wait(None if until is None else max(0.0, until - monotonic())) for ticket in self._tickets
        ]
        with self._lock:
            if not self._stored:
                with torch.inference_mode(self._is_inference), self._stream.after_start():
                    for store, one in zip(self._stores, ended, strict=True):
                        store(one)
                for one in ended:
                    self._tally.add(self._operation, one)
                self._tally.add_wait(monotonic() - started)
                self._stored = True
                # These functions hold copies of tensors.
                self._stores = []
        self._stream.join()
        return True

    def is_completed(self) -> bool:
        """Return whether the operation has ended, well or not.

        If it ended well, its outputs have the result.
        """
        if not all(ticket.is_done() for ticket in self._tickets):
            return False
        with suppress(RuntimeError):
            self.wait()
        return True

    def exception(self) -> BaseException | None:
        """Return why the operation failed, if it has."""
        if self.is_completed():
            try:
                self.wait()
            except RuntimeError as error:
                return error
        return None

    def is_success(self) -> bool:
        """Return whether the operation has ended well."""
        return self.is_completed() and self.exception() is None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that the operation writes."""
        return self._outputs

    def synchronize(self) -> None:
        """Do what `wait` does."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """Return a future of the tensors that the operation writes."""
        future: Future[Any] = Future(devices=self._stream.devices())
        # Operations may end in another order than they began, so no two futures share a thread.
        Thread(target=self._fulfil, args=(future,), name="farwrite-future", daemon=True).start()
        return future

    def _fulfil(self, future: Future[Any]) -> None:
        try:
            self.wait()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(self._outputs)
