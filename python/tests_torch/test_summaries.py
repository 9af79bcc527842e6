"""What the benchmarks of training print of their runs."""

from __future__ import annotations

import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from test_bounded import OPTIONS, VALUES, be_late
from torch import nn

PYTHON = Path(__file__).resolve().parents[1]
for folder in ("benches", "examples"):
    sys.path.append(str(PYTHON / folder))


def test_drift_is_exact_where_operations_are_bounded(two: Ranks) -> None:
    assert two.run(_drift) == [(0.0, 2.0**-10, float("inf"))] * 2


def _drift() -> tuple[float, float, float]:
    from train import drift

    rank = dist.get_rank()
    # The default group of the job is exact. This one would leave out a rank that is late.
    group = dist.new_group(pg_options=OPTIONS)
    for _ in range(2):
        dist.all_reduce(torch.ones(VALUES), group=group)
    model = nn.Linear(VALUES, 1)
    found = []
    for difference in (0.0, 2.0**-10, float("nan")):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1.0)
            if rank == 1:
                model.weight[0, 1::7] += difference
        if rank == 1:
            be_late(group)
        found.append(drift([parameter.detach() for parameter in model.parameters()], group))
    dist.destroy_process_group(group)
    return found[0], found[1], found[2]


def test_replicas_that_are_equally_broken_have_not_drifted(two: Ranks) -> None:
    assert two.run(_equally_broken) == [0.0, 0.0]


def _equally_broken() -> float:
    from train import drift

    return drift([torch.full((4,), float("nan"))])


def test_a_time_that_no_run_has_is_named() -> None:
    from training import seconds_to, summarize

    tests = [(1.0, 0.9), (2.0, 0.5), (3.0, 0.4)]
    assert seconds_to(0.5, tests) == 2.0
    assert seconds_to(0.1, tests) is None
    assert seconds_to(0.1, []) is None

    def typical(*to_half: float | None) -> float:
        """The time to the loss of a first run that reaches it, of runs that reach it after these times."""
        keys = ["alone_ms", "step_mean_ms", "step_p99_ms", "missing_share", "cut_share", "drift"]
        numbers = dict.fromkeys(keys, 1.0)
        first = [numbers | {"tests": [(1.0, 0.5)]} for _ in to_half]
        second = [
            numbers | {"tests": [(9.0 if of is None else of, 0.6 if of is None else 0.5)]} for of in to_half
        ]
        return summarize({"first": first, "second": second})["second"]["s_to_loss"]

    assert typical(3.0) == 3.0
    assert typical(None) == inf
    assert typical(1.0, None, 3.0) == 3.0
    assert typical(None, None, 3.0) == inf
    # Between a run that has a time and one that has none there is no time.
    assert typical(1.0, None) == inf


def _rank(program: str, *arguments: str) -> subprocess.Popen[str]:
    imports = "import pathlib, sys, time\npath = pathlib.Path(*sys.argv[1:])\n"
    command = [sys.executable, "-c", imports + program, *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_rank_that_fills_its_pipe_does_not_stop_the_others(tmp_path: Path) -> None:
    from training import outputs

    said = tmp_path / "said"
    waits = "while not path.exists(): time.sleep(0.01)\nprint('done')"
    talks = "sys.stderr.write('x' * 2**20)\npath.touch()\nprint('said')"
    ranks = [_rank(waits, str(said)), _rank(talks, str(said))]
    assert outputs(ranks, 30) == ["done\n", "said\n"]


def test_a_rank_that_fails_ends_the_others() -> None:
    from training import Failed, outputs

    ranks = [_rank("time.sleep(600)"), _rank("raise SystemExit('no such file')")]
    with pytest.raises(Failed, match=r"^rank 1 of 2 ended with 1: no such file$"):
        outputs(ranks, 60)
    assert [process.returncode for process in ranks] == [-9, 1]


def test_a_rank_that_hangs_is_ended() -> None:
    from training import outputs

    with _rank("time.sleep(600)") as rank:
        with pytest.raises(subprocess.TimeoutExpired):
            outputs([rank], 0.1)
        assert rank.wait(60) == -9
