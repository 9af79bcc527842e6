"""Operations that have been started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Lock, Thread
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.futures import Future

from farwrite import _native
from farwrite.torch.futures import future_of
from farwrite.torch.reports import Totals
from farwrite.torch.stream import Stream
from farwrite.torch.untraced import untraced

#: The ticket of an operation in the native module, and a function that copies its result into tensors.
Started = tuple[_native.Ticket, Callable[[_native.Ended], None]]


@untraced
class Work(dist.Work):
    """A started operation, which asynchronous calls return. Any thread may wait for it, more than once."""

    def __init__(
        self,
        operation: str,
        started: Sequence[Started],
        outputs: Sequence[torch.Tensor],
        totals: Totals,
    ) -> None:
        super().__init__()
        self._operation = operation
        self._tickets = [ticket for ticket, _ in started]
        self._stores = [store for _, store in started]
        self._outputs = list(outputs)
        self._totals = totals
        self._stream = Stream(outputs)
        self._lock = Lock()
        self._stored = False
        #: After a receive: the rank that has sent.
        self._source: int | None = None
        # Tensors of inference mode can be written only in this mode. Each thread has its own mode.
        self._is_inference = any(tensor.is_inference() for tensor in outputs)
        #: Done when a profiler of torch has the end of the operation.
        self._recorded: Future[Any] | None = None

    def record(self, event: record_function) -> None:
        """Let an event of a profiler end with the operation."""
        self._recorded = event._call_end_callbacks_on_future(self.get_future())

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the end of the operation. The tensors then have its result.

        Parameters
        ----------
        timeout
            The longest wait. 0: until the timeout of the operation.

        Raises
        ------
        CollectiveError
            If the operation has failed.
        TimeoutError
            If the operation still runs after `timeout`.
        """
        self._finish(timeout)
        if self._recorded is not None:
            self._recorded.wait()
        return True

    def _finish(self, timeout: timedelta) -> None:
        # With 0 or -1 ms, torch means that the call has no timeout of its own.
        started = monotonic()
        until = started + timeout.total_seconds() if timeout > timedelta(0) else None
        try:
            ended = [
                ticket.wait(None if until is None else max(0.0, until - monotonic()))
                for ticket in self._tickets
            ]
        except _native.CollectiveError as error:
            self._totals.fail(error)
            raise
        except TimeoutError as error:
            waited = f"{self._operation}: the wait timed out after {timeout.total_seconds():g} s"
            raise TimeoutError(f"{waited}: {error}") from None
        with self._lock:
            if not self._stored:
                with torch.inference_mode(self._is_inference), self._stream.after_start():
                    for store, one in zip(self._stores, ended, strict=True):
                        store(one)
                for one in ended:
                    self._totals.add(self._operation, one)
                self._source = ended[-1].source
                self._totals.add_wait(monotonic() - started)
                self._stored = True
                # These functions refer to copies of tensors, whose memory can be freed now.
                self._stores = []
        self._stream.join()

    def is_completed(self) -> bool:
        """Return whether the operation has ended, with or without an error.

        If it has ended without an error, the tensors have its result.
        """
        if not all(ticket.is_done() for ticket in self._tickets):
            return False
        with suppress(RuntimeError):
            self.wait()
        return True

    def exception(self) -> BaseException | None:
        """Return the error of the operation; None if it still runs or has ended without an error."""
        try:
            if self.is_completed():
                self.wait()
        except RuntimeError as error:
            return error
        return None

    def is_success(self) -> bool:
        """Return whether the operation has ended without an error."""
        return self.is_completed() and self.exception() is None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that the operation writes."""
        return self._outputs

    def _source_rank(self) -> int:
        """Return the rank whose data a receive has. It has ended."""
        if self._source is None:
            raise RuntimeError(f"{self._operation}: no receive that has ended")
        return self._source

    def synchronize(self) -> None:
        """Do what `wait` does."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """Return a future of the tensors that the operation writes. It is done if the operation has ended."""

        def outputs() -> list[torch.Tensor]:
            self._finish(timedelta(0))
            return self._outputs

        future, run = future_of(outputs, self._stream.devices())
        if all(ticket.is_done() for ticket in self._tickets):
            run()
        else:
            # Operations can end in another order than they started, so each future has its own thread.
            Thread(target=run, name="farwrite-future", daemon=True).start()
        return future


class Done(dist.Work):
    """An operation that has ended without an error before it was returned."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def exception(self) -> None:
        """Return None."""

    def result(self) -> list[torch.Tensor]:
        """Return no tensors."""
        return []

    def get_future(self) -> Future[Any]:
        """Return a future that is done."""
        future: Future[Any] = Future()
        future.set_result([])
        return future
