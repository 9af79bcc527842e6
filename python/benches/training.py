"""Trains over a path that loses packets: gloo over TCP BBR, farwrite exact and farwrite bounded.

Ranks are processes of `python/examples/train.py` in two network namespaces that `farwrite link` joins, half
of them in each. The backends take turns with each seed. It needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests" / "system"))

from lib.path import Path as NetworkPath  # noqa: E402

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


def train(path: NetworkPath, ranks: int, *options: str, seconds: float = 900) -> dict[str, Any]:
    """Run one training over a path, and return what rank 0 says."""
    sides = (path.a, path.b)
    for side in sides:
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
        command = [sys.executable, "-P", str(HERE.parent / "examples" / "train.py"), "--json", *options]
        process = side.popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(path.own(process))
    ended = [process.communicate(timeout=seconds) for process in started]
    for rank, (process, (_, problem)) in enumerate(zip(started, ended, strict=True)):
        if process.returncode != 0:
            raise Failed(f"rank {rank} of {ranks} ended with {process.returncode}: {problem.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(ended[0][0].splitlines()[-1])
    return result


def seconds_to(loss: float, tests: list[tuple[float, float]]) -> float:
    """Return after how many seconds of steps the loss was first at most this."""
    return next((seconds for seconds, reached in tests if reached <= loss), float("nan"))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="the program farwrite")
    parser.add_argument("--task", choices=("digits", "text"), default="text")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=["gloo", "exact", "bounded"])
    parser.add_argument("--link", default="--rate 1Gbit --rtt 10ms --loss 1%", help="of `farwrite link`")
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.backends}
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.backends:
            options = ["--task", arguments.task, "--steps", str(arguments.steps), "--seed", str(seed)]
            with NetworkPath(arguments.program, *arguments.link.split()) as path:
                results[name].append(train(path, arguments.ranks, *options, *BACKENDS[name]))
    print(
        f"{arguments.task}, {arguments.ranks} ranks, {arguments.steps} steps, {arguments.seeds} seeds, "
        f"farwrite link {arguments.link}, {os.cpu_count()} cores"
    )
    print("The loss to reach is 1.02 times the final one of the first backend, of the same seed.")
    print(
        f"{'':>12}  {'mean ms':>8}  {'p99 ms':>8}  {'waiting':>7}  {'s to loss':>9}  {'loss':>6}  "
        f"{'missing':>7}  {'cut':>5}  {'drift':>5}"
    )
    first = results[arguments.backends[0]]
    wanted = [1.02 * result["tests"][-1][1] for result in first]
    for name, of_seeds in results.items():
        times = [seconds_to(loss, result["tests"]) for loss, result in zip(wanted, of_seeds, strict=True)]
        waiting = [1 - result["alone_ms"] / result["step_mean_ms"] for result in of_seeds]
        column = {
            key: mean(result[key] for result in of_seeds)
            for key in ("step_mean_ms", "step_p99_ms", "missing_share", "cut_share", "drift")
        }
        loss = mean(result["tests"][-1][1] for result in of_seeds)
        print(
            f"{name:>12}  {column['step_mean_ms']:>8.1f}  {column['step_p99_ms']:>8.1f}  "
            f"{mean(waiting):>7.0%}  {median(times):>9.1f}  {loss:>6.3f}  {column['missing_share']:>7.2%}  "
            f"{column['cut_share']:>5.0%}  {column['drift']:>5.1g}"
        )


if __name__ == "__main__":
    main()
