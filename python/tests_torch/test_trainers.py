"""Compiled models and checkpoints, which trainers use with a group."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import Ranks
from test_training import model, train
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def test_a_compiled_model_trains_as_one_that_is_not(job: Ranks) -> None:
    for compiled, plain in job.run(_compiled):
        assert compiled == plain


def _compiled() -> tuple[list[float], list[float]]:
    torch.compiler.reset()
    plain, traced = DistributedDataParallel(model()), DistributedDataParallel(model())
    # This backend of the compiler traces like all backends, but generates no code.
    compiled = torch.compile(traced, backend="eager")
    rank = dist.get_rank()
    return train(compiled, traced.parameters(), rank), train(plain, plain.parameters(), rank)


def test_operations_in_compiled_functions(job: Ranks) -> None:
    assert job.run(_compiled_operation) == [[job.size] * 4] * job.size


def _compiled_operation() -> list[float]:
    def reduced(values: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(values)
        return values

    values: Any = torch.compile(reduced, backend="eager")(torch.ones(4))
    return list(values.tolist())


def test_checkpoints_that_are_saved_meanwhile(job: Ranks, tmp_path: Path) -> None:
    job.run(_saved, str(tmp_path))


def _saved(folder: str) -> None:
    saved = model()
    dcp.async_save({"model": saved.state_dict()}, checkpoint_id=folder).result()
    read = {"model": {name: torch.zeros_like(value) for name, value in saved.state_dict().items()}}
    dcp.load(read, checkpoint_id=folder)
    for name, value in saved.state_dict().items():
        assert torch.equal(read["model"][name], value), name


def test_weights_of_rank_0_reach_the_shards_of_all(job: Ranks) -> None:
    job.run(_broadcast)


def _broadcast() -> None:
    whole = model().state_dict() if dist.get_rank() == 0 else {}
    shards = nn.Sequential(*model())
    for parameter in shards.parameters():
        nn.init.zeros_(parameter)
    fully_shard(shards)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(shards, whole, options=options)
    for name, wanted in model().state_dict().items():
        assert torch.equal(shards.state_dict()[name].full_tensor(), wanted), name


def test_a_monitored_barrier(job: Ranks) -> None:
    job.run(_monitored)


def _monitored() -> None:
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=60))
    except ValueError as error:
        # These versions of torch refuse this call for all backends except gloo.
        known = torch.__version__.startswith(("2.7.", "2.11."))
        if not known or "only implemented for GLOO" not in str(error):
            raise
