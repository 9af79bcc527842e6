"""Groups as torch 2.15 makes them: by name, mixed with other backends, split, and with other ranks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, message

import farwrite.torch
from farwrite.torch import faces

pytestmark = pytest.mark.skipif(
    not faces.HAS_BACKEND, reason="this version of torch has no Backend in Python"
)


def total(group: dist.ProcessGroup | None = None) -> float:
    """Return the sum of a value 1 of each rank."""
    ones = torch.ones(3)
    dist.all_reduce(ones, group=group)
    return ones[0].item()


def test_a_program_needs_no_import() -> None:
    program = """if True:
        import torch, torch.distributed as dist
        dist.init_process_group("farwrite", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
        print(type(dist.group.WORLD).__module__)
        dist.destroy_process_group()
        """
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout == "farwrite.torch.faces\n", ran.stderr


def test_a_mixed_group(two: Ranks) -> None:
    two.run(_mixed)


def _mixed() -> None:
    # Each rank makes a group of the backends of two devices.
    group = dist.new_group(backend="cpu:farwrite,cuda:gloo")
    assert total(group) == 2
    backend = group._get_backend(torch.device("cpu"))
    assert isinstance(backend, faces.Backend)
    assert (backend.rank(), backend.size(), backend.options.backend) == (dist.get_rank(), 2, "farwrite")
    assert farwrite.torch.last_report(group).operation == "all_reduce"
    dist.monitored_barrier(group)
    work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    assert work.get_future().wait()[0][0] == 2
    assert "multiple backends" in message(RuntimeError, lambda: group.supports_reconfigure)
    assert "rank " in message(TypeError, lambda: dist.all_reduce(torch.ones(1).short(), group=group))
    said = message(ValueError, lambda: dist.recv(torch.ones(1), group=group))
    assert "in a mixed group, a receive must name its sender" in said
    part = dist.split_group(group, [[1, 0]])
    assert (part.size(), part.rank(), total(part)) == (2, 1 - dist.get_rank(), 2)
    dist.barrier(group)
    for one in (part, group):
        dist.destroy_process_group(one)


def test_without_a_backend_in_python_a_mixed_group_is_refused(two: Ranks) -> None:
    for text in two.run(_refused):
        assert text.endswith("cannot mix farwrite with gloo: make two groups, or use torch 2.15")


def _refused() -> str:
    faces.HAS_BACKEND = False
    try:
        return message(RuntimeError, lambda: dist.new_group(backend="cpu:farwrite,cuda:gloo"))
    finally:
        faces.HAS_BACKEND = True


def test_a_group_is_split(four: Ranks) -> None:
    four.run(_split)


def _split() -> None:
    rank = dist.get_rank()
    part = dist.split_group(split_ranks=[[0, 2], [3, 1]], group_desc="halves")
    assert isinstance(part, farwrite.torch.ProcessGroup)
    assert (part.size(), part.group_desc, total(part)) == (2, "halves", 2)
    assert part.rank() == {0: 0, 2: 1, 3: 0, 1: 1}[rank]
    alone = dist.split_group(part, [[1]])
    assert (alone is dist.GroupMember.NON_GROUP_MEMBER) == (part.rank() == 0)
    dist.destroy_process_group(part)


def test_events_of_a_profiler(two: Ranks) -> None:
    two.run(_profiled)


def _profiled() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        total()
        dist.all_gather(list(torch.ones(2, 2)), torch.ones(2), async_op=True).wait()
    names = [event.name for event in profile.events() if event.name.startswith("farwrite:")]
    assert names == ["farwrite:all_reduce", "farwrite:all_gather"]


def test_other_ranks(four: Ranks) -> None:
    four.run(_other_ranks)


def _other_ranks() -> None:
    rank, world = dist.get_rank(), dist.group.WORLD
    # Each rank has a store of its own, and the ranks join in the store of one of them.
    store = dist.PrefixStore("elastic", dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
    place = farwrite.torch.rendezvous.Place("elastic", store, rank, 4)
    options = replace(world.options, sites=(0, 1, 1, 0))
    # torch gives `enable_reconfigure` only to a default group.
    group = faces.ProcessGroup(place, options, timedelta(seconds=20), is_elastic=True)
    assert "call torch.distributed._reconfigure first" in message(
        RuntimeError, lambda: group.allreduce(torch.ones(1))
    )
    handles: list[str] = [""] * 4
    dist.all_gather_object(handles, group.get_reconfigure_handle())
    _reconfigure(group, 1, handles)
    assert _sum(group) == 4
    # Rank 0 aborts, and is not part of the next group. A set has an order of its own.
    group.abort()
    assert group.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    if rank > 0:
        _reconfigure(group, 2, set(handles[1:]))
        assert (group.size(), _sum(group)) == (3, 3)
        _reconfigure(group, 3, handles[1:])
        # These are the ranks 2 and 3 of the first place.
        part = group.split_group([1, 2])
        assert (part is None) == (rank == 1)
        if part:
            assert (part.options.sites, _sum(part)) == ((1, 0), 2)
            part.shutdown()
    dist.barrier()
    _reconfigure(group, 4, handles[::-1])
    assert (group.size(), group.rank(), _sum(group)) == (4, 3 - rank, 4)
    for text, kind, uuid, wrong in (
        ("uuid = 4: already used", RuntimeError, 4, handles),
        ("is there 0 times among 3", ValueError, 5, [one for one in handles if one != handles[rank]]),
        ("is not one of farwrite", ValueError, 5, [*handles, "{}"]),
    ):
        assert text in message(kind, lambda uuid=uuid, wrong=wrong: _reconfigure(group, uuid, wrong))
    assert _sum(group) == 4
    group.shutdown()


def _reconfigure(group: faces.ProcessGroup, uuid: int, handles: list[str] | set[str]) -> None:
    dist._reconfigure(uuid, handles, group, timeout=timedelta(seconds=20)).wait()


def _sum(group: faces.ProcessGroup) -> float:
    ones = torch.ones(3)
    group.allreduce(ones).wait()
    return ones[0].item()
