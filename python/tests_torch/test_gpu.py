"""Tensors of a GPU: the compiled Hadamard kernel, and operations. `make gpu` runs these tests, on one GPU."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch
from farwrite.torch import Hadamard

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of CUDA")
#: In a process that runs all tests, `test_hadamard.py` has set the variable.
compiled = pytest.mark.skipif(
    "TRITON_INTERPRET" in os.environ, reason="Triton interprets kernels in this process: run this file alone"
)

GPU = torch.device("cuda")
#: Number of cycles of a GPU: about 50 ms.
BUSY = 10**8


@pytest.fixture(scope="module")
def job() -> Iterator[Ranks]:
    """Return a job of two ranks that share a GPU."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.cpu().view(torch.uint8), other.cpu().view(torch.uint8))


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(16))
def test_the_compiled_kernel_returns_the_bits_of_the_host(seed: int, dtype: torch.dtype) -> None:
    rng = random.Random(seed)
    block, packet = 1 << rng.randrange(0, 15), 1 << rng.randrange(0, 12)
    hadamard = Hadamard(block, packet, 1 << rng.randrange(0, packet.bit_length()))
    # The values consist of groups of blocks, single blocks, and smaller blocks at the end.
    size = 2 * block * (hadamard.stride or packet) % (1 << 22) + 3 * block + rng.randrange(block)
    ends = sorted([rng.randrange(size), size])
    generator = torch.Generator().manual_seed(seed)
    values = (torch.randn(size, generator=generator) * 10 ** rng.uniform(-3, 3)).to(dtype)
    encoded = hadamard.encode(values, ends)
    assert same_bits(hadamard.encode(values.to(GPU), ends), encoded)
    assert same_bits(hadamard.decode(encoded.to(GPU), ends), hadamard.decode(encoded, ends))


@compiled
def test_a_transform_follows_what_its_stream_computes() -> None:
    values = torch.randn(1 << 20)
    hadamard = Hadamard()
    on_gpu = torch.zeros_like(values, device=GPU)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(BUSY)
        on_gpu.copy_(values)
        encoded = hadamard.encode(on_gpu)
        on_gpu.zero_()
        assert same_bits(encoded, hadamard.encode(values))


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return small whole numbers, so that sums are exact in any order."""
    return ((torch.arange(count, device=GPU) * 7 + 3 * rank + 1) % 5).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("count", [2, 1000, 1 << 20])
def test_operations(job: Ranks, count: int, dtype: torch.dtype) -> None:
    job.run(_operate, count, dtype)


def _operate(count: int, dtype: torch.dtype) -> None:
    rank = dist.get_rank()
    mine, other = values(rank, count, dtype), values(1 - rank, count, dtype)
    both = [values(0, count, dtype), values(1, count, dtype)]
    half = slice(rank * count // 2, (rank + 1) * count // 2)

    tensor = mine.clone()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, mine + other)

    gathered = mine.new_empty(2 * count)
    dist.all_gather_into_tensor(gathered, mine)
    assert torch.equal(gathered, torch.cat(both))
    parts = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(parts, mine)
    assert all(map(torch.equal, parts, both))

    part = mine.new_empty(count // 2)
    dist.reduce_scatter_tensor(part, mine)
    assert torch.equal(part, (mine + other)[half])
    exchanged = torch.empty_like(mine)
    dist.all_to_all_single(exchanged, mine)
    assert torch.equal(exchanged, torch.cat([one[half] for one in both]))

    tensor = mine.clone()
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, both[1])
    if rank == 0:
        dist.send(mine, 1)
    else:
        dist.recv(tensor, 0)
        assert torch.equal(tensor, other)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]


@pytest.mark.parametrize("is_default_stream", [True, False])
def test_results_are_in_the_order_of_streams(job: Ranks, is_default_stream: bool) -> None:
    """Each line of the program only queues work on the GPU. The program does not wait for it."""
    job.run(_in_order, is_default_stream)


def _in_order(is_default_stream: bool) -> None:
    rank, count = dist.get_rank(), 1 << 20
    mine, other = values(rank, count, torch.float32), values(1 - rank, count, torch.float32)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.default_stream() if is_default_stream else torch.cuda.Stream()):
        for by_future in (False, True):
            torch.cuda._sleep(BUSY)
            tensor = mine * 2
            work = dist.all_reduce(tensor, async_op=True)
            if by_future:
                tensor = work.get_future().then(lambda ended: ended.value()[0] + 1).wait()
            else:
                work.wait()
                tensor += 1
            copied = tensor.clone()
            tensor.zero_()
            assert torch.equal(copied, (mine + other) * 2 + 1)


def test_ddp_applies_the_mean_of_gradients(job: Ranks) -> None:
    answers = job.run(_train, "ddp")
    assert answers[0] == answers[1]


def test_a_hook_between_sites_applies_the_mean_of_gradients(job: Ranks) -> None:
    """Each rank is a site with one GPU, whose group uses NCCL."""
    answers = job.run(_train, "sites")
    assert answers[0] == answers[1]


def test_fsdp2_trains_like_one_process(job: Ranks) -> None:
    answers = job.run(_train, "fsdp2")
    assert answers[0] == answers[1]


def _train(way: str) -> list[float]:
    """Train for a few steps, and compare with a model that trains on the samples of both ranks."""
    rank = dist.get_rank()
    torch.manual_seed(1)
    alone = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8)).to(GPU)
    inputs, targets = torch.randn(2, 32, 64, device=GPU), torch.randn(2, 32, 8, device=GPU)
    model: Any = copy.deepcopy(alone)
    if way == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cuda", (2,)))
    else:
        model = DistributedDataParallel(model)
    if way == "sites":
        # All ranks make all groups, in the same order.
        inside = [dist.new_group([one], backend="nccl") for one in range(2)][rank]
        sites = farwrite.torch.Sites(inside, dist.new_group(backend="farwrite"))
        model.register_comm_hook(sites, farwrite.torch.average_between_sites)
    losses = []
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (alone, model)]
    for _ in range(5):
        expected = nn.functional.mse_loss(alone(inputs.flatten(0, 1)), targets.flatten(0, 1))
        own = nn.functional.mse_loss(model(inputs[rank]), targets[rank])
        for optimizer, loss in zip(optimizers, (expected, own), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = own.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        torch.testing.assert_close(mean, expected.detach())
        losses.append(mean.item())
    assert losses[-1] < losses[0]
    return losses


def test_a_bounded_group(job: Ranks) -> None:
    job.run(_reduce_bounded)


def _reduce_bounded() -> None:
    rank = dist.get_rank()
    policy = farwrite.torch.Bounded(loss_target=0.05, hadamard_block=1024)
    options = farwrite.torch.Options(policy=policy, trusted_store=True)
    group = dist.new_group(backend="farwrite", pg_options=options)
    generator = torch.Generator(GPU)
    both = [torch.randn(1 << 20, device=GPU, generator=generator.manual_seed(one)) for one in range(2)]
    for _ in range(8):
        tensor = both[rank].clone()
        dist.all_reduce(tensor, group=group)
        report = farwrite.torch.last_report(group)
        assert report is not None
        if report.missing_bytes == 0:
            torch.testing.assert_close(tensor, both[0] + both[1], rtol=0, atol=1e-4)
        gathered = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(gathered, tensor)
        assert torch.equal(gathered[0], gathered[1])
