"""Makes gloo run the operations that farwrite runs, if gloo of the installed PyTorch runs other operations.

`same_operations.py [--reduce-scatter] [--mean] SCRIPT ARGUMENTS` changes `torch.distributed`, and then runs a
script. So the scripts of a comparison need no change.
"""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp


def reduce_scatter_of_parts(
    output: torch.Tensor,
    input: torch.Tensor,
    op: Any = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> None:
    """Run a reduce-scatter that sends each part only to its owner, which reduces it.

    It sends half of the bytes of an all-reduce, which is the least for a reduce-scatter.
    """
    if async_op:
        raise ValueError("async_op = True: a reduce-scatter of parts is not asynchronous")
    parts = torch.empty_like(input)
    dist.all_to_all_single(parts, input.contiguous(), group=group)
    size = dist.get_world_size(group)
    parts = parts.view(size, -1)
    if op == ReduceOp.SUM or op == ReduceOp.AVG:
        reduced = parts.sum(0)
        if op == ReduceOp.AVG:
            reduced /= size
    elif op == ReduceOp.MAX:
        reduced = parts.amax(0)
    elif op == ReduceOp.MIN:
        reduced = parts.amin(0)
    else:
        raise ValueError(f"op = {op}: a reduce-scatter of parts has sum, mean, minimum and maximum")
    output.copy_(reduced.view_as(output))


def with_parts(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs `reduce_scatter_of_parts` in groups of gloo, and `own` in other groups."""

    def reduce_scatter(
        output: torch.Tensor,
        input: torch.Tensor,
        op: Any = ReduceOp.SUM,
        group: dist.ProcessGroup | None = None,
        async_op: bool = False,
    ) -> Any:
        if dist.get_backend(group) != "gloo":
            return own(output, input, op, group, async_op)
        return reduce_scatter_of_parts(output, input, op, group, async_op)

    return reduce_scatter


def without_mean(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes a mean as a sum and a division, and otherwise runs `own`.

    The first argument of `own` must be the tensor with its result.
    """
    signature = inspect.signature(own)

    def reduce(*arguments: Any, **options: Any) -> Any:
        call = signature.bind(*arguments, **options)
        call.apply_defaults()
        values = call.arguments
        if values["op"] != ReduceOp.AVG:
            return own(**values)
        if values["async_op"]:
            raise ValueError("async_op = True: a mean that is a sum and a division is not asynchronous")
        values["op"] = ReduceOp.SUM
        own(**values)
        target = next(iter(values.values()))
        target /= dist.get_world_size(values["group"])
        return None

    return reduce


#: The names of the changes.
FORCED = ("reduce-scatter", "mean")
#: The names of the reduce-scatter of one tensor. FSDP2 uses the first name, DeepSpeed the second name.
REDUCE_SCATTERS = ("reduce_scatter_single", "reduce_scatter_tensor")


def force(names: Sequence[str]) -> None:
    """Change operations of `torch.distributed` in this process."""
    if "reduce-scatter" in names:
        for name in REDUCE_SCATTERS:
            setattr(dist, name, with_parts(getattr(dist, name)))
    if "mean" in names:
        for name in ("all_reduce", *REDUCE_SCATTERS):
            setattr(dist, name, without_mean(getattr(dist, name)))


def main() -> None:
    """Change `torch.distributed`, and run a script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--reduce-scatter", action="store_true", help="make gloo send each part only to its owner"
    )
    parser.add_argument(
        "--mean", action="store_true", help="compute a mean as a sum and a division, on all backends"
    )
    parser.add_argument("script", help="the script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the arguments of the script")
    arguments = parser.parse_args()
    force([name for name in FORCED if getattr(arguments, name.replace("-", "_"))])
    sys.argv = [arguments.script, *arguments.arguments]
    runpy.run_path(arguments.script, run_name="__main__")


if __name__ == "__main__":
    main()
