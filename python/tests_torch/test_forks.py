"""A process that is forked from a rank cannot use its groups, and ends at once."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ranks import Ranks, gloo, message

from farwrite.torch import CollectiveError

#: Seconds that no forked process takes.
LONGEST_S = 200

#: The program of each of two ranks, of which rank 0 forks. Its arguments are the rank, the file of the store
#: and the file of the trace.
ENDS = """
import os, signal, sys, torch, torch.distributed as dist, farwrite.torch.weights
rank = int(sys.argv[1])
with farwrite.torch.weights.Publisher(dist.HashStore()):
    # A publisher is no group.
    farwrite.torch.trace(sys.argv[3])
# The children count as processes of the file, too.
store = dist.FileStore(sys.argv[2], 4)
options = farwrite.torch.Options(address="127.0.0.1")
dist.init_process_group("farwrite", store=store, rank=rank, world_size=2, pg_options=options)
dist.barrier()
for ends in ("at its last line", "after it has left") if rank == 0 else ():
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


def test_a_forked_process_ends_at_once(tmp_path: Path) -> None:
    traces = [tmp_path / f"rank-{rank}.jsonl" for rank in range(2)]
    words = [sys.executable, "-P", "-c", ENDS]
    ranks = [
        subprocess.Popen(
            [*words, str(rank), str(tmp_path / "store"), str(trace)],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, trace in enumerate(traces)
    ]
    try:
        for rank in ranks:
            said, errors = rank.communicate(timeout=LONGEST_S)
            assert (rank.returncode, said) == (0, "left\n"), errors
    finally:
        for rank in ranks:
            rank.kill()
    # The children have copies of events before the fork. If they wrote these, times would go back.
    times = [json.loads(line)["time"] for line in traces[0].read_text().splitlines()]
    assert times
    assert times == sorted(times)


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

        def said() -> str:
            return "\n".join([*(message(CollectiveError, call) for call in calls), str(work.exception())])

        text = in_child(said)
        for line in text.splitlines():
            assert line.startswith(f"rank 0: this process was forked from process {os.getpid()}, "), text
        assert len(text.splitlines()) == 4
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
