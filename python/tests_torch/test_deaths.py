"""If the process of a rank ends, the other ranks learn of it long before the timeout."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic

import torch
import torch.distributed as dist
from ranks import OPTIONS, _free_port

import farwrite.torch
from farwrite.torch import Bounded, CollectiveError, RendezvousError

#: Seconds after which a rank counts as dead. The timeout of all groups is torch's default, half an hour.
DEAD_AFTER_S = 1.0


def test_ranks_whose_processes_end() -> None:
    context = get_context("forkserver")
    context.set_forkserver_preload(["farwrite.torch", "torch.distributed.fsdp"])
    ours, theirs = context.Pipe()
    port = _free_port()
    ranks = [context.Process(target=_run, args=(rank, port, theirs), daemon=True) for rank in range(5)]
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
    (killed, killed_s), (raised, raised_s), (left, left_s), (bounded, bounded_s), group = heard
    for text, seconds in (killed, killed_s), (bounded, bounded_s):
        assert "rank 1 does not answer: it was last heard" in text
        assert "the limit is 1s" in text
        assert seconds < 20
    assert "rank 1 ended the group: its process ends: ValueError: a bad batch" in raised
    assert "rank 1 ended the group: its process exits with 3" in left
    assert max(raised_s, left_s) < 20
    assert "the default group has ended: rank " in group


def _run(rank: int, port: int, end: Connection) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="5")
    options = replace(OPTIONS, dead_after_s=DEAD_AFTER_S)
    bounded = replace(options, policy=Bounded(0.01, parts="bounded"))
    dist.init_process_group("farwrite", pg_options=options)
    groups = [
        dist.new_group([0, other], pg_options=bounded if other == 4 else options) for other in range(1, 5)
    ]
    values = torch.ones(100_000)
    if rank == 0:
        end.send([_until_error(group, values) for group in groups] + [_group_with_dead()])
        return
    for _ in range(3):
        dist.all_reduce(values, group=groups[rank - 1])
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        raise ValueError("a bad batch")
    if rank == 3:
        sys.exit(3)
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
