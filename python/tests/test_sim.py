"""Simulations of networks from Python."""

import threading
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farwrite import sim

PLAN: dict[str, Any] = {
    "seeds": 2,
    "loss": [0, np.float64(1e-3)],
    "transport": ["roce", "farwrite-sr-nack", "farwrite-ec-mds:32,8"],
    "until": None,
    "topology": {
        "rack": {"shape": "star", "hosts": 4, "cable": {"rate": "10Gbit", "delay": "1us"}},
    },
    "workload": {"incast": {"pattern": "incast", "senders": 3, "size": "200kB"}},
}
MATRIX = "Nodes 4\nConnections 2\n0->1 start 0 size 20000\n2->1 start 0 size 20000\n"


def test_every_run_of_a_plan() -> None:
    results = sim.sweep(PLAN)
    runs, flows = results.runs, results.flows
    assert (len(runs), len(flows)) == (12, 36)
    assert runs["run"].tolist() == list(range(12))
    assert runs["transport"].tolist() == [name for name in PLAN["transport"] for _ in range(4)]
    assert runs["loss"].tolist() == [0, 0, 1e-3, 1e-3] * 3
    assert runs["seed"].tolist() == [1, 2] * 6
    assert runs["done"].tolist() == [3] * 12
    assert (runs["dropped_cable"][runs["loss"] == 0] == 0).all()
    assert set(flows["end"]) == {"done"}
    assert np.allclose(flows["slowdown"], flows["fct_ns"] / flows["ideal_ns"])
    assert (flows["bytes"] == 200_000).all()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_executors_give_the_same(kind: str, tmp_path: Path) -> None:
    (tmp_path / "two.cm").write_text(MATRIX)
    plan = tmp_path / "plan.toml"
    plan.write_text(sim.to_toml(PLAN | {"workload": {"two": {"file": "two.cm"}}}))
    here = sim.sweep(plan)
    pool: Executor = (
        ThreadPoolExecutor(2)
        if kind == "threads"
        else ProcessPoolExecutor(2, mp_context=get_context("forkserver"))
    )
    with pool:
        # Workers get the files, wherever they are.
        there = sim.sweep(plan, pool)
    for name in ("runs", "flows"):
        ours, theirs = getattr(here, name), getattr(there, name)
        assert list(ours.columns) == list(theirs.columns)
        for column in ours.columns:
            assert ours[column].tolist() == theirs[column].tolist(), column


def test_one_run_by_its_number_and_as_text() -> None:
    one = sim.run(sim.to_toml(PLAN), 5)
    all_of_them = sim.sweep(PLAN)
    assert one.runs["run"].tolist() == [5]
    assert one.runs["trace"].tolist() == all_of_them.runs["trace"][5:6].tolist()
    with pytest.raises(IndexError, match="^run 12: the plan has runs 0 to 11"):
        sim.run(PLAN, 12)


def test_a_flow_that_is_not_done_has_no_time(tmp_path: Path) -> None:
    results = sim.run(PLAN | {"until": "50us", "loss": None})
    assert set(results.flows["end"]) == {"unfinished"}
    assert np.isnan(results.flows["fct_ns"]).all()
    assert np.isnan(results.flows["slowdown"]).all()
    assert np.isnan(results.runs["loss"]).all()
    results.flows.write_parquet(tmp_path / "flows.parquet")
    results.runs.write_csv(tmp_path / "runs.csv")


def test_notes_and_refusals(tmp_path: Path) -> None:
    noted = sim.run(PLAN | {"switch": {"plain": {}}, "transport": ["irn"]})
    assert noted.notes == ["transport.irn with switch.plain: " + noted.notes[0].partition(": ")[2]]
    with pytest.raises(ValueError, match='protocol = "tcp": choose one of roce'):
        sim.run(PLAN | {"transport": ["tcp"]})
    with pytest.raises(ValueError, match="nowhere.cm"):
        sim.run(PLAN | {"workload": {"two": {"file": "nowhere.cm"}}})
    with pytest.raises(TypeError, match=r"^workload\.w = .*: a plan has text"):
        sim.run(PLAN | {"workload": {"w": object()}})
    with pytest.raises(TypeError, match="^a plan is a dict, TOML text or a path, not int"):
        sim.run(7)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        sim.sweep(tmp_path / "none.toml")


def test_other_threads_run_during_a_simulation() -> None:
    done = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    sim.run(PLAN | {"workload": {"long": {"pattern": "incast", "senders": 3, "size": "50MB"}}}, 4)
    during = counted - before
    done.set()
    thread.join()
    # With the lock held, only between the two calls.
    assert during > 5
