"""Measures training over a path that loses packets: gloo over TCP BBR, and policies of farwrite.

The ranks are processes of `python/examples/train.py`. Half of them are in each of two network namespaces that
`farwrite link` joins. A cell of the table is one setting. In a cell, the backends take turns with each seed.
If a training fails or takes too long, the table says so, and the next training starts. If gloo of the
installed PyTorch computes a reduce-scatter or a mean differently, `same_operations.py` makes both backends
run the same operation. The program needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests" / "system"))

sys.path.append(str(HERE))

from lib.path import REAL_TIME  # noqa: E402
from lib.path import Path as NetworkPath  # noqa: E402

from cells import HEADING, Cell, Runs  # noqa: E402
from gloo import Gloo, examine_here  # noqa: E402
from ratios import ratios  # noqa: E402
from table import Table  # noqa: E402

BACKENDS = {
    "gloo": ["--backend", "gloo"],
    "exact": [],
    "exact-ec": ["--exact", "ec-mds:32,8"],
    # Go-Back-N, as in RoCE, except that a receiver keeps what arrives out of order.
    "gbn": ["--exact", "gbn"],
    "bounded": ["--bounded", "0.02"],
    "bounded-ec": ["--bounded", "0.02", "--exact", "ec-mds:32,8"],
    "hadamard": ["--bounded", "0.02", "--hadamard", "1024"],
    "hadamard-ec": ["--bounded", "0.02", "--hadamard", "1024", "--exact", "ec-mds:32,8"],
    # The all-reduce of OptiNIC: both phases are best effort, with the transform.
    "optinic": ["--bounded", "0.02", "--hadamard", "1024", "--resynchronise", "100"],
}

#: For each task: the loss on the test data up to which times are measured. It is fixed, so that it does not
#: depend on a run. With the task `text`, 50 steps of two ranks reach a loss of 2.73.
TARGETS = {"text": 2.6, "digits": 0.3}


class Failed(Exception):
    """A rank has failed. The message contains its exit code and its output on standard error."""


def run_job(
    path: NetworkPath,
    ranks: int,
    script: str,
    options: Sequence[str],
    seconds: float = 900,
    same: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a script of the examples over a path, with half of the ranks at each end.

    Return the result of rank 0. `same` names what `same_operations.py` changes.
    """
    sides = (path.a, path.b)
    for side in sides:
        # This command fails if the kernel has no BBR.
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
        command += [str(HERE.parents[1] / "python" / "examples" / script), "--json", *options]
        process = side.popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(path.own(process))
    result: dict[str, Any] = json.loads(outputs(started, seconds)[0].splitlines()[-1])
    return result


def train(
    path: NetworkPath, ranks: int, *options: str, seconds: float = 900, same: Sequence[str] = ()
) -> dict[str, Any]:
    """Run one training over a path. Return the result of rank 0."""
    return run_job(path, ranks, "train.py", options, seconds, same)


def add_background(path: NetworkPath, flows: int) -> None:
    """Start TCP BBR flows from the first side of a path to the second side. They run until the path ends."""
    for port in range(7000, 7000 + flows):
        path.start(path.b, "tcp-sink", "--port", port)
        path.start(path.a, "tcp-source", "--to", path.b.v4, "--port", port, "--cc", "bbr", "--seconds", 1e6)


def outputs(ranks: Sequence[subprocess.Popen[str]], seconds: float) -> list[str]:
    """Wait for the processes of all ranks. Return the output of each process.

    The outputs of all processes are read at the same time: a process whose pipe is full stops, and then the
    processes that wait for it stop too. If a process fails, the other processes are ended.
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


def add_cells(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe cells. There is a cell for each combination of their values."""
    parser.add_argument(
        "--tasks", nargs="+", choices=tuple(TARGETS), default=["text"], help="what is trained"
    )
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=("ddp", "fsdp2", "zero3"),
        default=["ddp"],
        help="how the weights are distributed over ranks",
    )
    parser.add_argument("--ranks", nargs="+", type=int, default=[2], help="numbers of ranks")
    parser.add_argument(
        "--links", nargs="+", default=["--rate 1Gbit --rtt 10ms --loss 1%"], help="options of `farwrite link`"
    )
    parser.add_argument(
        "--background",
        nargs="+",
        type=int,
        default=[0],
        metavar="FLOWS",
        help="numbers of TCP BBR flows over the path",
    )


def cells(arguments: argparse.Namespace) -> list[Cell]:
    """Return a cell for each combination of the values of the options."""
    lists = (arguments.tasks, arguments.ways, arguments.ranks, arguments.links, arguments.background)
    return [Cell(*values) for values in product(*lists)]


def parse(options: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of the program."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="example: --program target/release/farwrite --ways ddp fsdp2 --ranks 2 4 --links "
        "'--rate 1Gbit --rtt 40ms --loss 1%' '--rate 1Gbit --rtt 40ms --loss 5%'",
    )
    parser.add_argument("--program", required=True, help="the program farwrite")
    add_cells(parser)
    parser.add_argument("--steps", type=int, default=200, help="steps of each training")
    parser.add_argument("--test-every", type=int, default=20, help="steps between two tests")
    parser.add_argument(
        "--target-loss",
        type=float,
        help=f"the loss on the test data to reach; the default depends on the task: {TARGETS}",
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds of each cell")
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=BACKENDS,
        default=["gloo", "exact", "bounded"],
        help="gloo, or policies of farwrite",
    )
    parser.add_argument(
        "--limit", type=float, default=900, help="the longest time of one training, in seconds"
    )
    parser.add_argument("--log", type=Path, help="a file to which each training adds a line of JSON")
    parser.add_argument("--trace", type=Path, help="a folder for traces of the ranks of farwrite")
    parser.add_argument("--csv", type=Path, help="a file for the rows of all cells, written after each cell")
    parser.add_argument("--figure", default="O3", help="with --csv: the name of the figure in the rows")
    arguments = parser.parse_args(options)
    if arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds}: must be at least 1")
    if least := [flows for flows in arguments.background if flows < 0]:
        parser.error(f"--background {least[0]}: must be 0 or a number of flows")
    return arguments


def run(arguments: argparse.Namespace, gloo: Gloo) -> None:
    """Train with all backends in all cells, and print a table."""
    conditions = f"{arguments.steps} steps, {arguments.seeds} seeds, {os.cpu_count()} cores"
    print(f"{conditions}. Times and steps to the loss are medians; the range of times is over the seeds.")
    print("All other numbers are means over the trainings that ended.")
    print(HEADING, flush=True)
    table = Table(arguments.figure, conditions)
    for cell in cells(arguments):
        target = arguments.target_loss or TARGETS[cell.task]
        print(f"{cell}, loss {target}", flush=True)
        all_runs = run_cell(arguments, gloo, cell)
        for name, runs in all_runs.items():
            print(*runs.lines(name, target), sep="\n", flush=True)
            if arguments.csv:
                runs.add_to(table, str(cell), name, target)
        times = {name: runs.summarize(target)["s_to_loss"] for name, runs in all_runs.items()}
        for line in ratios("s to loss", times):
            print(line, flush=True)
        if arguments.csv:
            table.write(arguments.csv)


def run_cell(arguments: argparse.Namespace, gloo: Gloo, cell: Cell) -> dict[str, Runs]:
    """Run all trainings of a cell. If a training fails, the next trainings still run."""
    all_runs = {name: Runs() for name in arguments.backends}
    for seed in range(1, arguments.seeds + 1):
        for name, runs in all_runs.items():
            line = {**asdict(cell), "name": name, "seed": seed}
            try:
                result = train_once(arguments, gloo, cell, name, seed)
            except (Failed, subprocess.TimeoutExpired) as error:
                reason = (
                    str(error) if isinstance(error, Failed) else f"did not end within {error.timeout:g} s"
                )
                runs.failed.append(f"seed {seed}: {reason}")
                line["failed"] = reason
            else:
                runs.ended.append(result)
                line |= result
            if arguments.log:
                with arguments.log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(line) + "\n")
    return all_runs


def train_once(arguments: argparse.Namespace, gloo: Gloo, cell: Cell, name: str, seed: int) -> dict[str, Any]:
    """Run the training of one backend and one seed over a separate path."""
    options = ["--task", cell.task, "--way", cell.way, "--test-every", str(arguments.test_every)]
    options += ["--steps", str(arguments.steps), "--seed", str(seed), *BACKENDS[name]]
    if arguments.trace and name != "gloo":
        folder = arguments.trace / f"{name}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        options += ["--trace", str(folder)]
    with NetworkPath(arguments.program, *cell.link.split(), prefix=REAL_TIME) as path:
        add_background(path, cell.background)
        return train(path, cell.ranks, *options, seconds=arguments.limit, same=gloo.needed())


def main() -> None:
    """Examine gloo, train, and print a table."""
    arguments = parse()
    gloo = examine_here()
    print(gloo.describe())
    run(arguments, gloo)


if __name__ == "__main__":
    main()
