"""Measures inference over a path that loses packets: gloo over TCP BBR, and policies of farwrite.

The ranks are processes of `python/examples/serve.py`. Half of them are in each of two network namespaces that
`farwrite link` joins. A run has one loss, and the backends take turns in it. Options that this program does
not list are passed to `serve.py`. The program needs root.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1] / "tests" / "system")]

from lib.path import REAL_TIME  # noqa: E402
from lib.path import Path as NetworkPath  # noqa: E402

from gloo import examine_here  # noqa: E402
from ratios import ratios  # noqa: E402
from table import Table  # noqa: E402
from training import run_job  # noqa: E402


def summary(result: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of one backend. Their names end in the unit."""
    first = np.array(result["first_s"]) * 1e3
    return {
        "first_mean_ms": first.mean(),
        "first_p50_ms": np.median(first),
        "first_p99_ms": np.quantile(first, 0.99),
        "tokens_s": result["tokens_s"],
        "accuracy_percent": 100 * result["accuracy"],
        "loss": result["loss"],
        "bounded_operations": result["bounded_operations"],
        "cut_percent": 100 * result["cut_share"],
        "missing_percent": 100 * result["missing_share"],
    }


def show(loss: str, backend: str, result: dict[str, Any]) -> None:
    """Print the row of a backend."""
    of = summary(result)
    print(
        f"{loss:>6}  {backend:>11}  {of['first_mean_ms']:>8.0f}  {of['first_p50_ms']:>7.0f}  "
        f"{of['first_p99_ms']:>7.0f}  {mean(result['answer_s']) * 1e3:>9.0f}  {of['tokens_s']:>8.1f}  "
        f"{of['accuracy_percent']:>8.2f}%  {of['loss']:>6.4f}  {of['missing_percent']:>6.2f}%  "
        f"{of['cut_percent']:>5.1f}%",
        flush=True,
    )


def compare(summaries: dict[str, dict[str, float]]) -> None:
    """Print how many times better each backend is than the bases."""
    times = {
        "TTFT": {name: of["first_mean_ms"] for name, of in summaries.items()},
        "p99 of TTFT": {name: of["first_p99_ms"] for name, of in summaries.items()},
        "time of a token": {
            name: 1 / of["tokens_s"] if of["tokens_s"] else math.inf for name, of in summaries.items()
        },
    }
    for what, of in times.items():
        for line in ratios(what, of):
            print(line, flush=True)


def main() -> None:
    """Serve over paths of several losses, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="example: --program target/release/farwrite --ranks 2 --losses 0% 1% --way tensor --seed 2",
    )
    parser.add_argument("--program", required=True, help="the program farwrite")
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks, which must be even")
    parser.add_argument(
        "--losses",
        nargs="+",
        default=["0%", "0.1%", "1%"],
        help="losses of packets on the path, one for each run",
    )
    parser.add_argument("--link", default="--rate 1Gbit --rtt 10ms", help="options of `farwrite link`")
    parser.add_argument(
        "--times", action="store_true", help="with --csv: also write the time of each first byte"
    )
    parser.add_argument("--csv", type=Path, help="a file for the rows of the figure O4")
    arguments, others = parser.parse_known_args()
    if arguments.ranks < 2 or arguments.ranks % 2:
        parser.error(f"--ranks {arguments.ranks}: must be even, because each side has half of the ranks")
    gloo = examine_here()
    print(gloo.describe())
    table = None
    for loss in arguments.losses:
        link = [*arguments.link.split(), "--loss", loss]
        with NetworkPath(arguments.program, *link, prefix=REAL_TIME) as path:
            result = run_job(path, arguments.ranks, "serve.py", others, same=gloo.needed())
        if table is None:
            conditions = f"{result['conditions']}, farwrite link {arguments.link}, {os.cpu_count()} cores"
            print(f"{conditions}. Times in ms: to the first byte of a batch, and of the other bytes.")
            print(
                f"{'loss':>6}  {'':>11}  {'TTFT':>8}  {'p50':>7}  {'p99':>7}  {'the rest':>9}  "
                f"{'tokens/s':>8}  {'accuracy':>9}  {'loss':>6}  {'missing':>7}  {'cut':>6}"
            )
            table = Table("O4", conditions)
        panel = f"{result['way']}, {arguments.ranks} ranks, seed {result['seed']}"
        percent = float(loss.removesuffix("%"))
        for backend, of in result["backends"].items():
            show(loss, backend, of)
            if arguments.csv:
                for measure, value in summary(of).items():
                    table.add(panel, backend, percent, measure, value)
                for number, seconds in enumerate(of["first_s"] if arguments.times else ()):
                    table.add(f"{panel}, loss {loss}", backend, number, "first_ms", 1e3 * seconds)
        compare({backend: summary(of) for backend, of in result["backends"].items()})
    if arguments.csv and table is not None:
        table.write(arguments.csv)


if __name__ == "__main__":
    main()
