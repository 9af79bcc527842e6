"""Futures that can end with an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.futures import Future


def future_of(
    call: Callable[[], object], devices: Sequence[int | str | torch.device]
) -> tuple[Future[Any], Callable[[], None]]:
    """Return a future of the result or the error of `call`, and a function that runs `call`.

    `Future.set_exception` is not used: it stores the exception as a value, which `DistributedDataParallel`
    takes for tensors. The process then ends with SIGSEGV. A callback of a future is different: if it raises,
    its future has an error.
    """
    begun: Future[Any] = Future(devices=list(devices))
    ended = begun.then(lambda _: call())
    return ended, lambda: begun.set_result(None)
