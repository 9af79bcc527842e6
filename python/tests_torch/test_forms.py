"""The methods of a group can be called in all forms that torch declares."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from ranks import Ranks, message
from torch.distributed import ReduceOp

#: Rank 0 has ones, and rank 1 has twos.
SUM, MAX = [3.0, 3.0], [2.0, 2.0]
ALL = [1.0, 1.0, 2.0, 2.0]
MINUTE = timedelta(minutes=1)


def _one() -> torch.Tensor:
    return torch.full((2,), dist.get_rank() + 1.0)


def _check(wanted: list[float] | None, call: Callable[[Any, torch.Tensor, list[torch.Tensor]], Any]) -> None:
    """Check what a call writes to a tensor, or to a list of a tensor for each rank."""
    one, each = _one(), [_one(), _one()]
    call(dist.group.WORLD, one, each).wait()
    if wanted is not None:
        assert wanted in (one.tolist(), torch.cat(each).tolist())


def _forms() -> None:
    is_root = dist.get_rank() == 0
    options = dist.AllreduceOptions()
    options.reduceOp = ReduceOp.MAX
    for wanted, call in (
        (SUM, lambda group, one, each: group.allreduce([one])),
        (SUM, lambda group, one, each: group.allreduce(one)),
        (MAX, lambda group, one, each: group.allreduce([one], options)),
        (MAX, lambda group, one, each: group.allreduce(tensors=[one], opts=options)),
        (MAX, lambda group, one, each: group.allreduce([one], ReduceOp.MAX)),
        (MAX, lambda group, one, each: group.allreduce(one, ReduceOp.MAX, MINUTE)),
        (MAX, lambda group, one, each: group.allreduce(tensor=one, op=ReduceOp.MAX, timeout=None)),
        (SUM, lambda group, one, each: group.allreduce_coalesced([one])),
        (MAX, lambda group, one, each: group.broadcast(one, 1)),
        (MAX, lambda group, one, each: group.broadcast(tensor=one, root=1, timeout=MINUTE)),
        ([1.0, 1.0], lambda group, one, each: group.broadcast([one])),
        (MAX if is_root else None, lambda group, one, each: group.reduce(one, 0, ReduceOp.MAX)),
        (ALL, lambda group, one, each: group.allgather([each], [one])),
        (ALL, lambda group, one, each: group.allgather(each, one)),
        (ALL, lambda group, one, each: group.allgather(output_tensors=each, input_tensor=one)),
        (ALL if is_root else None, lambda group, one, each: group.gather(each if is_root else [], one, 0)),
        (MAX, lambda group, one, each: group.scatter(one, [] if is_root else each, 1)),
        (MAX, lambda group, one, each: group.reduce_scatter(one, each, ReduceOp.MAX)),
        (SUM, lambda group, one, each: group.reduce_scatter(output=one, input=each)),
        (ALL, lambda group, one, each: group.alltoall(each, [one, one], MINUTE)),
        ([1.0, 2.0], lambda group, one, each: group.all_to_all_single(one, _one(), [], [], MINUTE)),
        (None, lambda group, one, each: group.barrier(MINUTE)),
    ):  # fmt: skip
        _check(wanted, call)
    group = dist.group.WORLD
    assert message(TypeError, lambda: group.allreduce(_one(), options, 1)) == (
        "allreduce: got 3 arguments: must be tensors, opts"
    )
    assert message(TypeError, lambda: group.allreduce(_one(), op=ReduceOp.MAX, opts=options)) == (
        "allreduce: got opts and op: pass one of them"
    )
    assert (
        message(TypeError, lambda: group.broadcast(_one(), 1, root=0)) == "broadcast: got two values of root"
    )


def test_forms(two: Ranks) -> None:
    two.run(_forms)
