"""The names of operations in the traces of torch's profiler."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import profiler

from farwrite.torch.work import Work


def profiled(operation: str, start: Callable[[], Work]) -> Work:
    """Start an operation. A profiler of torch that runs gets an event, which ends with the operation."""
    if not profiler._is_profiler_enabled:
        return start()
    with torch.profiler.record_function(f"farwrite:{operation}") as record:
        work = start()
        work.record(record)
    return work
