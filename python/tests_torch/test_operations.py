"""Every operation with every type of value, compared with the expected result."""

import time
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, gloo
from torch.distributed import ReduceOp

import farwrite.torch

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
REDUCED = (*FLOATS, *INTEGERS, torch.bool)
#: Types that can be moved but not reduced.
MOVED = (*REDUCED, torch.int16, torch.complex64, torch.float8_e4m3fn)
SHAPES = ((1,), (), (3, 5), (1000,), (0,))

SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": torch.add,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "PRODUCT": torch.mul,
}


def values(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return small whole numbers, so that sums of every type are exact in any order."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + 3 * rank + 1) % 5).reshape(shape).to(dtype)


def size() -> int:
    return dist.get_world_size()


def everyone(dtype: torch.dtype, shape: tuple[int, ...]) -> list[torch.Tensor]:
    return [values(rank, dtype, shape) for rank in range(size())]


def expected(op: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if dtype == torch.bool:
        joins = {"SUM": torch.logical_or, "MAX": torch.logical_or}
        return reduce(joins.get(op, torch.logical_and), everyone(dtype, shape))
    if op == "AVG":
        total = reduce(torch.add, everyone(dtype, shape))
        return total / size() if dtype.is_floating_point else total.div(size(), rounding_mode="trunc")
    return reduce(SUMS[op], everyone(dtype, shape))


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert torch.equal(
        got.view(torch.uint8) if got.dim() else got, want.view(torch.uint8) if want.dim() else want
    )


def cases(op: str) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    return [(dtype, shape) for dtype in REDUCED for shape in SHAPES if (op, dtype) != ("AVG", torch.bool)]


@pytest.mark.parametrize("op", ["SUM", "AVG", "MIN", "MAX", "PRODUCT"])
@pytest.mark.parametrize("operation", ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"])
def test_reductions(job: Ranks, operation: str, op: str) -> None:
    job.run({"all_reduce": _all_reduce, "reduce": _reduce}.get(operation, _reduce_scatter), op, operation)


def _all_reduce(op: str, _: str) -> None:
    for dtype, shape in cases(op):
        tensor = values(dist.get_rank(), dtype, shape)
        dist.all_reduce(tensor, getattr(ReduceOp, op))
        equal(tensor, expected(op, dtype, shape))


def _reduce(op: str, _: str) -> None:
    root = size() - 1
    for dtype, shape in cases(op):
        tensor = values(dist.get_rank(), dtype, shape)
        dist.reduce(tensor, root, getattr(ReduceOp, op))
        mine = dist.get_rank() == root
        equal(tensor, expected(op, dtype, shape) if mine else values(dist.get_rank(), dtype, shape))


def _reduce_scatter(op: str, operation: str) -> None:
    for dtype, shape in cases(op):
        whole = (size(), *shape)
        parts = values(dist.get_rank(), dtype, whole)
        output = torch.empty(shape, dtype=dtype)
        if operation == "reduce_scatter":
            dist.reduce_scatter(output, list(parts), getattr(ReduceOp, op))
        else:
            dist.reduce_scatter_tensor(output.view(-1), parts.view(-1), getattr(ReduceOp, op))
        equal(output, expected(op, dtype, whole)[dist.get_rank()])


def test_reductions_of_bits(job: Ranks) -> None:
    job.run(_bits)


def _bits() -> None:
    joins = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    for dtype in (*INTEGERS, torch.bool):
        for op, join in joins.items():
            tensor = values(dist.get_rank(), dtype, (1000,))
            dist.all_reduce(tensor, getattr(ReduceOp, op))
            equal(tensor, reduce(join, everyone(dtype, (1000,))))


def test_complex_values_are_summed_and_averaged(job: Ranks) -> None:
    job.run(_complex)


def _complex() -> None:
    for dtype in (torch.complex64, torch.complex128):
        for op in ("SUM", "AVG"):
            tensor = torch.full((5,), complex(1, dist.get_rank()), dtype=dtype)
            dist.all_reduce(tensor, getattr(ReduceOp, op))
            total = torch.full((5,), complex(size(), sum(range(size()))), dtype=dtype)
            equal(tensor, total if op == "SUM" else total / size())


def test_parts_of_a_reduce_scatter_can_differ_in_size(job: Ranks) -> None:
    job.run(_uneven)


def _uneven() -> None:
    shapes = [(3 * rank, 2) for rank in range(size())]
    output = torch.empty(shapes[dist.get_rank()])
    parts = [values(dist.get_rank() + rank, torch.float32, shape) for rank, shape in enumerate(shapes)]
    dist.reduce_scatter(output, parts)
    mine = dist.get_rank()
    wanted = [values(rank + mine, torch.float32, shapes[mine]) for rank in range(size())]
    equal(output, reduce(torch.add, wanted))


def test_sparse_tensors_are_summed(job: Ranks) -> None:
    job.run(_sparse)


def _sparse() -> None:
    def mine(rank: int) -> torch.Tensor:
        # Rank 0 has no values, and others have rows in common.
        rows = torch.arange(rank) * 2
        return torch.sparse_coo_tensor(rows[None], torch.ones(rank, 3) + rank, (9, 3))

    tensor = mine(dist.get_rank())
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert torch.equal(tensor.to_dense(), sum(mine(rank).to_dense() for rank in range(size())))
    assert tensor.is_sparse


@pytest.mark.parametrize("operation", ["broadcast", "all_gather", "all_gather_into_tensor", "all_to_all",
                                       "all_to_all_single", "gather", "scatter"])  # fmt: skip
def test_movements(job: Ranks, operation: str) -> None:
    job.run(_move, operation)


def _move(operation: str) -> None:
    for dtype in MOVED:
        for shape in SHAPES:
            globals()[f"_{operation}"](dtype, shape, dist.get_rank())


def _broadcast(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    tensor = values(rank, dtype, shape)
    dist.broadcast(tensor, src=1)
    equal(tensor, values(1, dtype, shape))


def _all_gather(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    outputs = [torch.empty(shape, dtype=dtype) for _ in range(size())]
    dist.all_gather(outputs, values(rank, dtype, shape))
    for output, want in zip(outputs, everyone(dtype, shape), strict=True):
        equal(output, want)


def _all_gather_into_tensor(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    output = torch.empty((size(), *shape), dtype=dtype)
    # The input is a part of the output, as in FSDP.
    output[rank] = values(rank, dtype, shape)
    dist.all_gather_into_tensor(output.view(-1), output[rank].view(-1))
    equal(output, torch.stack(everyone(dtype, shape)))


def _all_to_all(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    # Rank r sends r + s + 1 values to rank s.
    inputs = [values(rank, dtype, (rank + to + 1,)) for to in range(size())]
    outputs = [torch.empty(rank + of + 1, dtype=dtype) for of in range(size())]
    dist.all_to_all(outputs, inputs)
    for of, output in enumerate(outputs):
        equal(output, values(of, dtype, (of + rank + 1,)))


def _all_to_all_single(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    # Tensors have 2 columns. Rank r sends r + s rows to rank s, so rank 0 sends nothing to itself.
    sends = [values(rank, dtype, (rank + to, 2)) for to in range(size())]
    output = torch.empty(sum(rank + of for of in range(size())), 2, dtype=dtype)
    rows = [rank + of for of in range(size())]
    dist.all_to_all_single(output, torch.cat(sends), rows, [len(part) for part in sends])
    equal(output, torch.cat([values(of, dtype, (of + rank, 2)) for of in range(size())]))
    equal_parts = torch.empty(size(), 3, dtype=dtype)
    dist.all_to_all_single(equal_parts, values(rank, dtype, (size(), 3)))
    equal(equal_parts, torch.stack([values(of, dtype, (size(), 3))[rank] for of in range(size())]))


def _gather(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    outputs = [torch.empty(shape, dtype=dtype) for _ in range(size())] if rank == 1 else None
    dist.gather(values(rank, dtype, shape), outputs, dst=1)
    for output, want in zip(outputs or [], everyone(dtype, shape) if outputs else [], strict=True):
        equal(output, want)


def _scatter(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> None:
    parts = list(values(1, dtype, (size(), *shape))) if rank == 1 else None
    output = torch.empty(shape, dtype=dtype)
    dist.scatter(output, parts, src=1)
    equal(output, values(1, dtype, (size(), *shape))[rank])


def test_objects(job: Ranks) -> None:
    job.run(_objects)


def _objects() -> None:
    rank, everything = dist.get_rank(), [{"rank": rank, "text": "x" * rank} for rank in range(size())]
    gathered: list[Any] = [None] * size()
    dist.all_gather_object(gathered, everything[rank])
    assert gathered == everything
    at_root: list[Any] | None = [None] * size() if rank == 1 else None
    dist.gather_object(everything[rank], at_root, dst=1)
    assert at_root == (everything if rank == 1 else None)
    broadcast = [everything[1] if rank == 1 else None]
    dist.broadcast_object_list(broadcast, src=1)
    assert broadcast == [everything[1]]
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, everything if rank == 1 else None, src=1)
    assert scattered == [everything[rank]]


def test_coalesced(job: Ranks) -> None:
    job.run(_coalesced)


def _coalesced() -> None:
    rank = dist.get_rank()
    shapes = [(4,), (2, 3), (1,)]
    tensors = [values(rank, torch.float32, shape) for shape in shapes]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    gathered = [torch.empty(size(), *shape) for shape in shapes]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, shape in zip(gathered, shapes, strict=True):
            dist.all_gather_into_tensor(output.view(-1), values(rank, torch.float32, shape).view(-1))
    manager.wait()
    scattered = [torch.empty(shape) for shape in shapes]
    with dist._coalescing_manager():
        for output, shape in zip(scattered, shapes, strict=True):
            parts = values(rank, torch.float32, (size(), *shape))
            dist.reduce_scatter_tensor(output.view(-1), parts.view(-1))
    for index, shape in enumerate(shapes):
        equal(tensors[index], expected("SUM", torch.float32, shape))
        equal(gathered[index], torch.stack(everyone(torch.float32, shape)))
        equal(scattered[index], expected("SUM", torch.float32, (size(), *shape))[rank])


def test_older_names(job: Ranks) -> None:
    job.run(_older_names)


def _older_names() -> None:
    rank, group = dist.get_rank(), dist.group.WORLD
    mine, whole = values(rank, torch.float32, (3,)), values(rank, torch.float32, (size(), 3)).view(-1)
    gathered, reduced = torch.empty(3 * size()), torch.empty(3)
    want = torch.cat(everyone(torch.float32, (3,)))
    for gather in (lambda: group._allgather_base(gathered, mine),
                   lambda: group.allgather_into_tensor_coalesced([gathered], [mine])):  # fmt: skip
        gathered.zero_()
        gather().wait()
        equal(gathered, want)
    options = dist.ReduceScatterOptions()
    for scatter in (lambda: group._reduce_scatter_base(reduced, whole, options),
                    lambda: group.reduce_scatter_tensor_coalesced([reduced], [whole], options)):  # fmt: skip
        reduced.zero_()
        scatter().wait()
        equal(reduced, expected("SUM", torch.float32, (size(), 3))[rank])
    exchanged = torch.empty(size(), 3)
    group.alltoall_base(exchanged, whole.view(size(), 3), [], []).wait()
    equal(exchanged, torch.stack([values(of, torch.float32, (size(), 3))[rank] for of in range(size())]))


def test_functional_operations_of_compiled_code(job: Ranks) -> None:
    job.run(_functional)


def _functional() -> None:
    from torch.distributed import _functional_collectives as functional

    rank, group = dist.get_rank(), dist.group.WORLD
    mine = values(rank, torch.float32, (size(), 2))
    equal(torch.ops._c10d_functional.wait_tensor(functional.all_reduce(mine, "sum", group)),
          expected("SUM", torch.float32, (size(), 2)))  # fmt: skip
    gathered = functional.all_gather_tensor(mine, 0, group)
    equal(torch.ops._c10d_functional.wait_tensor(gathered), torch.cat(everyone(torch.float32, (size(), 2))))
    several = torch.ops._c10d_functional.all_gather_into_tensor_coalesced(
        [mine, mine], size(), group.group_name
    )
    for one in several:
        equal(torch.ops._c10d_functional.wait_tensor(one), torch.cat(everyone(torch.float32, (size(), 2))))


def test_many_at_once(job: Ranks) -> None:
    job.run(_many_at_once)


def _many_at_once() -> None:
    rank = dist.get_rank()
    tensors = [values(rank + shift, torch.int64, (257,)) for shift in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    for work, future, tensor in zip(reversed(works), futures, tensors, strict=True):
        work.wait()
        assert future.wait()[0] is tensor
        assert work.get_future().done()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
    for shift, tensor in enumerate(tensors):
        equal(tensor, sum(values(other + shift, torch.int64, (257,)) for other in range(size())))


def test_outputs_are_there_when_a_program_polls(job: Ranks) -> None:
    job.run(_polled)


def _polled() -> None:
    own = values(dist.get_rank(), torch.int64, (257,))
    lists = [torch.empty_like(own) for _ in range(size())]
    flat = torch.empty(size() * len(own), dtype=own.dtype)
    group = dist.group.WORLD
    # The base class in torch also has a method with the older name.
    for work in (dist.all_gather(lists, own, async_op=True), group._allgather_base(flat, own)):
        while not work.is_completed():
            time.sleep(0.001)
    wanted = [values(rank, torch.int64, (257,)) for rank in range(size())]
    for part, want in zip(lists, wanted, strict=True):
        equal(part, want)
    equal(flat, torch.cat(wanted))


def test_outputs_of_inference_mode(job: Ranks) -> None:
    job.run(_inference)


def _inference() -> None:
    with torch.inference_mode():
        own = values(dist.get_rank(), torch.float32, (33,))
        lists = [torch.empty_like(own) for _ in range(size())]
        work = dist.all_gather(lists, own, async_op=True)
    work.get_future().wait()
    for rank, part in enumerate(lists):
        equal(part, values(rank, torch.float32, (33,)))


def test_a_group_with_a_device(job: Ranks) -> None:
    job.run(_with_a_device)


def _with_a_device() -> None:
    try:
        group = dist.new_group(device_id=torch.device("cpu", 0))
    except ValueError as error:
        # torch 2.7 itself refuses a device that is not an accelerator.
        if "device_id parameter must be an accelerator" in str(error):
            return
        raise
    tensor = values(dist.get_rank(), torch.float32, (33,))
    dist.all_reduce(tensor, group=group)
    equal(tensor, sum(values(rank, torch.float32, (33,)) for rank in range(size())))
    dist.destroy_process_group(group)


def test_large_tensors_are_the_same_everywhere(job: Ranks) -> None:
    """Because of rounding, sums depend on the order of ranks. The order must be the same on all
    ranks."""
    answers = job.run(_large)
    assert len(set(answers)) == 1


def _large() -> bytes:
    generator = torch.Generator().manual_seed(dist.get_rank())
    tensor = torch.randn(1_000_003, generator=generator)
    beside = tensor.clone()
    dist.all_reduce(tensor)
    dist.all_reduce(beside, group=gloo())
    torch.testing.assert_close(tensor, beside)
    report = farwrite.torch.last_report()
    assert report is not None
    assert report.operation == "all_reduce"
    assert report.result_bytes == tensor.nbytes
    assert report.missing_bytes == 0
    assert not report.was_cut
    assert (report.bounded_operations, report.cut_share, report.missing_share) == (0, 0, 0)
    assert 0 < report.elapsed_s < report.timeout_s
    return tensor.numpy().tobytes()[:: 1 << 10]


def test_storage_can_be_resized_after_an_operation(two: Ranks) -> None:
    two.run(_resize)


def _resize() -> None:
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    tensor.untyped_storage().resize_(0)
    tensor.untyped_storage().resize_(4000)


def test_barrier(job: Ranks) -> None:
    entered, left = zip(*job.run(_barrier), strict=True)
    assert min(left) >= max(entered)


def _barrier() -> tuple[float, float]:
    import time

    # Rank 0 starts the barrier last. All processes use the clock of this machine.
    if dist.get_rank() == 0:
        time.sleep(0.3)
    entered = time.monotonic()
    dist.barrier()
    return entered, time.monotonic()


def test_send_and_receive(job: Ranks) -> None:
    job.run(_send_and_receive)


def _send_and_receive() -> None:
    rank, after, before = dist.get_rank(), (dist.get_rank() + 1) % size(), (dist.get_rank() - 1) % size()
    for dtype in MOVED:
        received = torch.empty(100, dtype=dtype)
        work = dist.irecv(received, src=before)
        dist.send(values(rank, dtype, (100,)), dst=after)
        work.wait()
        equal(received, values(before, dtype, (100,)))
    # Tags distinguish sends: the receives are in another order than the sends.
    first, second = torch.empty(3), torch.empty(5)
    works = [dist.irecv(second, src=before, tag=2), dist.irecv(first, src=before, tag=1)]
    works += [dist.isend(values(rank, torch.float32, (3,)), dst=after, tag=1),
              dist.isend(values(rank, torch.float32, (5,)), dst=after, tag=2)]  # fmt: skip
    for work in works:
        work.wait()
    equal(first, values(before, torch.float32, (3,)))
    equal(second, values(before, torch.float32, (5,)))
    mine, theirs = values(rank, torch.float32, (7,)), torch.empty(7)
    pair = [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, theirs, before)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    equal(theirs, values(before, torch.float32, (7,)))
    objects: list[Any] = [{"from": rank}] if rank == 0 else [None]
    if rank == 0:
        dist.send_object_list(objects, dst=1)
    elif rank == 1:
        dist.recv_object_list(objects, src=0)
        assert objects == [{"from": 0}]


def test_groups_side_by_side(four: Ranks) -> None:
    four.run(_side_by_side)


def _side_by_side() -> None:
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine, other = values(rank, torch.float32, (50_000,)), (rank + 2) % 4
    works = []
    for step in range(5):
        works.append(dist.all_reduce(mine, group=pairs[rank % 2], async_op=True))
        works[-1].wait()
        whole = values(rank + step, torch.float32, (1000,))
        dist.all_reduce(whole)
        equal(whole, sum(values(one + step, torch.float32, (1000,)) for one in range(4)))
    want = values(rank, torch.float32, (50_000,)) + values(other, torch.float32, (50_000,))
    equal(mine, want * 2**4)
    report = farwrite.torch.last_report(pairs[rank % 2])
    assert report is not None
    assert report.operations == 5
    for pair in pairs:
        dist.destroy_process_group(pair)


def test_sites_reduce_before_values_cross_between_them(four: Ranks) -> None:
    four.run(_sites)


def _sites() -> None:
    options = farwrite.torch.Options(trusted_store=True, sites=[0, 1, 0, 1])
    group = dist.new_group(pg_options=options)
    # The values of ranks 0 and 2 cancel. A sum that has only one of them rounds away those of ranks 1 and 3.
    value = (1e8, 1.0, -1e8, 1.0)[dist.get_rank()]
    # Only tensors of more than 64 KiB are reduced within sites first.
    for values, by_sites in ((100_003, True), (10, False)):
        tensor = torch.full((values,), value)
        dist.all_reduce(tensor, group=group)
        assert bool((tensor == 2.0).all()) == by_sites
    dist.destroy_process_group(group)


def test_tensors_with_strides(job: Ranks) -> None:
    job.run(_strides)


def _strides() -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(24.0).reshape(4, 6)
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:3, 1:4]):
        tensor = whole * (rank + 1)
        strided = view(tensor)
        assert not strided.is_contiguous()
        dist.all_reduce(strided)
        total = ranks * (ranks + 1) / 2
        assert torch.equal(strided, view(whole) * total)
        # The values between those of the view do not change.
        untouched = torch.ones_like(tensor, dtype=torch.bool)
        view(untouched).fill_(False)
        assert torch.equal(tensor[untouched], (whole * (rank + 1))[untouched])
        gathered = [torch.zeros_like(tensor) for _ in range(ranks)]
        dist.all_gather([view(one) for one in gathered], view(whole * (rank + 1)))
        for other, one in enumerate(gathered):
            assert torch.equal(view(one), view(whole * (other + 1)))
        # Ranks may have different layouts of equal values.
        mixed = torch.ones(3, 5) if rank == 0 else torch.ones(5, 3).t()
        dist.broadcast(mixed.mul_(rank + 1), 0)
        assert torch.equal(mixed, torch.ones(3, 5))
