"""Replicas of a model whose weights drift apart, and a function that makes them equal again."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from farwrite.torch.faces import farwrite_group


def resynchronise(
    module: torch.nn.Module,
    step: SupportsIndex,
    *,
    every: SupportsIndex = 100,
    group: dist.ProcessGroup | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> float | None:
    """Make replicas of a model equal, bit for bit, after each `every` steps.

    With ``Bounded(parts="bounded")``, the gradients of replicas differ, so the weights of replicas drift
    apart. Call this function after each step of the optimizer, with the same arguments at all ranks. All
    ranks replace the parameters and buffers of floating-point types by their mean over the ranks, and all
    other parameters and buffers by those of rank 0. The tensors in the state of `optimizer`, such as
    momentum, are replaced in the same way. Without `optimizer`, this state stays different at each rank.
    Means are computed in float64, so each value takes 8 bytes on the network.

    Parameters
    ----------
    module
        The replicated module. Each rank must have all of its parameters.
    step
        The number of steps that the optimizer has made, from 1.
    every
        The number of steps after which replicas are made equal.
    group
        A group of this backend, with any policy. None: the default group.
    optimizer
        The optimizer of the parameters. Its state must have the same names and shapes at all ranks.

    Returns
    -------
    float | None
        The drift: the largest difference, over all ranks and values of the module, between a value and its
        mean over the ranks. None if `step` is not a multiple of `every`.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid. The message names the argument and its value.
    """
    farwrite_group(group)
    step, every = _steps("step", step), _steps("every", every)
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer = {optimizer!r}: must be an optimizer of torch.optim, or None")
    tensors = _tensors(module)
    if step % every != 0:
        return None
    drift = _equalise(group, tensors)
    if optimizer is not None:
        _equalise(group, _state(optimizer))
    _reduce(group, drift, dist.ReduceOp.MAX)
    return float(drift)


def _steps(name: str, steps: SupportsIndex) -> int:
    """Return a number of steps, which may be an integer of NumPy."""
    is_integer = hasattr(steps, "__index__") and not isinstance(steps, bool)
    number = operator.index(steps) if is_integer else 0
    if number < 1:
        raise ValueError(f"{name} = {steps!r}: must be a number of steps from 1 on")
    return number


def _equalise(group: dist.ProcessGroup | None, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Make tensors equal at all ranks. Return the largest difference of this rank's values from the mean."""
    drift = torch.zeros((), dtype=torch.float64)
    # A model can have tensors on a GPU and on the host: Adam counts its steps on the host. The kinds are in
    # the order of their first tensors, which is the same at all ranks.
    for kind in dict.fromkeys((tensor.dtype, tensor.device) for tensor in tensors):
        of_type = [tensor for tensor in tensors if (tensor.dtype, tensor.device) == kind]
        flat = torch.cat([tensor.flatten() for tensor in of_type])
        if flat.is_floating_point():
            before = flat
            # In a narrower type, the sum could overflow or be rounded, which would change replicas that are
            # equal.
            mean = before.to(torch.float64, copy=True)
            _reduce(group, mean, dist.ReduceOp.AVG)
            flat = mean.to(before.dtype)
            del mean
            difference = (flat.double() - before).abs_()
            # The difference of two infinite values, as in the mask of an attention, is NaN. Here it is 0.
            difference[before == flat] = 0
            drift = torch.maximum(drift, difference.max().cpu().nan_to_num(nan=torch.inf))
        else:
            dist.broadcast(flat, group_src=0, group=group)
        parts = flat.split([tensor.numel() for tensor in of_type])
        for tensor, part in zip(of_type, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
    return drift


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """Return all parameters and buffers that are not empty."""
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in named:
        if isinstance(tensor, DTensor):
            raise TypeError(f"module has the sharded parameter {name!r}: resynchronise is for replicas")
    return [tensor.detach() for _, tensor in named if tensor.numel() > 0]


def _state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return all tensors in the state of an optimizer, in the order of parameters and of names."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = [optimizer.state[parameter] for parameter in parameters if parameter in optimizer.state]
    found = [state[name] for state in states for name in sorted(state)]
    return [value.detach() for value in found if isinstance(value, torch.Tensor) and value.numel() > 0]


def _reduce(group: dist.ProcessGroup | None, tensor: torch.Tensor, how: dist.ReduceOp.RedOpType) -> None:
    options = dist.AllreduceOptions()
    options.reduceOp = how
    farwrite_group(group).allreduce([tensor], options, is_exact=True).wait()
