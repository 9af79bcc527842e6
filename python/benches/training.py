"""Trains over a path that loses packets: gloo over TCP BBR, farwrite exact and farwrite bounded.

Ranks are processes of `python/examples/train.py` in two network namespaces that `farwrite link` joins, half
of them in each. The backends take turns with each seed. Where gloo of the installed PyTorch has another
reduce-scatter or mean, both run the same operation (`same_operations.py`). It needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import inf, isfinite
from pathlib import Path
from statistics import mean, median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests" / "system"))

sys.path.append(str(HERE))

from gloo import Gloo, examine_here  # noqa: E402
from lib.path import Path as NetworkPath  # noqa: E402
from table import Table  # noqa: E402

BACKENDS = {
    "gloo": ["--backend", "gloo"],
    "exact": [],
    "bounded": ["--bounded", "0.02"],
    "bounded-ec": ["--bounded", "0.02", "--exact", "ec-mds:32,8"],
    "hadamard": ["--bounded", "0.02", "--hadamard", "1024"],
    "hadamard-ec": ["--bounded", "0.02", "--hadamard", "1024", "--exact", "ec-mds:32,8"],
}


class Failed(Exception):
    """A rank did not end well; the message has what it said."""


def run_job(
    path: NetworkPath,
    ranks: int,
    script: str,
    options: Sequence[str],
    seconds: float = 900,
    same: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a script of the examples over a path, half of the ranks at each end. Return what rank 0 says.

    `same` names what `same_operations.py` changes.
    """
    sides = (path.a, path.b)
    for side in sides:
        # It fails where the kernel has no BBR.
        side.run("sysctl", "-qw", "net.ipv4.tcp_congestion_control=bbr")
    started = []
    for rank in range(ranks):
        side = sides[rank * 2 // ranks]
        environment = dict(
            os.environ,
            MASTER_ADDR=str(path.a.v4),
            MASTER_PORT="29500",
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            OMP_NUM_THREADS="1",
            GLOO_SOCKET_IFNAME=side.dev,
        )
        command = [sys.executable, "-P"]
        if same:
            command += [str(HERE / "same_operations.py"), *(f"--{name}" for name in same)]
        command += [str(HERE.parent / "examples" / script), "--json", *options]
        process = side.popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(path.own(process))
    result: dict[str, Any] = json.loads(outputs(started, seconds)[0].splitlines()[-1])
    return result


def train(
    path: NetworkPath, ranks: int, *options: str, seconds: float = 900, same: Sequence[str] = ()
) -> dict[str, Any]:
    """Run one training over a path, and return what rank 0 says."""
    return run_job(path, ranks, "train.py", options, seconds, same)


def add_background(path: NetworkPath, flows: int) -> None:
    """Start TCP BBR flows from the first side of a path to the second, until the path ends."""
    for port in range(7000, 7000 + flows):
        path.start(path.b, "tcp-sink", "--port", port)
        path.start(path.a, "tcp-source", "--to", path.b.v4, "--port", port, "--cc", "bbr", "--seconds", 1e6)


def outputs(ranks: Sequence[subprocess.Popen[str]], seconds: float) -> list[str]:
    """Wait for the processes of all ranks, and return what each printed.

    All of them are read at once: a process whose pipe is full stops, and so do those that wait for it. Where
    one fails, the others are ended.
    """
    with ThreadPoolExecutor(len(ranks)) as threads:
        reading = {threads.submit(process.communicate, timeout=seconds): process for process in ranks}
        try:
            for ended in as_completed(reading):
                _, problem = ended.result()
                process = reading[ended]
                if process.returncode != 0:
                    raise Failed(
                        f"rank {ranks.index(process)} of {len(ranks)} ended with {process.returncode}: "
                        f"{problem.strip()[-2000:]}"
                    )
        except (Failed, subprocess.TimeoutExpired):
            for process in ranks:
                process.kill()
            raise
    return [ended.result()[0] for ended in reading]


def seconds_to(loss: float, tests: Sequence[tuple[float, float]]) -> float | None:
    """Return after how many seconds of steps the loss was first at most this; None where it never was."""
    return next((seconds for seconds, reached in tests if reached <= loss), None)


def main() -> None:
    """Train with all backends, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the program farwrite")
    parser.add_argument("--task", choices=("digits", "text"), default="text")
    parser.add_argument("--way", choices=("ddp", "fsdp2", "zero3"), default="ddp")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--test-every", type=int, default=20, help="steps between two tests")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["gloo", "exact", "bounded"])
    parser.add_argument("--link", default="--rate 1Gbit --rtt 10ms --loss 1%", help="of `farwrite link`")
    parser.add_argument(
        "--background", type=int, default=0, metavar="FLOWS", help="TCP BBR flows over the same path"
    )
    parser.add_argument("--limit", type=float, default=900, help="the most seconds of one training")
    parser.add_argument("--log", type=Path, help="a file to which each training adds a line of JSON")
    parser.add_argument("--csv", type=Path, help="a file for the rows of the figure O3")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds}: must be at least 1")
    if arguments.background < 0:
        parser.error(f"--background {arguments.background}: must be 0 or a number of flows")
    gloo = examine_here()
    print(gloo.describe(), flush=True)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.backends}
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.backends:
            result = train_once(arguments, gloo, name, seed)
            results[name].append(result)
            if arguments.log:
                with arguments.log.open("a", encoding="utf-8") as log:
                    line = {"link": arguments.link, "background": arguments.background, "name": name}
                    log.write(json.dumps({**line, "seed": seed, **result}) + "\n")
    conditions = (
        f"{arguments.task}, {arguments.way}, {arguments.ranks} ranks, {arguments.steps} steps, "
        f"{arguments.seeds} seeds, farwrite link {arguments.link}, {arguments.background} TCP BBR flows "
        f"beside, {os.cpu_count()} cores"
    )
    summaries = summarize(results)
    show(conditions, summaries)
    if arguments.csv:
        table = Table("O3", conditions)
        panel = f"{arguments.task}, {arguments.way}"
        for name, of_seeds in results.items():
            for measure, value in summaries[name].items():
                if isfinite(value):
                    table.add(panel, name, 0, measure, value)
            # One line for all seeds: the means of the times and of the losses of each test.
            for tests in zip(*(result["tests"] for result in of_seeds), strict=True):
                seconds, loss = (mean(column) for column in zip(*tests, strict=True))
                table.add(panel, name, seconds, "test_loss", loss)
        table.write(arguments.csv)


def train_once(arguments: argparse.Namespace, gloo: Gloo, name: str, seed: int) -> dict[str, Any]:
    """Run the training of one backend and one seed over a path of its own."""
    options = ["--task", arguments.task, "--way", arguments.way, "--test-every", str(arguments.test_every)]
    options += ["--steps", str(arguments.steps), "--seed", str(seed), *BACKENDS[name]]
    with NetworkPath(arguments.program, *arguments.link.split()) as path:
        add_background(path, arguments.background)
        return train(path, arguments.ranks, *options, seconds=arguments.limit, same=gloo.needed())


def summarize(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Return numbers of each backend, over its seeds. The first backend says which loss is to be reached."""
    first = next(iter(results.values()))
    wanted = [1.02 * result["tests"][-1][1] for result in first]
    summaries = {}
    for name, of_seeds in results.items():
        times = [seconds_to(loss, result["tests"]) for loss, result in zip(wanted, of_seeds, strict=True)]
        summaries[name] = {
            # A run that has no time counts as longer than all others.
            "s_to_loss": median(inf if seconds is None else seconds for seconds in times),
            "waiting_percent": 100 * mean(1 - run["alone_ms"] / run["step_mean_ms"] for run in of_seeds),
            "final_loss": mean(run["tests"][-1][1] for run in of_seeds),
            "missing_percent": 100 * mean(run["missing_share"] for run in of_seeds),
            "cut_percent": 100 * mean(run["cut_share"] for run in of_seeds),
            **{key: mean(run[key] for run in of_seeds) for key in ("step_mean_ms", "step_p99_ms", "drift")},
        }
    return summaries


def show(conditions: str, summaries: dict[str, dict[str, float]]) -> None:
    """Print a table."""
    print(conditions)
    print("The loss to reach is 1.02 times the final one of the first backend, of the same seed. Times to it")
    print("are medians; never: in half of the seeds or more, it was not reached. All else are means.")
    print(
        f"{'':>12}  {'mean ms':>8}  {'p99 ms':>8}  {'waiting':>7}  {'s to loss':>9}  {'loss':>6}  "
        f"{'missing':>7}  {'cut':>5}  {'drift':>5}"
    )
    for name, of in summaries.items():
        seconds = "never" if of["s_to_loss"] == inf else f"{of['s_to_loss']:.1f}"
        print(
            f"{name:>12}  {of['step_mean_ms']:>8.1f}  {of['step_p99_ms']:>8.1f}  "
            f"{of['waiting_percent']:>6.0f}%  {seconds:>9}  {of['final_loss']:>6.3f}  "
            f"{of['missing_percent']:>6.2f}%  {of['cut_percent']:>4.0f}%  {of['drift']:>5.1g}"
        )


if __name__ == "__main__":
    main()
