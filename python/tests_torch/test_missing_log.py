"""Runs whose results are computed again from logs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, message
from test_bounded import VALUES
from torch.distributed import HashStore

import farwrite.torch
from farwrite.torch import Bounded, MissingLogError, Options
from farwrite.torch.missing_log import Entry, Head, Reader, Writer
from farwrite.torch.rendezvous import Place

#: The longest timeout of operations, in seconds. The late rank sleeps for a longer time.
LONGEST_S = 0.25
ALL = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")


@pytest.mark.parametrize(("block", "parts", "algorithm"), [
    (None, "exact", "auto"),
    (1024, "exact", "auto"),
    (None, "bounded", "auto"),
    (None, "exact", "ring"),
    (1024, "bounded", "ring"),
])  # fmt: skip
def test_a_replay_has_the_same_bits(tmp_path: Path, block: int | None, parts: str, algorithm: str) -> None:
    policy = Bounded(
        0.02,
        operations=ALL,
        min_bytes=4096,
        hadamard_block=block,
        parts=parts,
        algorithm=algorithm,
        timeout_range_s=(1e-3, LONGEST_S),
    )
    runs = []
    for name in ("missing_log", "replay_log"):
        options = Options(trusted_store=True, policy=policy, **{name: str(tmp_path)})
        # In new processes, groups have the names that they had in the first run.
        job = Ranks(2)
        runs.append(job.run(_operations, options))
        job.close()
    first, again = runs
    for rank, (results, missing_bytes) in enumerate(first):
        assert missing_bytes > 0, "nothing was missing"
        same = [one == other for one, other in zip(results, again[rank][0], strict=True)]
        assert all(same), f"rank {rank}: {same}"
        assert again[rank][1] == 0, "a replay is an exact operation"


def _operations(options: Options) -> tuple[list[bytes], int]:
    group, rank = dist.new_group(pg_options=options), dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    results, missing_bytes = [], 0
    for step in range(3):
        for operation in (_sum, _mean, _scatter, _gather, _exchange):
            # This operation of the group is in no log.
            dist.barrier(group=group)
            values = torch.randn(2 * VALUES + 2, generator=generator)
            if options.missing_log and step == 2 and rank == 1:
                time.sleep(2 * LONGEST_S)
            results.append(operation(values, group).numpy().tobytes())
            report = farwrite.torch.last_report(group)
            assert report is not None
            missing_bytes += report.missing_bytes
    dist.destroy_process_group(group)
    return results, missing_bytes


def _sum(values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    dist.all_reduce(values, group=group)
    return values


def _mean(values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    halves = values.bfloat16()
    dist.all_reduce(halves, dist.ReduceOp.AVG, group=group)
    return halves.view(torch.int16)


def _scatter(values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    mine = torch.empty(VALUES + 1)
    dist.reduce_scatter_tensor(mine, values, group=group)
    return mine


def _gather(values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    everyone = [torch.empty_like(values), torch.empty_like(values)]
    dist.all_gather(everyone, values, group=group)
    return torch.cat(everyone)


def _exchange(values: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    theirs = torch.empty_like(values)
    dist.all_to_all_single(theirs, values, group=group)
    return theirs


PLACE = Place("a/b", HashStore(), 0, 2)
HEAD = Head("a/b", 0, 2, "Bounded()", 1408, (1024, 0), (0, 1), "auto")
SUM = Entry(3, "all-reduce", "float32", "sum", 8, [(0, 4, [1])])


def test_a_log_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    Writer(str(tmp_path), PLACE, HEAD).add(SUM)
    said = message(MissingLogError, lambda: Writer(str(tmp_path), PLACE, HEAD))
    assert said.startswith("rank 0 of group 'a/b': missing_log: ")
    assert "a%2Fb.0.rank0.jsonl" in said
    Reader(str(tmp_path), PLACE, HEAD)


def test_a_log_of_another_run_is_refused_by_value(tmp_path: Path) -> None:
    head = Head("a/b", 0, 2, "Bounded()", 1408, None, (), "auto")
    Writer(str(tmp_path), PLACE, head).add(SUM)
    log = Reader(str(tmp_path), PLACE, Head("a/b", 0, 2, "Bounded()", 8192, None, (), "auto"))
    inputs = [np.array(values, dtype=np.float32).view(np.uint8) for values in ([1, 2], [3, 4])]
    # Rank 0 reduces the first value and rank 1 the second. The first lacks the contribution of rank 1.
    assert log.result(SUM, inputs).view(np.float32).tolist() == [1, 6]
    for wanted, problem in [
        (Entry(4, "all-reduce", "float32", "sum", 8, []), "has no bounded operation 4 (all-reduce)"),
        (
            Entry(3, "all-gather", None, None, 8, []),
            "operation 3 has name all-reduce, this run has all-gather",
        ),
        (Entry(3, "all-reduce", "float32", "mean", 8, []), "has reduction sum, this run has mean"),
        (Entry(3, "all-reduce", "float32", "sum", 16, []), "has result_bytes 8, this run has 16"),
    ]:
        assert problem in message(MissingLogError, lambda wanted=wanted: log.result(wanted, inputs))
    other = Head("a/b", 0, 2, "Bounded(0.5)", 1408, None, (), "auto")
    said = message(MissingLogError, lambda: Reader(str(tmp_path), PLACE, other))
    assert "is of a run with policy Bounded(), this run has Bounded(0.5)" in said


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "no log", "\xff"])
def test_what_is_no_log_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "a%2Fb.0.rank0.jsonl").write_text(text, encoding="latin-1")
    said = message(MissingLogError, lambda: Reader(str(tmp_path), PLACE, HEAD))
    assert "rank 0 of group 'a/b': replay_log: " in said
    assert "rank0.jsonl" in said


def test_a_log_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    said = message(MissingLogError, lambda: Reader(str(tmp_path), PLACE, HEAD))
    assert "a%2Fb.0.rank0.jsonl" in said
