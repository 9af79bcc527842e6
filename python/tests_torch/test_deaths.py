"""If the process of a rank ends, the other ranks learn of it long before the timeout."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic, sleep

import torch
import torch.distributed as dist
from ranks import OPTIONS, free_port

import farwrite.torch
from farwrite.torch import Bounded, CollectiveError, RendezvousError

#: Seconds after which a rank counts as dead without a word of its host. The timeout of all groups is torch's
#: default, half an hour.
DEAD_AFTER_S = 60.0


def test_ranks_whose_processes_end() -> None:
    context = get_context("forkserver")
    context.set_forkserver_preload(["farwrite.torch", "torch.distributed.fsdp"])
    ours, theirs = context.Pipe()
    port = free_port()
    ranks = [context.Process(target=_run, args=(rank, port, theirs), daemon=True) for rank in range(6)]
    try:
        for rank in ranks:
            rank.start()
        theirs.close()
        assert ours.poll(120), "the job hangs"
        heard = ours.recv()
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    (killed, killed_s), (raised, raised_s), (left, left_s), (bounded, bounded_s), group, stopped = heard
    for text, seconds in (killed, killed_s), (bounded, bounded_s):
        assert "rank 1 does not answer: it was last heard" in text
        assert "its host says that its process has ended" in text
        assert seconds < 20
    assert "rank 1 ended the group: its process ends: ValueError: a bad batch" in raised
    assert "rank 1 ended the group: its process exits with 3" in left
    assert max(raised_s, left_s) < 20
    assert "the default group has ended: rank " in group
    assert stopped == (False, 2.0)


def _run(rank: int, port: int, end: Connection) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="6")
    options = replace(OPTIONS, dead_after_s=DEAD_AFTER_S)
    bounded = replace(options, policy=Bounded(0.01, parts="bounded"))
    dist.init_process_group("farwrite", pg_options=options)
    groups = [
        dist.new_group([0, other], pg_options=bounded if other == 4 else options) for other in range(1, 6)
    ]
    values = torch.ones(100_000)
    if rank == 0:
        ended = [_until_error(group, values) for group in groups[:4]]
        end.send([*ended, _group_with_dead(), _stopped(groups[4])])
        return
    for _ in range(3):
        dist.all_reduce(values, group=groups[rank - 1])
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        raise ValueError("a bad batch")
    if rank == 3:
        sys.exit(3)
    if rank == 5:
        _stop(groups[4])
    os._exit(0)


def _until_error(group: dist.ProcessGroup, values: torch.Tensor) -> tuple[str, float]:
    """Return the error of a group whose other rank ends, and the seconds until the error."""
    started = monotonic()
    while True:
        try:
            dist.all_reduce(values, group=group)
        except CollectiveError as error:
            return str(error), monotonic() - started


def _group_with_dead() -> str:
    try:
        dist.new_group([0, 2])
    except RendezvousError as error:
        return str(error)
    raise AssertionError(f"a group with a dead rank: {farwrite.torch.last_report()}")


def _stop(group: dist.ProcessGroup) -> None:
    """Let rank 0 stop this process, and go on when rank 0 says so."""
    dist.send(torch.tensor([os.getpid()]), dst=0, group=group)
    dist.recv(torch.zeros(1), src=0, group=group)
    dist.all_reduce(torch.ones(1), group=group)
    dist.barrier(group)


def _stopped(group: dist.ProcessGroup) -> tuple[bool, float]:
    """Return whether an operation with a stopped process ends, and its result after the process goes on."""
    pid, ones = torch.zeros(1, dtype=torch.int64), torch.ones(1)
    for _ in range(3):
        dist.all_reduce(torch.ones(100_000), group=group)
    dist.recv(pid, src=5, group=group)
    os.kill(int(pid), signal.SIGSTOP)
    work = dist.all_reduce(ones, group=group, async_op=True)
    # A process that has ended is found in less time.
    sleep(3)
    has_ended = work.is_completed()
    os.kill(int(pid), signal.SIGCONT)
    dist.send(torch.ones(1), dst=5, group=group)
    work.wait()
    dist.barrier(group)
    return has_ended, ones.item()
