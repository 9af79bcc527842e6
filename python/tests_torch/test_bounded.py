"""Operations that end at a deadline: which data they leave out, and that replicas stay equal."""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.distributed as dist
from ranks import Ranks, gloo, message
from test_training import model, train
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch
from farwrite.torch import Bounded, Options

OPTIONS = Options(trusted_store=True, policy=Bounded(0.02, min_bytes=4096))
VALUES = 100_000


def be_late(group: dist.ProcessGroup) -> None:
    """Sleep for longer than the other ranks wait. Their timeout depends on the speed of earlier
    operations: an operation that was cut early counts as four times as long. The timeout of the first
    operations is minutes long, so the sleep is at most six seconds."""
    report = farwrite.torch.last_report(group)
    assert report is not None
    time.sleep(min(max(0.5, 5 * report.timeout_s), 6))


def contributors(tensor: torch.Tensor, ranks: int) -> int:
    """Check a sum to which rank r has contributed 2^r or nothing. Return how many values lack a
    contribution."""
    values = tensor.long()
    assert torch.equal(values.float(), tensor)
    assert values.min() >= 0
    assert values.max() < 2**ranks
    return int((values != 2**ranks - 1).sum())


def check_shares(group: dist.ProcessGroup, bounded: list[farwrite.torch.Report], exact: int) -> None:
    """Check that a group's last report sums up the reports of its bounded operations."""
    last = farwrite.torch.last_report(group)
    assert last is not None
    assert (last.operations, last.bounded_operations) == (len(bounded) + exact, len(bounded))
    assert last.cut_share == sum(report.was_cut for report in bounded) / len(bounded)
    missing, whole = (
        sum(getattr(report, name) for report in bounded) for name in ("missing_bytes", "result_bytes")
    )
    assert last.missing_share == missing / whole
    assert all(report.missing_bytes > 0 for report in bounded if report.was_cut)


def test_an_all_reduce_names_what_it_lacks(job: Ranks) -> None:
    for results in zip(*job.run(_all_reduces), strict=True):
        assert len(set(results)) == 1, "ranks have different results"


def _all_reduces() -> list[bytes]:
    group = dist.new_group(pg_options=OPTIONS)
    results, reports = [], []
    for step in range(10):
        tensor = torch.full((VALUES,), 2.0 ** dist.get_rank())
        if dist.get_rank() == 1 and step == 5:
            be_late(group)
        dist.all_reduce(tensor, group=group)
        report = farwrite.torch.last_report(group)
        assert report is not None
        assert report.missing_bytes == 4 * contributors(tensor, dist.get_world_size())
        results.append(tensor.numpy().tobytes())
        reports.append(report)
    # Rank 1 was late, so each other rank waited for it until the deadline.
    assert dist.get_rank() == 1 or any(report.was_cut for report in reports)
    # An exact operation changes neither `cut_share` nor `missing_share`.
    dist.barrier(group=group)
    check_shares(group, reports, exact=1)
    dist.destroy_process_group(group)
    return results


def test_an_all_reduce_around_a_ring_names_what_it_lacks(job: Ranks) -> None:
    results = job.run(_rings)
    for exact in zip(*(exact for exact, _ in results), strict=True):
        assert len(set(exact)) == 1, "ranks have different results"


def _rings() -> tuple[list[bytes], list[bytes]]:
    results: tuple[list[bytes], list[bytes]] = ([], [])
    for parts, of_group in zip(("exact", "bounded"), results, strict=True):
        policy = Bounded(0.02, min_bytes=4096, algorithm="ring", parts=parts)
        group = dist.new_group(pg_options=Options(trusted_store=True, policy=policy))
        cut = False
        for step in range(10):
            tensor = torch.full((VALUES,), 2.0 ** dist.get_rank())
            if dist.get_rank() == 1 and step == 5:
                be_late(group)
            dist.all_reduce(tensor, group=group)
            report = farwrite.torch.last_report(group)
            assert report is not None
            assert report.missing_bytes == 4 * contributors(tensor, dist.get_world_size())
            cut = cut or report.was_cut
            of_group.append(tensor.numpy().tobytes())
        # The rank after the late one has waited for it.
        assert cut or dist.get_rank() != 2 % dist.get_world_size()
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    return results


def test_a_rank_that_is_late_is_left_out(two: Ranks) -> None:
    assert all(two.run(_late))


def _late() -> bool:
    group = dist.new_group(pg_options=OPTIONS)
    cut = False
    for step in range(30):
        tensor = torch.full((VALUES,), 2.0 ** dist.get_rank())
        if dist.get_rank() == 1 and step == 5:
            be_late(group)
        elif dist.get_rank() == 1 and step % 6 == 5:
            time.sleep(0.5)
        dist.all_reduce(tensor, group=group)
        cut = cut or contributors(tensor, 2) > 0
    report = farwrite.torch.last_report(group)
    assert report is not None
    assert (report.missing_share > 0) == cut
    dist.destroy_process_group(group)
    return cut


def test_a_reduce_scatter_ends_beside_a_rank_that_sleeps(two: Ranks) -> None:
    (elapsed_s, slept_s, lacked), _ = two.run(_sleeps)
    assert elapsed_s < slept_s - 1, "it waited for the rank that slept"
    assert lacked == 4 * VALUES


def _sleeps() -> tuple[float, float, int]:
    group = dist.new_group(pg_options=OPTIONS)
    part = torch.empty(VALUES)
    slept_s = 0.0
    for step in range(8):
        report = farwrite.torch.last_report(group)
        if step == 7 and report is not None:
            slept_s = 2 + 5 * report.timeout_s
            if dist.get_rank() == 1:
                time.sleep(slept_s)
        dist.reduce_scatter_tensor(part, torch.ones(2 * VALUES), group=group)
    report = farwrite.torch.last_report(group)
    assert report is not None
    lacked = int((part == 1).sum()) * 4
    assert report.missing_bytes == lacked
    dist.barrier(group=group)
    dist.destroy_process_group(group)
    return report.elapsed_s, slept_s, lacked


def test_small_and_whole_numbered_operations_are_exact(two: Ranks) -> None:
    two.run(_exact)


def _exact() -> None:
    group = dist.new_group(pg_options=OPTIONS)
    for tensor in (torch.ones(1000), torch.ones(VALUES, dtype=torch.int64)):
        for step in range(3):
            once = tensor.clone()
            if dist.get_rank() == 1:
                time.sleep(0.1)
            dist.all_reduce(once, group=group)
            assert torch.equal(once, tensor * 2)
            if step:
                # Of the bounded operations of a size, only the first one has the timeout of an exact
                # operation.
                report = farwrite.torch.last_report(group)
                assert report is not None
                assert report.timeout_s > 600
    dist.destroy_process_group(group)


def test_integers_are_exact_in_an_operation_that_begins_with_floats(two: Ranks) -> None:
    two.run(_mixed)


def _mixed() -> None:
    policy = Bounded(0.02, min_bytes=4096, operations=("all-reduce", "all-gather"))
    group = dist.new_group(pg_options=Options(trusted_store=True, policy=policy))
    rank = dist.get_rank()
    # The first operation is bounded, so that there is a timeout which a rank can exceed.
    for _ in range(5):
        dist.all_reduce(torch.ones(VALUES), group=group)
    inputs = [torch.full((VALUES,), rank + 1.0), torch.full((VALUES,), rank + 1)]
    for step in range(6):
        outputs = [[torch.zeros_like(tensor) for tensor in inputs] for _ in range(2)]
        if rank == 1 and step == 5:
            be_late(group)
        group.allgather_coalesced(outputs, inputs).wait()
        for other, (_, integers) in enumerate(outputs):
            assert torch.equal(integers, torch.full_like(integers, other + 1))
    dist.barrier(group=group)
    dist.destroy_process_group(group)


def test_replicas_do_not_drift_apart(job: Ranks) -> None:
    job.run(_ddp)


def _ddp() -> None:
    group = dist.new_group(pg_options=OPTIONS)
    module = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.01)
    train(module, module.parameters(), dist.get_rank())
    if dist.get_rank() == 1:
        be_late(group)
    train(module, module.parameters(), dist.get_rank())
    report = farwrite.torch.last_report(group)
    assert report is not None
    assert report.missing_share > 0
    weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    everyone = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, weights)
    assert all(torch.equal(other, weights) for other in everyone)
    dist.destroy_process_group(group)


PARTS = Options(trusted_store=True, policy=Bounded(0.02, min_bytes=4096, parts="bounded"))


def test_a_rank_names_the_contributors_of_its_own_result(two: Ranks) -> None:
    results = list(zip(*two.run(_bounded_parts), strict=True))
    assert any(one != other for one, other in results), "a rank was late, and results are the same"


def _bounded_parts() -> list[bytes]:
    group = dist.new_group(pg_options=PARTS)
    results = []
    for step in range(10):
        tensor = torch.full((VALUES,), 2.0 ** dist.get_rank())
        if dist.get_rank() == 1 and step == 5:
            be_late(group)
        dist.all_reduce(tensor, group=group)
        report = farwrite.torch.last_report(group)
        assert report is not None
        assert report.missing_bytes == 4 * contributors(tensor, 2)
        results.append(tensor.numpy().tobytes())
    dist.destroy_process_group(group)
    return results


def test_bounded_parts_of_transformed_sums(two: Ranks) -> None:
    """Both phases of an all-reduce are best effort, and contributions are transformed, as in OptiNIC."""
    results = list(zip(*two.run(_transformed_parts), strict=True))
    assert any(one != other for one, other in results), "a rank was late, and results are the same"


def _transformed_parts() -> list[bytes]:
    policy = Bounded(0.02, min_bytes=4096, parts="bounded", hadamard_block=64)
    group = dist.new_group(pg_options=Options(trusted_store=True, policy=policy))
    rank = dist.get_rank()
    inputs = [torch.randn(VALUES, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    results, was_alone = [], False
    for step in range(10):
        tensor = inputs[rank].clone()
        if rank == 1 and step == 5:
            be_late(group)
        dist.all_reduce(tensor, group=group)
        report = farwrite.torch.last_report(group)
        assert report is not None
        if report.missing_bytes == 0:
            torch.testing.assert_close(tensor, inputs[0] + inputs[1], rtol=0, atol=1e-4)
        # The part of the other rank is lost as a whole, if that rank is late.
        theirs = slice(VALUES // 2, None) if rank == 0 else slice(VALUES // 2)
        is_alone = torch.allclose(tensor[theirs], inputs[rank][theirs], rtol=0, atol=1e-4)
        assert not is_alone or report.missing_bytes >= 2 * VALUES
        was_alone = was_alone or is_alone
        results.append(tensor.numpy().tobytes())
    assert was_alone or rank == 1, "rank 1 was late, and rank 0 has its part"
    dist.destroy_process_group(group)
    return results


def test_replicas_that_drift_apart_are_resynchronised(job: Ranks) -> None:
    for drifts in job.run(_resynchronised):
        assert drifts[0] is None, "the step is no multiple"
        assert drifts[1] > 0, "a rank was late, and weights are the same"
        assert drifts[2] == 0, "they were resynchronised, and are not the same"


def _resynchronised() -> list[float | None]:
    group = dist.new_group(pg_options=PARTS)
    network = torch.nn.Sequential(model(), torch.nn.BatchNorm1d(10))
    # The mask of an attention has infinite values, which are no drift, or the least value of its type. The
    # sum of the least values of all ranks is too large for the type.
    network.register_buffer("mask", torch.tensor([0, -torch.inf, torch.finfo(torch.float32).min]))
    network.register_buffer("short", torch.tensor([60_000.0], dtype=torch.float16))
    module = DistributedDataParallel(network, process_group=group, bucket_cap_mb=0.01)
    values = list(module.parameters())
    torch.manual_seed(dist.get_rank())
    train(module, values, dist.get_rank())
    if dist.get_rank() == 1:
        be_late(group)
    train(module, values, dist.get_rank())
    every = [farwrite.torch.resynchronise(module, step, every=4, group=group) for step in (3, 4, np.int64(8))]
    for value in [*values, *module.buffers()]:
        everyone = [torch.empty_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, value.detach())
        assert all(torch.equal(other, value) for other in everyone)
    assert network.mask[2] == torch.finfo(torch.float32).min
    assert network.short == 60_000
    dist.destroy_process_group(group)
    return every


def test_the_state_of_the_optimizer_is_resynchronised(job: Ranks) -> None:
    job.run(_resynchronised_state)


def _resynchronised_state() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for make in (
        lambda values: torch.optim.SGD(values, lr=0.1, momentum=0.9),
        lambda values: torch.optim.AdamW(values, lr=0.1),
    ):
        torch.manual_seed(0)
        module = model()
        optimizer = make(module.parameters())
        # Each rank has different gradients, as if reduced parts had been lost.
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, rank + 1.0)
        optimizer.step()
        states = [optimizer.state[parameter] for parameter in module.parameters()]
        name = "momentum_buffer" if "momentum_buffer" in states[0] else "exp_avg"
        own = states[0][name].clone()
        mean = own.clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        assert not torch.equal(own, mean)
        farwrite.torch.resynchronise(module, 1, every=1)
        assert torch.equal(states[0][name], own), "it changed without being given"
        farwrite.torch.resynchronise(module, 2, every=1, optimizer=optimizer)
        for state in states:
            for value in (value for value in state.values() if isinstance(value, torch.Tensor)):
                everyone = [torch.empty_like(value) for _ in range(size)]
                dist.all_gather(everyone, value)
                assert all(torch.equal(other, value) for other in everyone)
        # The order of additions depends on the size of the tensor.
        torch.testing.assert_close(states[0][name], mean)


def test_replicas_that_cannot_be_resynchronised_are_refused_by_name(two: Ranks) -> None:
    two.run(_refused)


def _refused() -> None:
    module = torch.nn.Linear(2, 2)
    said = message(ValueError, lambda: farwrite.torch.resynchronise(module, 1, every=0))
    assert said == "every = 0: must be a number of steps from 1 on"
    said = message(TypeError, lambda: farwrite.torch.resynchronise(module, 1, optimizer=module))
    assert "must be an optimizer of torch.optim, or None" in said
    said = message(TypeError, lambda: farwrite.torch.resynchronise(module, 1, group=gloo()))
    assert "must be a group of the backend farwrite" in said
