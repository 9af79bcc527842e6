"""The benchmarks compare gloo and farwrite in the same operations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from ranks import Ranks, gloo

BENCHES = str(Path(__file__).resolve().parents[1])


def test_what_gloo_of_this_version_does(job: Ranks, capfd: pytest.CaptureFixture[str]) -> None:
    """Print the properties of gloo. Check that ranks agree, and that the forced form sends half."""
    found = job.run(_examine)
    assert len({text for text, _ in found}) == 1
    with capfd.disabled():
        print(f"\n{found[0][0]}")
    # In addition to the data, a rank sends headers and the messages of barriers.
    assert all(0.4 < share < 0.6 for _, share in found), found


def _examine() -> tuple[str, float]:
    sys.path.append(BENCHES)
    from gloo import examine, settled_bytes
    from same_operations import reduce_scatter_of_parts

    group = gloo()
    text = examine(group).describe()
    whole = torch.ones(1 << 20)
    part = torch.empty(len(whole) // dist.get_world_size())
    marks = [settled_bytes(group)]
    reduce_scatter_of_parts(part, whole, group=group)
    marks.append(settled_bytes(group))
    dist.all_reduce(whole, group=group)
    marks.append(settled_bytes(group))
    return text, (marks[1] - marks[0]) / (marks[2] - marks[1])


def test_forced_operations_have_the_same_results_on_both_backends(job: Ranks) -> None:
    job.run(_forced)


def _forced() -> None:
    sys.path.append(BENCHES)
    import same_operations

    names = ("all_reduce", *same_operations.REDUCE_SCATTERS)
    own = {name: getattr(dist, name) for name in names}
    pair = dist.new_group([0, 1], backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(4.0 * size) * (rank + 1)
    same_operations.force(["reduce-scatter", "mean"])
    try:
        total = torch.arange(4.0 * size) * (size * (size + 1) // 2)
        for op, wanted in ((ReduceOp.SUM, total), (ReduceOp.AVG, total / size)):
            for group in (gloo(), None):
                summed, part = whole.clone(), torch.empty(4)
                dist.all_reduce(summed, op=op, group=group)
                assert torch.equal(summed, wanted)
                # FSDP2 and DeepSpeed call the operation by different names.
                dist.reduce_scatter_single(output=part, input=whole, group=group, op=op)
                assert torch.equal(part, wanted[4 * rank :][:4])
                dist.reduce_scatter_tensor(part, whole, op, group)
                assert torch.equal(part, wanted[4 * rank :][:4])
        if rank < 2:
            # A mean divides by the size of the group of the operation.
            summed = torch.full((4,), rank + 1.0)
            dist.all_reduce(summed, ReduceOp.AVG, pair)
            assert torch.equal(summed, torch.full((4,), 1.5))
        part = torch.empty(4)
        dist.reduce_scatter_tensor(part, whole, ReduceOp.MAX, gloo())
        assert torch.equal(part, (torch.arange(4.0 * size) * size)[4 * rank :][:4])
    finally:
        for name, operation in own.items():
            setattr(dist, name, operation)
