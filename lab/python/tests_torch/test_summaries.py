"""The summaries of runs that the benchmarks of training print."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest

from paper_figures.rows import load

KEYS = ["alone_ms", "step_mean_ms", "step_p99_ms", "missing_share", "cut_share", "drift"]


def _ended(*tests: tuple[float, int, float]) -> dict[str, Any]:
    return dict.fromkeys(KEYS, 1.0) | {"tests": list(tests)}


def test_a_time_that_no_run_has_is_named() -> None:
    from cells import Runs, first_at_most

    tests = [(1.0, 5, 0.9), (2.0, 10, 0.5), (3.0, 15, 0.4)]
    assert first_at_most(0.5, tests) == (2.0, 10)
    assert first_at_most(0.1, tests) == (inf, inf)
    assert first_at_most(0.1, []) == (inf, inf)
    assert Runs([_ended(*tests), _ended((1.0, 5, 0.2))]).summarize(0.5)["final_loss"] == pytest.approx(0.3)

    def typical(*to_half: float | None, failed: int = 0) -> float:
        """Return the median time to a loss of 0.5 of runs that reach this loss after these times."""
        ended = [_ended((9.0, 5, 0.6) if of is None else (of, 5, 0.5)) for of in to_half]
        return Runs(ended, ["seed 9: it failed"] * failed).summarize(0.5)["s_to_loss"]

    assert typical(3.0) == 3.0
    assert typical(None) == inf
    assert typical(1.0, None, 3.0) == 3.0
    assert typical(None, None, 3.0) == inf
    # The median of a run with a time and a run without one is no time.
    assert typical(1.0, None) == inf
    # A run that failed also counts as longer than every other run.
    assert typical(1.0, 3.0, failed=1) == 3.0
    assert typical(1.0, failed=1) == inf
    assert typical(failed=1) == inf


def _arguments(tmp_path: Path, *options: str) -> argparse.Namespace:
    from training import parse

    log, rows = str(tmp_path / "log"), str(tmp_path / "rows.csv")
    return parse(["--program", "farwrite", "--log", log, "--csv", rows, *options])


def test_a_training_that_fails_is_named_and_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import training

    def once(arguments: Any, gloo: Any, cell: Any, name: str, seed: int) -> dict[str, Any]:
        if (cell.way, name, seed) == ("ddp", "exact", 1):
            raise training.Failed("rank 1 of 2 ended with 1: out of memory")
        if (cell.way, name) == ("fsdp2", "exact"):
            raise subprocess.TimeoutExpired("train.py", 60)
        return _ended((1.0 * seed, 5, 0.9), (2.0 * seed, 10, 0.5))

    monkeypatch.setattr(training, "train_once", once)
    options = "--ways ddp fsdp2 --seeds 2 --backends gloo exact --target-loss 0.5"
    training.run(_arguments(tmp_path, *options.split()), None)
    said = capsys.readouterr().out
    assert said.count("failed: seed 1: rank 1 of 2 ended with 1: out of memory") == 1
    assert said.count("failed: seed 2: did not end within 60 s") == 1
    assert "1 of 2\n" in said
    assert "0 of 2 trainings ended" in said
    # The median of exact trainings is not known, because one of two has failed.
    ratios = [line.split() for line in said.splitlines() if line.split()[:1] in (["gloo"], ["exact"])]
    assert ["gloo", "1.00"] in ratios
    assert ["exact", "unknown"] in ratios
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(lines) == 8
    assert [line["way"] for line in lines if "failed" in line] == ["ddp", "fsdp2", "fsdp2"]
    # The rows of two cells have different names.
    rows = load(tmp_path, "O3")
    panels = list(dict.fromkeys(row.panel for row in rows.rows))
    assert len(panels) == 2
    assert [rows.value(panel, "gloo", "s_to_loss", 0) for panel in panels] == [3.0, 3.0]
    assert rows.value(panels[1], "exact", "failed", 0) == 2.0


def test_cells_that_differ_have_different_rows(tmp_path: Path) -> None:
    from training import cells

    options = ("--tasks", "text", "digits", "--ranks", "2", "4", "--background", "0", "1")
    links = ("--links", "--rate 1Gbit --loss 1%", "--rate 1Gbit --loss 5%")
    names = [str(cell) for cell in cells(_arguments(tmp_path, *options, *links))]
    assert len(names) == len(set(names)) == 16
    assert names[0] == "text, ddp, 2 ranks, rate 1Gbit loss 1%, 0 TCP flows"


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
