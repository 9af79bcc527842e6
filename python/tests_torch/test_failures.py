"""A rank that is killed, raises or hangs during training ends the others with an error that names it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from ranks import OPTIONS, free_port
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch

Step = Callable[[], object]

#: What ranks 2, 3 and 4 do after the first step, and what the others then hear of it.
ENDS = {
    "kill": "does not answer: it was last heard",
    "raise": "ended the group: its process ends: ValueError: a bad batch",
    "hang": "has not ",
}
#: Ranks 0 and 1 report their errors.
SURVIVORS = 2
#: Seconds after which operations end, so that a rank that hangs is noticed.
TIMEOUT_S = 2
BATCH = torch.ones(4, 64)


def _ddp(group: dist.ProcessGroup) -> Step:
    module = DistributedDataParallel(nn.Linear(64, 64), process_group=group)
    return lambda: module(BATCH).sum().backward()


def _fsdp2(group: dist.ProcessGroup) -> Step:
    module = fully_shard(nn.Linear(64, 64), mesh=DeviceMesh.from_group(group, "cpu"))
    return lambda: module(BATCH).sum().backward()


def _zero(group: dist.ProcessGroup) -> Step:
    module = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, process_group=group, lr=0.1)

    def step() -> None:
        module(BATCH).sum().backward()
        optimizer.step()

    return step


def _pipeline(group: dist.ProcessGroup) -> Step:
    # The rank that fails has the last stage.
    is_last = group.rank() == group.size() - 1
    stage = PipelineStage(nn.Linear(64, 64), group.rank(), group.size(), torch.device("cpu"), group=group)
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda output, target: (output - target).sum())
    return (lambda: schedule.step(target=BATCH)) if is_last else lambda: schedule.step(BATCH)


WAYS = {"ddp": _ddp, "fsdp2": _fsdp2, "zero": _zero, "pipeline": _pipeline}


def test_ranks_that_fail_in_trainings() -> None:
    context = get_context("forkserver")
    context.set_forkserver_preload(["farwrite.torch", "torch.distributed.fsdp"])
    pipes = [context.Pipe() for _ in range(SURVIVORS)]
    port = free_port()
    ends = [theirs for _, theirs in pipes] + [None] * len(ENDS)
    ranks = [
        context.Process(target=_run, args=(rank, port, end), daemon=True) for rank, end in enumerate(ends)
    ]
    try:
        for rank in ranks:
            rank.start()
        heard = [ours.recv() for ours, _ in pipes if ours.poll(100)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    assert len(heard) == SURVIVORS, "the job hangs"
    for survivor, cases in enumerate(heard):
        for (way, end), said in cases.items():
            _check(f"{way}, {end}, heard by rank {survivor}", way, end, *said)


def _check(case: str, way: str, end: str, kind: str, text: str, last: str) -> None:
    culprit = "rank 1" if way == "pipeline" else f"rank {SURVIVORS}"
    assert text.count(culprit) == 1, f"{case}: {text}"
    assert f"{culprit} {ENDS[end]}" in text, f"{case}: {text}"
    # The backward pass of DDP waits in C++, which raises an error of another type.
    assert kind == ("RuntimeError" if way == "ddp" else "CollectiveError"), f"{case}: {text}"
    assert last != "None"
    assert last in text, f"{case}: the last error is {last}, not {text}"


def _run(rank: int, port: int, end: Connection | None) -> None:
    torch.set_num_threads(1)
    size = SURVIVORS + len(ENDS)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    options = replace(OPTIONS, dead_after_s=3.0)
    dist.init_process_group("farwrite", pg_options=options)
    steps = {}
    for way, make in WAYS.items():
        for number, what in enumerate(ENDS):
            ranks = [1, SURVIVORS + number] if way == "pipeline" else [0, 1, SURVIVORS + number]
            group = dist.new_group(ranks)
            if rank in ranks:
                step = make(group)
                # In the second step, DDP broadcasts the order of gradients.
                step()
                step()
                if what == "hang":
                    group.set_timeout(timedelta(seconds=TIMEOUT_S))
                steps[way, what] = group, step
    dist.barrier()
    if end is not None:
        end.send({case: _until_error(group, step) for case, (group, step) in steps.items()})
        return
    what = list(ENDS)[rank - SURVIVORS]
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise ValueError("a bad batch")
    signal.pause()


def _until_error(group: dist.ProcessGroup, step: Step) -> tuple[str, str, str]:
    """Return the type and the text of the error that ends a training, and the text of the last error."""
    while True:
        try:
            step()
        except RuntimeError as error:
            return type(error).__name__, str(error), str(farwrite.torch.last_error(group))
