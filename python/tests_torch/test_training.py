"""Data-parallel training, compared with gloo and with training in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, gloo
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch
from farwrite.torch import Sites, average_between_sites

STEPS = 5


def model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 10))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator)


def train(module: nn.Module, parameters: Any, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(rank, step)
        loss = nn.functional.cross_entropy(module(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def alone(ranks: int) -> tuple[list[list[float]], nn.Module]:
    """Train on the batches of all ranks in this process. Return the losses and the model."""
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses: list[list[float]] = [[] for _ in range(ranks)]
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(ranks):
            inputs, labels = batch(rank, step)
            loss = nn.functional.cross_entropy(module(inputs), labels)
            (loss / ranks).backward()
            losses[rank].append(loss.item())
        optimizer.step()
    return losses, module


def test_ddp_gives_the_losses_of_gloo(job: Ranks) -> None:
    for rank, (ours, beside) in enumerate(job.run(_ddp)):
        # With two ranks, a sum does not depend on the order of the ranks.
        tolerance = 0 if job.size == 2 else 1e-6
        assert max(abs(a - b) for a, b in zip(ours, beside, strict=True)) <= tolerance, f"rank {rank}"
        assert ours[-1] != ours[0]


def _ddp() -> tuple[list[float], list[float]]:
    losses = []
    for group in (None, gloo()):
        # Buckets are small, so that a step has several operations in flight.
        module = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.01)
        losses.append(train(module, module.parameters(), dist.get_rank()))
        weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
        everyone = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, weights)
        assert all(torch.equal(other, weights) for other in everyone), "replicas have drifted apart"
    return losses[0], losses[1]


def check_losses(job: Ranks, run: Callable[[], list[float]]) -> None:
    """Check that training on all ranks has the losses of training in one process."""
    losses, _ = alone(job.size)
    for rank, ours in enumerate(job.run(run)):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(losses[rank]), msg=f"rank {rank}")


def test_a_hook_between_sites_trains_like_one_process(four: Ranks) -> None:
    check_losses(four, _sites)


def _sites() -> list[float]:
    # Ranks 0 and 1 are in one site, ranks 2 and 3 in another.
    rank = dist.get_rank()
    insides = [dist.new_group(site, backend="gloo") for site in ([0, 1], [2, 3])]
    betweens = [dist.new_group(peers) for peers in ([0, 2], [1, 3])]
    module = DistributedDataParallel(model(), bucket_cap_mb=0.01)
    sites = Sites(insides[rank // 2], betweens[rank % 2])
    module.register_comm_hook(sites, average_between_sites)
    losses = train(module, module.parameters(), rank)
    report = farwrite.torch.last_report(sites.between)
    assert report is not None
    assert report.operation == "all_reduce"
    return losses


def test_fsdp1_trains_like_one_process(job: Ranks) -> None:
    check_losses(job, _fsdp1)


def _fsdp1() -> list[float]:
    # FSDP resizes the storage of gathered parameters before and after each use.
    policy = ModuleWrapPolicy({nn.Linear})
    module = FullyShardedDataParallel(model(), auto_wrap_policy=policy, device_id=torch.device("cpu"))
    return train(module, module.parameters(), dist.get_rank())


def test_fsdp2_trains_like_one_process(job: Ranks) -> None:
    answers = job.run(_fsdp2)
    losses, module = alone(job.size)
    for rank, (ours, weights) in enumerate(answers):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(losses[rank]), msg=f"rank {rank}")
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(weights[name], parameter.detach(), msg=f"rank {rank}: {name}")


def _fsdp2() -> tuple[list[float], dict[str, torch.Tensor]]:
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    module = model()
    for layer in module:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    losses = train(module, module.parameters(), dist.get_rank())
    return losses, {name: parameter.full_tensor().detach() for name, parameter in module.named_parameters()}


@pytest.mark.skipif(torch.__version__.startswith("2.7."), reason="torch 2.7 needs a GPU for this")
def test_fsdp2_over_replicas_uses_two_groups(four: Ranks) -> None:
    check_losses(four, _hybrid)


def _hybrid() -> list[float]:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    module = model()
    fully_shard(module, mesh=mesh)
    return train(module, module.parameters(), dist.get_rank())


def test_zero3_gives_the_losses_of_gloo(two: Ranks) -> None:
    """DeepSpeed uses only the default group, so gloo has a separate job."""
    ours = two.run(_zero3)
    beside = Ranks(2, "gloo")
    assert ours == beside.run(_zero3)
    beside.close()
    assert ours[0][0] != ours[0][-1]


def _zero3() -> list[float]:
    import os

    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["LOCAL_RANK"] = str(dist.get_rank())
    import deepspeed
    import deepspeed.ops

    # DeepSpeed would compile an operation over shared memory, which training does not use.
    deepspeed.ops.__compatible_ops__.clear()
    module = model()
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
        dist_init_required=False,
        config={
            "train_micro_batch_size_per_gpu": 16,
            "zero_optimization": {"stage": 3},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(dist.get_rank(), step)
        loss = nn.functional.cross_entropy(engine(inputs), labels)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses
