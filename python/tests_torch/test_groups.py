"""Groups that are made and destroyed many times."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from ranks import Ranks


def test_destroyed_groups_leave_nothing(two: Ranks) -> None:
    two.run(_many)


def _many() -> None:
    _one()
    before = _held()
    for _ in range(20):
        _one()
    assert _held() == before


def _one() -> None:
    group = dist.new_group()
    dist.all_reduce(torch.ones(3), group=group)
    dist.destroy_process_group(group)


def _held() -> tuple[int, int]:
    """Return the number of open files and of threads of this process, once both stay the same for a
    tenth of a second. Linux lists a thread for a moment after another thread has waited for its end."""
    held, again = None, _listed()
    while held != again:
        held = again
        time.sleep(0.1)
        again = _listed()
    return again


def _listed() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
