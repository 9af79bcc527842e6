"""Orders the copies of results among the work in the streams of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch


class Stream:
    """Orders the copies of results into tensors of a GPU.

    The copies run after the work that was queued on the current stream when this object was made. For tensors
    of the host, the methods do nothing.
    """

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self._outputs = [tensor for tensor in outputs if tensor.device.type == "cuda"]
        if self._outputs:
            self._device = self._outputs[0].device
            self._side = torch.cuda.Stream(self._device)
            self._started = torch.cuda.current_stream(self._device).record_event()
            self._copied: torch.cuda.Event | None = None

    def devices(self) -> list[int | str | torch.device]:
        """Return the devices whose streams a future must join."""
        return [self._device] if self._outputs else []

    @contextmanager
    def after_start(self) -> Iterator[None]:
        """Queue the copies that the block makes on a separate stream."""
        if not self._outputs:
            yield
            return
        with torch.cuda.stream(self._side):
            self._side.wait_event(self._started)
            yield
            self._copied = self._side.record_event()
        for tensor in self._outputs:
            # The allocator must not reuse the memory of the tensor before the copy has ended.
            tensor.record_stream(self._side)

    def join(self) -> None:
        """Make the current stream wait for the copies."""
        if self._outputs and self._copied is not None:
            torch.cuda.current_stream(self._device).wait_event(self._copied)
