"""Tests of network simulations from Python."""

import importlib
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from farwrite import sim
from farwrite.sim import plots

# The attribute `farwrite.sim.sweep` is the function, so the module is imported by its name.
sweep_module = importlib.import_module("farwrite.sim.sweep")

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
    for name in ("packets", "repeated", "timeouts"):
        sums = [flows[name][flows["run"] == number].sum() for number in range(12)]
        assert runs[name].tolist() == sums, name
    assert runs["repeated"].sum() > 0
    assert set(flows["end"]) == {"done"}
    assert np.allclose(flows["slowdown"], flows["fct_ns"] / flows["ideal_ns"])
    assert (flows["bytes"] == 200_000).all()


def test_runs_have_the_times_of_their_flows() -> None:
    import pandas as pd

    results = sim.sweep(PLAN | {"transport": ["roce"]})
    frame = pd.DataFrame(results.runs)
    assert list(frame.columns) == list(results.runs.columns)
    assert frame["fct_p99_us"].tolist() == results.runs["fct_p99_us"].tolist()
    for run, of_run in zip(results.runs, frame.itertuples(), strict=True):
        times = results.flows["fct_ns"][results.flows["run"] == run["run"]]
        assert run["fct_mean_us"] == pytest.approx(times.mean() / 1e3) == of_run.fct_mean_us
        assert run["fct_max_us"] == run["fct_p99_us"] == times.max() / 1e3
        assert run["slowdown_p50"] <= run["slowdown_p99"] == run["slowdown_max"] >= run["slowdown_mean"]
    none = sim.run(PLAN | {"until": "50us", "loss": None})
    assert np.isnan(none.runs["fct_mean_us"]).all()


def check_elsewhere(tmp_path: Path, executor: Executor) -> None:
    """An executor returns the results that this process returns, also if the plan names files beside it."""
    (tmp_path / "two.cm").write_text(MATRIX)
    plan = tmp_path / "plan.toml"
    plan.write_text(sim.to_toml(PLAN | {"workload": {"two": {"file": "two.cm"}}}))
    here = sim.sweep(plan)
    # Workers in other processes get the files too.
    there = sim.sweep(plan, executor)
    for name in ("runs", "flows"):
        ours, theirs = getattr(here, name), getattr(there, name)
        assert list(ours.columns) == list(theirs.columns)
        for column in ours.columns:
            np.testing.assert_array_equal(ours[column], theirs[column], column)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_executors_give_the_same(kind: str, tmp_path: Path) -> None:
    pool: Executor = (
        ThreadPoolExecutor(2)
        if kind == "threads"
        else ProcessPoolExecutor(2, mp_context=get_context("forkserver"))
    )
    with pool:
        check_elsewhere(tmp_path, pool)


@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_gives_the_same(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with LocalCluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        check_elsewhere(tmp_path, client.get_executor())


def test_one_run_by_its_number_and_as_text() -> None:
    one = sim.run(sim.to_toml(PLAN), 5)
    all_of_them = sim.sweep(PLAN)
    assert one.runs["run"].tolist() == [5]
    assert one.runs["trace"].tolist() == all_of_them.runs["trace"][5:6].tolist()
    with pytest.raises(IndexError, match="^run 12: the plan has runs 0 to 11"):
        sim.run(PLAN, 12)
    with pytest.raises(TypeError, match="^number = True"):
        sim.run(PLAN, True)
    with pytest.raises(
        ValueError, match=r"'plan.toml' is one line without a key: .* pass it as a pathlib.Path$"
    ):
        sim.run("plan.toml")


def test_dicts_become_valid_toml() -> None:
    import tomllib

    plan = {"a": "x\ny\x00\x7f", "b": [float("inf"), -float("inf"), np.float64(1e300)], "c\x7f": {"d": True}}
    assert tomllib.loads(sim.to_toml(plan)) == plan
    assert np.isnan(tomllib.loads(sim.to_toml({"a": float("nan")}))["a"])
    with pytest.raises(TypeError, match="^the plan must be a dict, not None"):
        sim.to_toml(None)  # type: ignore[arg-type]


# A run takes minutes.
LONG: dict[str, Any] = {
    "topology": {"rack": {"shape": "star", "hosts": 16, "cable": {"rate": "100Gbit", "delay": "1us"}}},
    "workload": {"web": {"pattern": "poisson", "load": 0.5, "sizes": "websearch", "flows": 200_000}},
    "seeds": 3,
}


@pytest.mark.parametrize("of", [sim.run, lambda plan: sim.sweep(plan, progress=False)])
def test_ctrl_c_ends_a_simulation(of: Any) -> None:
    # A shell lets what it runs in the background ignore SIGINT, and then Python has no handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(3, signal.pthread_kill, (main, signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        of(LONG)
    assert time.monotonic() - began < 30


def test_a_run_tells_the_goodput_of_flows_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "endless.cm").write_text("Nodes 4\nConnections 2\n0->1 start 0\n2->1 start 0 size 20000\n")
    plan = tmp_path / "plan.toml"
    workload = {"two": {"file": "endless.cm"}}
    plan.write_text(
        sim.to_toml(PLAN | {"transport": ["roce"], "loss": None, "until": "1ms", "workload": workload})
    )
    results = sim.run(plan)
    endless, done = results.flows["endless_bps"].tolist()
    assert np.isnan(done)
    assert 5e9 < endless < 10e9
    assert results.runs["endless_bps"].tolist() == [endless]
    assert results.runs["queue_mean_bytes"].tolist() == [results.queues["deepest_bytes"].mean()]


def test_a_flow_that_is_not_done_has_no_time(tmp_path: Path) -> None:
    results = sim.run(PLAN | {"until": "50us", "loss": None})
    assert set(results.flows["end"]) == {"unfinished"}
    assert np.isnan(results.flows["fct_ns"]).all()
    assert np.isnan(results.flows["slowdown"]).all()
    assert np.isnan(results.runs["loss"]).all()
    results.flows.write_parquet(tmp_path / "flows.parquet")
    results.runs.write_csv(tmp_path / "runs.csv")


def test_a_plan_that_does_not_fit_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "available_bytes", lambda: 20_000)
    refusal = r" needs \d+ MiB of memory, and this machine has 0 MiB free: use fewer"
    with pytest.raises(MemoryError, match="^a run" + refusal):
        sim.run(PLAN)
    with pytest.raises(MemoryError, match=r"^a sweep with \d+ threads" + refusal):
        sim.sweep(PLAN)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(MemoryError, match="^a sweep" + refusal):
            sim.sweep(PLAN | {"seeds": 3}, pool)
        with pytest.raises(MemoryError, match="^a run" + refusal):
            pool.submit(sweep_module.evaluate, sim.to_toml(PLAN | {"seeds": 4}), (), 0).result()
    monkeypatch.setattr(sweep_module, "available_bytes", lambda: None)
    assert sim.run(PLAN).runs["done"].tolist() == [3]


def test_the_results_of_many_runs_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "available_bytes", lambda: 1 << 30)
    with pytest.raises(MemoryError, match="MiB of memory"):
        sim.sweep(PLAN | {"seeds": 100_000})


def test_a_sweep_runs_on_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two runs at the same time pass the barrier. A single run would wait for another one until the timeout.
    barrier = threading.Barrier(2)
    evaluated = sweep_module._ran

    def ran(*args: Any) -> Any:
        barrier.wait(60)
        return evaluated(*args)

    monkeypatch.setattr(sweep_module.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sweep_module, "_ran", ran)
    assert sim.sweep(PLAN).runs["run"].tolist() == list(range(12))


def test_a_worker_reads_a_plan_once() -> None:
    sweep_module._given.cache_clear()
    with ThreadPoolExecutor(1) as pool:
        sim.sweep(PLAN, pool)
    assert sweep_module._given.cache_info().misses == 1


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
    with pytest.raises(OSError, match="/dev/zero: this is a device"):
        sim.run(Path("/dev/zero"))
    with pytest.raises(ValueError, match="/dev/zero: this is a device"):
        sim.run(PLAN | {"workload": {"two": {"file": "/dev/zero"}}})
    with pytest.raises(OSError, match="/dev/zero: this is a device"):
        sim.compare(PLAN, "/dev/zero")


def test_other_threads_run_during_a_simulation() -> None:
    done = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    def counted_during_a_simulation() -> int:
        before = counted
        sim.run(PLAN | {"workload": {"long": {"pattern": "incast", "senders": 3, "size": "50MB"}}}, 4)
        return counted - before

    thread = threading.Thread(target=count)
    thread.start()
    # If a simulation holds the interpreter's lock, the thread counts only between calls. If it releases the
    # lock, the thread can also count little, if no core is free. So the test uses the best of several
    # simulations.
    runs = any(counted_during_a_simulation() > 5 for _ in range(20))
    done.set()
    thread.join()
    assert runs


def test_plots_have_a_line_for_each_setting(tmp_path: Path) -> None:
    sizes = [2_000, 3_000, 70_000]
    flows = [{"src": src, "dst": 3, "size": f"{size}B"} for src, size in enumerate(sizes)]
    results = sim.sweep(PLAN | {"loss": None, "workload": {"w": {"pattern": "flows", "flows": flows}}})
    names = PLAN["transport"]

    slowdowns = plots.slowdowns(results).axes[0]
    legend = slowdowns.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == names
    mean, tail = slowdowns.get_lines()[:2]
    assert mean.get_xdata() == pytest.approx([2_500, 70_000])
    roce = results.flows["slowdown"][np.isin(results.flows["run"], [0, 1])].reshape(2, 3)
    assert mean.get_ydata() == pytest.approx([roce[:, :2].mean(), roce[:, 2].mean()])
    assert tail.get_ydata() == pytest.approx([roce[:, :2].max(), roce[:, 2].max()])

    times = plots.completion_times(results).axes[0].get_lines()
    assert len(times) == 3
    assert np.asarray(times[0].get_ydata())[-1] == 1

    figure = plots.queues(results)
    deepest = [np.asarray(line.get_ydata()).max() for line in figure.axes[0].get_lines()]
    peaks = results.runs["queue_peak_bytes"][[0, 2, 4]] / 1e3
    assert all(0 < seen <= peak for seen, peak in zip(deepest, peaks, strict=True))
    figure.savefig(tmp_path / "queues.svg")


def test_a_plot_of_flows_that_are_not_done_has_no_line() -> None:
    results = sim.run(PLAN | {"until": "50us", "loss": None})
    assert not plots.slowdowns(results).axes[0].get_lines()
    assert not plots.completion_times(results).axes[0].get_lines()
    assert len(plots.queues(results).axes[0].get_lines()) == 1


def test_a_time_line_has_the_flows_of_one_run(tmp_path: Path) -> None:
    results = sim.sweep(PLAN | {"loss": None})
    figure = plots.timeline(results, 3)
    above, below = figure.axes
    flows = results.flows["run"] == 3
    bars = sorted((bar.get_x(), bar.get_width()) for bar in above.patches if isinstance(bar, Rectangle))
    starts, times = (results.flows[name][flows] / 1e3 for name in ("start_ns", "fct_ns"))
    assert np.allclose(bars, sorted(zip(starts, times, strict=True)))
    assert [text.get_text() for text in above.get_yticklabels()] == ["0 to 3", "1 to 3", "2 to 3"]
    deepest = results.queues["deepest_bytes"][results.queues["run"] == 3] / 1e3
    assert np.asarray(below.get_lines()[0].get_ydata()).tolist() == deepest.tolist()
    figure.savefig(tmp_path / "timeline.svg")
    with pytest.raises(ValueError, match="^run = 6: the results have runs 0 to 5"):
        plots.timeline(results, 6)


def test_a_time_line_of_many_flows_has_some_of_them_and_those_that_are_not_done() -> None:
    listed = [{"src": 0, "dst": 1, "size": "1MB", "start": f"{at}us"} for at in range(200)]
    plan = PLAN | {"until": "400us", "loss": None, "workload": {"w": {"pattern": "flows", "flows": listed}}}
    above = plots.timeline(sim.run(plan)).axes[0]
    bars = [bar for bar in above.patches if isinstance(bar, Rectangle)]
    assert len(bars) == plots.TIMELINE_FLOWS
    opened = [bar for bar in bars if not bar.get_fill()]
    assert opened
    ends = [bar.get_x() + bar.get_width() for bar in opened]
    assert all(350 < end <= 400 for end in ends), ends


def test_sizes_have_the_means_of_seeds_and_their_intervals() -> None:
    sizes = [2_000, 3_000, 70_000]
    listed = [{"src": src, "dst": 3, "size": f"{size}B"} for src, size in enumerate(sizes)]
    plan = PLAN | {"seeds": 3, "loss": [0.2], "transport": ["irn"], "until": None}
    results = sim.sweep(plan | {"workload": {"w": {"pattern": "flows", "flows": listed}}})
    table, flows = results.sizes, results.flows
    assert table["up_to_bytes"].tolist() == [1e4, 1e5, np.inf]
    assert table["flows"].tolist() == [6, 3, 9]
    assert set(table["seeds"]) == {3}
    means = [flows["fct_ns"][flows["run"] == run].mean() / 1e3 for run in range(3)]
    assert np.std(means) > 0
    assert table["fct_mean_us"][2] == pytest.approx(np.mean(means))
    # This is Student's t for two degrees of freedom.
    half_width = 4.303 * np.std(means, ddof=1) / 3**0.5
    assert table["fct_mean_us_ci95"][2] == pytest.approx(half_width)
    tails = [flows["slowdown"][flows["run"] == run].max() for run in range(3)]
    assert table["slowdown_p99"][2] == pytest.approx(np.mean(tails))
    one = sim.run(PLAN).sizes
    assert np.isnan(one["fct_mean_us_ci95"]).all()
    assert len(sim.run(PLAN | {"until": "1us", "loss": None}).sizes) == 0


def test_flows_say_what_ended_them() -> None:
    flow = {"src": 0, "dst": 1, "size": "40kB", "start": "0us"}
    plan = PLAN | {
        "seeds": 1,
        "loss": None,
        "transport": {
            "roce": {"protocol": "roce"},
            "last": {"protocol": "xp", "deadline": "1ms"},
            "bytes": {
                "protocol": "xp",
                "deadline": "1ms",
                "queue_pair": "hosts",
                "complete_by": "bytes",
            },
        },
        "workload": {"two": {"pattern": "flows", "flows": [flow, flow]}},
    }
    results = sim.sweep(plan)
    flows = results.flows
    ends = {name: flows["run"] == run for run, name in enumerate(results.runs["transport"])}
    assert set(flows["ended_by"][ends["roce"]]) == {""}
    assert set(flows["ended_by"][ends["last"]]) == {"last-packet"}
    assert set(flows["ended_by"][ends["bytes"]]) == {"bytes"}
    # The second flow waits for the first one on their queue pair.
    first, second = flows["fct_ns"][ends["bytes"]]
    assert second > 1.5 * first


def test_times_of_another_simulator(tmp_path: Path) -> None:
    (tmp_path / "two.cm").write_text(MATRIX)
    plan = tmp_path / "plan.toml"
    plan.write_text(sim.to_toml(PLAN | {"workload": {"two": {"file": "two.cm"}}}))
    log = tmp_path / "htsim.log"
    log.write_text(
        "Flow Roce_0_1 17 finished at 20 total bytes 20000\n"
        "Flow Roce_3_1 18 finished at 40 total bytes 20000\n"
    )
    table = sim.compare(plan, log)
    assert table["found"].tolist() == ["both", "only_ours", "only_theirs"]
    fct_ns = sim.run(plan).flows["fct_ns"]
    assert table["fct_ns"][:2].tolist() == fct_ns.tolist()
    assert table["their_fct_ns"][0] == 20_000
    assert table["ratio"][0] == fct_ns[0] / 20_000
    assert np.isnan(table["ratio"][1:]).all()
    assert table.settings["run"] == 0
    log.write_text("Flow Roce_3_1 18 finished at 40 total bytes 20000\n")
    with pytest.raises(ValueError, match=r"htsim.log: none of its flows is in the workload"):
        sim.compare(plan, log)
    log.write_text("nothing\n")
    with pytest.raises(ValueError, match=r"htsim.log"):
        sim.compare(plan, log)
