"""A process that is forked from a rank cannot use its groups, and ends at once."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ranks import Ranks, gloo, message

from farwrite.torch import CollectiveError

#: Seconds that no forked process takes.
LONGEST_S = 200

ENDS = """
import os, signal, sys, torch, torch.distributed as dist, farwrite.torch
farwrite.torch.trace(sys.argv[1])
dist.init_process_group("farwrite", store=dist.HashStore(), rank=0, world_size=1)
for ends in ("at its last line", "after it has left"):
    if (child := os.fork()) == 0:
        # A child that hangs ends by a signal.
        signal.alarm(100)
        if ends == "after it has left":
            dist.destroy_process_group()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
dist.barrier()
dist.destroy_process_group()
print("left")
"""


def test_a_forked_process_ends_at_once(tmp_path: os.PathLike[str]) -> None:
    words = [sys.executable, "-P", "-c", ENDS, os.path.join(tmp_path, "trace.jsonl")]
    ended = subprocess.run(words, timeout=LONGEST_S, text=True, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "left\n"), ended.stderr


def test_calls_of_a_forked_process_raise(two: Ranks) -> None:
    two.run(_calls)


def _calls() -> None:
    values = torch.ones(4)
    if dist.get_rank() == 0:
        work = dist.all_reduce(values, async_op=True)
        calls: list[Callable[[], Any]] = [
            work.wait,
            work.is_completed,
            lambda: dist.all_reduce(torch.ones(4)),
        ]
        text = in_child(lambda: "\n".join(message(CollectiveError, call) for call in calls))
        for line in text.splitlines():
            assert line.startswith(f"rank 0: this process was forked from process {os.getpid()}, "), text
        assert len(text.splitlines()) == 3
    dist.barrier(group=gloo())
    if dist.get_rank() == 1:
        work = dist.all_reduce(values, async_op=True)
    work.wait()
    assert values.tolist() == [2.0] * 4


def in_child(call: Callable[[], str]) -> str:
    """Return what a call returns in a child process, or its error."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = call()
        except BaseException as error:
            text = repr(error)
        os.write(theirs, text.encode())
        os._exit(0)
    os.close(theirs)
    try:
        assert select.select([ours], [], [], LONGEST_S)[0], "the child hangs"
        return os.read(ours, 65536).decode()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ours)
