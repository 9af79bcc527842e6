"""Invalid input causes an exception that names the rank, the argument and its value."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import OPTIONS, Ranks, message
from torch._C._distributed_c10d import ErrorType
from torch.distributed import ReduceOp

import farwrite.torch
from farwrite.torch import (
    Adaptive,
    Bounded,
    Eqds,
    Exact,
    Fixed,
    MissingLogError,
    Options,
    RendezvousError,
    Swift,
)


def every_rank(check: Callable[[], None]) -> Callable[[Ranks], None]:
    """Make a test that runs a function on each of two ranks."""

    def test(two: Ranks) -> None:
        two.run(check)

    return test


def _tensors() -> None:
    rank = dist.get_rank()
    flat = torch.zeros(6)
    refused: list[tuple[type[Exception], Callable[[], Any], str]] = [
        (ValueError, lambda: dist.all_reduce(flat[:1].expand(3, 2)),
         "all_reduce: tensor has one value at several indices: shape (3, 2), strides (0, 0)"),
        (TypeError, lambda: dist.all_reduce(flat.to(torch.int16)),
         "all_reduce: tensor is of torch.int16, which cannot be reduced: only float64, float32"),
        (TypeError, lambda: dist.broadcast(flat.to_sparse(), 0),
         "broadcast: tensor has layout torch.sparse_coo: it must be dense"),
        (ValueError, lambda: dist.broadcast(torch._neg_view(flat), 0),
         "broadcast: tensor is a view that conjugates or negates"),
        (TypeError, lambda: dist.broadcast(flat.to("meta"), 0), "broadcast: tensor is on meta"),
        (TypeError, lambda: dist.all_reduce(torch.quantize_per_tensor(flat, 0.1, 0, torch.qint8)),
         "all_reduce: tensor is quantized: must be a plain dense tensor"),
        (TypeError, lambda: dist.all_reduce(torch.nested.nested_tensor([flat], layout=torch.jagged)),
         "all_reduce: tensor is nested: must be a plain dense tensor"),
        (ValueError, lambda: dist.all_reduce(flat, ReduceOp.BXOR),
         "all_reduce: op = ReduceOp.BXOR: tensor is of torch.float32: must be of integers"),
        (ValueError, lambda: dist.all_reduce(flat, dist._make_nccl_premul_sum(2.0)),
         "all_reduce: op = ReduceOp.PREMUL_SUM: must be one of ReduceOp.SUM, ReduceOp.AVG, "),
        (ValueError, lambda: dist.all_reduce(flat.bool(), ReduceOp.AVG), "which has no mean"),
        (ValueError, lambda: dist.all_gather([flat], flat),
         "all_gather: tensor_list has 1 tensors: must have one for each of the 2 ranks"),
        (ValueError, lambda: dist.all_gather([flat, flat[:3]], flat),
         "all_gather: tensor_list[1] has 3 values, and other tensors of the call have 6"),
        (ValueError, lambda: dist.all_gather_into_tensor(torch.zeros(7), flat),
         "all_gather_into_tensor: output has 7 values, and input has 6: with 2 ranks it must have 12"),
        (ValueError, lambda: dist.reduce_scatter_tensor(torch.zeros(2), flat),
         "reduce_scatter_tensor: input has 6 values, and output has 2: with 2 ranks it must have 4"),
        (ValueError, lambda: dist.all_to_all([torch.zeros(1)] * 2, []),
         "all_to_all: input_tensor_list has 0 tensors: must have one for each of the 2 ranks"),
        (ValueError, lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3)),
         "all_to_all_single: input has 3 rows: must have a multiple of 2, the number of ranks"),
        (ValueError, lambda: dist.all_to_all_single(flat, flat.clone(), [3, 3], [1, 1]),
         "all_to_all_single: input_split_sizes = [1, 1]: must be 2 numbers with the sum 6"),
        (ValueError, lambda: dist.all_to_all_single(torch.zeros(2), torch.zeros(4)),
         f"all_to_all_single: output has 4 bytes for what rank {rank} sends to itself, which is 8 bytes"),
        (ValueError, lambda: dist.all_to_all([flat[:1]] * 2, [flat[:2]] * 2),
         f"all_to_all: output_tensor_list has 4 bytes for what rank {rank} sends to itself"),
        (ValueError, lambda: dist.isend(flat, 1 - rank, tag=-1), "send: tag = -1: must be from 0 to"),
    ]  # fmt: skip
    for kind, call, problem in refused:
        said = message(kind, call)
        assert said.startswith(f"rank {rank}: ")
        assert problem in said
    # Nothing was sent, so the ranks can still communicate.
    dist.all_reduce(flat)


test_tensors = every_rank(_tensors)


def _sizes_that_differ() -> None:
    rank = dist.get_rank()
    group = dist.new_group()
    said = message(
        farwrite.torch.CollectiveError, lambda: dist.all_reduce(torch.zeros(4 + rank), group=group)
    )
    assert f"rank {1 - rank}" in said
    assert "16" in said
    assert "20" in said
    dist.destroy_process_group(group)


test_sizes_that_differ = every_rank(_sizes_that_differ)


def _operations_that_differ() -> None:
    rank = dist.get_rank()
    group = dist.new_group()
    tensor = torch.zeros(4)
    calls = [lambda: dist.all_reduce(tensor, group=group), lambda: dist.broadcast(tensor, 0, group=group)]
    said = message(farwrite.torch.CollectiveError, calls[rank])
    assert f"rank {1 - rank}" in said
    dist.destroy_process_group(group)


test_operations_that_differ = every_rank(_operations_that_differ)


def _roots_that_differ() -> None:
    rank = dist.get_rank()
    for call in (dist.broadcast, dist.reduce):
        group = dist.new_group()
        said = message(
            farwrite.torch.CollectiveError,
            partial(call, torch.zeros(4), rank, group=group),
        )
        assert f"rank {1 - rank}" in said
        assert "root = " in said
        dist.destroy_process_group(group)


test_roots_that_differ = every_rank(_roots_that_differ)


def _sizes_that_differ_from_those_of_the_root() -> None:
    rank = dist.get_rank()
    for size in (0, 3):
        mine = torch.zeros(size if rank else 4)
        for call in (
            lambda mine, group: dist.broadcast(mine, 0, group=group),
            lambda mine, group: dist.scatter(mine, None if rank else [mine, mine], 0, group=group),
        ):
            group = dist.new_group()
            said = message(farwrite.torch.CollectiveError, partial(call, mine, group))
            assert f"rank {1 - rank}" in said
            assert "bytes = " in said
            dist.destroy_process_group(group)


test_sizes_that_differ_from_those_of_the_root = every_rank(_sizes_that_differ_from_those_of_the_root)


def _an_operation_that_cannot_start_at_one_rank() -> None:
    group = dist.new_group()
    rank = dist.get_rank()
    sizes = [3, 3] if rank == 0 else [3, 4]
    call = partial(dist.all_to_all_single, torch.zeros(6), torch.zeros(6), [3, 3], sizes, group=group)
    # The timeout is 30 minutes.
    said = message((ValueError, farwrite.torch.CollectiveError)[1 - rank], call)
    assert "rank 1: all_to_all_single: input_split_sizes = [3, 4]: must be 2 numbers" in said
    dist.barrier()
    dist.destroy_process_group(group)


test_an_operation_that_cannot_start_at_one_rank = every_rank(_an_operation_that_cannot_start_at_one_rank)


def _abort() -> None:
    group = dist.new_group()
    work = None
    if dist.get_rank() == 1:
        work = dist.all_reduce(torch.zeros(4), group=group, async_op=True)
    dist.barrier()
    if work is None:
        assert group.get_error() == ErrorType.SUCCESS
        group.abort()
        assert group.get_error() == ErrorType.COMM_ERROR
        error = message(RuntimeError, lambda: dist.all_reduce(torch.zeros(4), group=group))
    else:
        error = message(farwrite.torch.CollectiveError, work.wait)
        assert work.is_completed()
        assert not work.is_success()
        assert isinstance(work.exception(), farwrite.torch.CollectiveError)
        future = work.get_future()
        assert error in message(RuntimeError, future.wait)
        assert group.get_error() == ErrorType.REMOTE_ERROR
    assert error.startswith("rank 0 ended the group: it aborted group '")
    # Other groups still work.
    dist.barrier()
    dist.destroy_process_group(group)


test_abort = every_rank(_abort)


def _abort_after_an_operation() -> None:
    rank = dist.get_rank()
    for _ in range(10):
        group = dist.new_group()
        tensor = torch.full((200_000,), rank + 1.0)
        ended = dist.all_reduce(tensor, group=group, async_op=True)
        if rank == 1:
            # It does not need the result yet.
            later = dist.all_reduce(torch.zeros(4), group=group, async_op=True)
        ended.wait()
        if rank == 0:
            group.abort()
        else:
            assert "rank 0 ended the group: it aborted" in message(farwrite.torch.CollectiveError, later.wait)
        assert torch.equal(tensor, torch.full_like(tensor, 3.0))
        dist.destroy_process_group(group)


test_an_operation_that_ended_before_an_abort = every_rank(_abort_after_an_operation)


def _timeout() -> None:
    group = dist.new_group(timeout=timedelta(seconds=5))
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.zeros(4), group=group, async_op=True)
        message(TimeoutError, lambda: work.wait(timedelta(milliseconds=20)))
        said = message(farwrite.torch.CollectiveError, work.wait)
        assert "rank 1" in said
        assert "all-reduce" in said
    dist.barrier()
    dist.destroy_process_group(group)


test_timeout_names_the_absent_rank = every_rank(_timeout)


def _timeouts() -> None:
    half = timedelta(seconds=0.5)
    tensor = torch.zeros(4)
    calls: dict[str, Callable[[Any], Any]] = {
        "barrier": lambda group: group.barrier(timeout=half).wait(),
        "all_reduce": lambda group: group.allreduce([tensor], timeout=half).wait(),
        "set_timeout": lambda group: dist.all_reduce(tensor, group=group),
        "set_timeout, send": lambda group: dist.send(tensor, 1, group=group),
    }
    for name, call in calls.items():
        # Its timeout is 30 minutes.
        group = dist.new_group()
        if dist.get_rank() == 0:
            if name.startswith("set_timeout"):
                group.set_timeout(half)
            said = message(farwrite.torch.CollectiveError, partial(call, group))
            assert "is not done after 500ms: rank 1 " in said, f"{name}: {said}"
        dist.barrier()
        dist.destroy_process_group(group)


test_timeouts_of_operations_and_groups = every_rank(_timeouts)


def _monitored_barrier() -> None:
    group = dist.new_group()
    if dist.get_rank() in (0, 3):
        wait = partial(group.monitored_barrier, timedelta(seconds=1), wait_all_ranks=True)
        said = message(farwrite.torch.CollectiveError, wait)
        assert said.endswith("is not done after 1s: rank 1 has not started it, rank 2 has not started it"), (
            said
        )
    dist.barrier()
    dist.destroy_process_group(group)


def test_a_monitored_barrier_names_all_ranks_that_did_not_start_it(four: Ranks) -> None:
    four.run(_monitored_barrier)


def _groups() -> None:
    rank = dist.get_rank()
    said = message(TypeError, lambda: dist.new_group(pg_options=object()))
    assert said.startswith(f"rank {rank} of group ")
    assert "pg_options = <object" in said
    sites = Options(trusted_store=True, sites=(0, 0, 1))
    said = message(ValueError, lambda: dist.new_group(pg_options=sites))
    assert said.startswith(f"rank {rank} of group ")
    assert said.endswith("sites = (0, 0, 1): has 3 sites: must have one for each of the 2 ranks")
    for policy, problem in (
        (Exact("sr-nock"), 'scheme of exact operations = "sr-nock": '),
        (Bounded(scheme="worst-effort"), 'scheme of bounded operations = "worst-effort": '),
    ):
        unknown = Options(trusted_store=True, policy=policy)
        said = message(ValueError, partial(dist.new_group, pg_options=unknown))
        assert f"rank {rank}: {problem}" in said
    group = dist.new_group(pg_options=Options(key=bytes(32)))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [2, 2, 2]
    group.shutdown()
    assert "shut down" in message(RuntimeError, lambda: dist.all_reduce(tensor, group=group))
    assert "must be a group of the backend farwrite" in message(TypeError, lambda: farwrite.torch.last_report(
        dist.new_group(backend="gloo")))  # fmt: skip


test_groups = every_rank(_groups)


@pytest.mark.parametrize(("arguments", "problem"), [
    ({"trusted_store": 1}, r"trusted_store = 1: must be True or False"),
    ({"key": "hush"}, r"key is of str: must be bytes, a pathlib.Path or a descriptor"),
    ({"key": b"hush"}, r"key has 4 bytes: must have 32"),
    ({"key": bytearray(b"hush")}, r"key is of bytearray: must be bytes"),
    ({"key": Path("/nowhere")}, r"key = PosixPath\('/nowhere'\): No such file or directory"),
    ({"key": 999}, r"key = 999: Bad file descriptor"),
    ({"buffer_growth_bytes": -1}, r"buffer_growth_bytes = -1: must be a number of bytes"),
    ({"trusted_store": True, "policy": "exact"}, r"policy = 'exact': must be Exact"),
    ({"missing_log": "logs", "trusted_store": True}, r"missing_log = 'logs': needs policy=Bounded"),
    ({"replay_log": 1}, r"replay_log = 1: must be the name of a folder"),
    ({"missing_log": "a", "replay_log": "b", "policy": Bounded()}, r"'a', replay_log = 'b': a replayed run"),
    ({"missing_log": "a", "policy": Bounded(parts="bounded", hadamard_block=64)},
     r"missing_log = 'a': all-reduces with parts='bounded' and a hadamard_block can be replayed only with"),
    ({"trusted_store": True, "rate_control": 1e9}, r"rate_control = 1000000000.0: must be Adaptive"),
    ({"trusted_store": True, "packet_bytes": 1001}, r"packet_bytes = 1001: must be a multiple of 8 from 64"),
    ({"trusted_store": True, "address": "localhost"}, r"address = 'localhost': must be an IPv4 or IPv6"),
    ({"trusted_store": True, "address": 5}, r"address = 5: must be an IPv4 or IPv6 address, as a str"),
    ({"trusted_store": True, "sites": (0, "x")}, r"sites = \(0, 'x'\): must be the number of a site for"),
    ({"trusted_store": True, "sites": [0, -1]}, r"sites = \[0, -1\]: must be"),
])  # fmt: skip
def test_options(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem) as raised:
        Options(**arguments)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(("arguments", "problem"), [
    ({"loss_target": 0.0}, r"loss_target = 0.0: must be a share from 1e-6 to below 1"),
    ({"loss_target": 1.5}, r"loss_target = 1.5: must be a share"),
    ({"loss_target": float("nan")}, r"loss_target = nan: must be a share"),
    ({"timeouts": "never"}, r"timeouts = 'never': must be one of loss-target, optinic, celeris"),
    ({"timeout_range_s": (2, 1)}, r"timeout_range_s = \(2, 1\): must be two times in seconds"),
    ({"timeout_range_s": (0.0, 1.0)}, r"timeout_range_s = \(0.0, 1.0\): must be"),
    ({"operations": ("broadcast",)}, r"operations has 'broadcast': must be of all-reduce"),
    ({"operations": "all-reduce"}, r"operations = 'all-reduce': must be a tuple of names"),
    ({"operations": 5}, r"operations = 5: must be a tuple of names"),
    ({"min_bytes": True}, r"min_bytes = True: must be a number of bytes"),
    ({"hadamard_block": True}, r"hadamard_block = True: must be a power of two"),
    ({"min_bytes": -1}, r"min_bytes = -1: must be a number of bytes"),
    ({"hadamard_block": 1000}, r"hadamard_block = 1000: must be a power of two"),
    ({"hadamard_block": 64, "hadamard_stride": 0}, r"hadamard_stride = 0: must be a power of two"),
    ({"hadamard_stride": 8}, r"hadamard_stride = 8: needs a hadamard_block"),
    ({"algorithm": "tree"}, r"algorithm = 'tree': must be one of auto, direct, ring"),
    ({"parts": "late"}, r"parts = 'late': must be 'exact' or 'bounded'"),
    ({"scheme": 3}, r"scheme = 3: must be the name of a scheme"),
    ({"exact": "sr-nack"}, r"exact = 'sr-nack': must be Exact"),
])  # fmt: skip
def test_bounded(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Bounded(**arguments)


def test_bounded_operations_are_a_set() -> None:
    names = ("all-to-all", "all-reduce")
    for some in (names, list(names), set(names), frozenset(names)):
        arguments: dict[str, Any] = {"operations": some}
        assert repr(Bounded(**arguments)) == repr(Bounded(operations=("all-reduce", "all-to-all")))


def _arguments() -> None:
    report = farwrite.torch.last_report
    lacking = dist.new_group([1 - dist.get_rank()])
    for group in (5, lacking, "world"):
        said = message(TypeError, partial(report, group))
        assert f"group = {group!r}: must be a group of the backend farwrite that has this rank" in said
    assert "between = None: must be a group" in message(
        TypeError, lambda: farwrite.torch.Sites(dist.group.WORLD, None)
    )
    assert "inside = None: must be" in message(TypeError, lambda: farwrite.torch.Sites(None, None))
    for name, step in ((name, step) for name in ("step", "every") for step in ("1", 0, -100, True)):
        steps = {"step": 1, name: step}
        said = message(ValueError, partial(farwrite.torch.resynchronise, torch.nn.Linear(2, 2), **steps))
        assert f"{name} = {step!r}: must be a number of steps from 1 on" in said
    with NamedTemporaryFile() as file:
        said = message(RuntimeError, lambda: farwrite.torch.trace(file.name))
    assert said == f"trace({file.name!r}): call it while the process has no group"


def test_arguments_of_functions(two: Ranks) -> None:
    two.run(_arguments)


def test_without_a_default_group() -> None:
    said = message(TypeError, farwrite.torch.last_report)
    assert said == "there is no default group: call torch.distributed.init_process_group first"


def test_errors_have_the_names_that_programs_import() -> None:
    for error in (farwrite.torch.CollectiveError, RendezvousError, MissingLogError):
        assert error.__module__ == "farwrite.torch"
        assert repr(pickle.loads(pickle.dumps(error("why")))) == f"{error.__name__}('why')"


@pytest.mark.parametrize(("make", "problem"), [
    (lambda: Exact("auto", expected_loss=1.0), r"expected_loss = 1.0: must be a share from 0 to below 1"),
    (lambda: Exact("sr-nack", expected_loss=0.1), r"expected_loss = 0.1: needs scheme='auto', not 'sr-nack'"),
    (lambda: Fixed(0), r"rate_bps = 0: must be an integer from 1 to"),
    (lambda: Adaptive(1e9), r"max_bps = 1000000000.0: must be an integer"),
    (lambda: Swift(10**9, hops=300), r"hops = 300: must be an integer from 1 to 255"),
    (lambda: Eqds(10**9, first_window_bytes=-1), r"first_window_bytes = -1: must be"),
])  # fmt: skip
def test_schemes_and_rates(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


@pytest.mark.parametrize("target", [0.0, 1.0, 1.5])
def test_a_loss_target_names_the_rank_that_the_launcher_has_set(
    monkeypatch: pytest.MonkeyPatch, target: float
) -> None:
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(ValueError, match=f"^rank 3: loss_target = {target}: must be a share"):
        Bounded(target)
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match=f"^loss_target = {target}: must be a share"):
        Bounded(target)


def test_a_key_is_not_shown() -> None:
    assert "key" not in repr(Options(key=bytes(range(32))))


def test_options_of_the_default_group_are_those_of_others(two: Ranks) -> None:
    two.run(_inherited)


def test_a_group_of_some_ranks_has_their_sites() -> None:
    options = Options(trusted_store=True, sites=[0, 0, 1, 1])
    assert options.of_ranks([1, 2, 3]).sites == (0, 1, 1)
    assert OPTIONS.of_ranks([1, 2, 3]) == OPTIONS


def _inherited() -> None:
    group = dist.new_group()
    assert isinstance(group, farwrite.torch.ProcessGroup)
    assert group.options == OPTIONS
    assert group.options.policy == Exact()
    dist.destroy_process_group(group)
