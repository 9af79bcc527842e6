"""Measures collective operations over a path between two sites: gloo over TCP, farwrite exact and bounded.

The backend `between` does what `farwrite.torch.Sites` does. First, ranks reduce parts inside their site,
exactly. Then each rank all-reduces its part with its counterpart in the other site, in a bounded operation.
Then each site gathers the parts. The backends `ring` and `ring-parts` are bounded all-reduces around a ring,
with exact and with bounded parts. These three have all-reduces only. The column `missing` is the share of
bytes of all results that lack a contribution. The loss target limits the share of missing contributions,
which is lower. The column `cut` is the number of operations in which a deadline ended the wait of any rank.

Ranks are processes. Half of them are in each of two network namespaces that `farwrite link` joins. With each
size, the backends take turns. The time of an operation is that of the slowest rank. If gloo of the installed
PyTorch computes a reduce-scatter by an all-reduce, this program makes gloo send each part to its owner, which
reduces it, as farwrite does. The program needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import farwrite.torch
import torch
import torch.distributed as dist
from farwrite.torch import Bounded, Options

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1] / "tests" / "system")]

from lib.path import REAL_TIME  # noqa: E402
from lib.path import Path as NetworkPath  # noqa: E402

from gloo import examine_here  # noqa: E402
from same_operations import FORCED, force  # noqa: E402
from training import outputs  # noqa: E402

OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
BACKENDS = ("gloo", "exact", "sites", "bounded", "ring", "ring-parts", "between")
#: Backends in whose results contributions can be missing.
LOSING = ("bounded", "ring", "ring-parts", "between")
#: Backends that differ from others in all-reduces only.
ALL_REDUCE_ONLY = ("sites", "ring", "ring-parts", "between")
LOSS_TARGET = 0.02


def options(backend: str, size: int) -> Options:
    """Return the options of a group of farwrite."""
    if backend in LOSING:
        policy = Bounded(
            loss_target=LOSS_TARGET,
            operations=OPERATIONS,
            algorithm="ring" if backend.startswith("ring") else "direct",
            parts="bounded" if backend == "ring-parts" else "exact",
        )
        return Options(trusted_store=True, policy=policy)
    sites = [rank * 2 // size for rank in range(size)] if backend == "sites" else None
    return Options(trusted_store=True, sites=sites)


def new_groups(backend: str, rank: int, size: int) -> list[dist.ProcessGroup]:
    """Return the groups of a rank: the group of all ranks, or the group of its site and one between sites."""
    if backend == "gloo":
        return [dist.new_group(backend="gloo")]
    if backend != "between":
        return [dist.new_group(backend="farwrite", pg_options=options(backend, size))]
    half = size // 2
    inside = [list(range(half)), list(range(half, size))]
    between = [[place, half + place] for place in range(half)]
    own = []
    # All ranks make all groups, in the same order.
    for ranks in inside + between:
        how = options(backend, size) if ranks in between else Options(trusted_store=True)
        group = dist.new_group(ranks, backend="farwrite", pg_options=how)
        if rank in ranks:
            own.append(group)
    return own


def operation(name: str, values: int, size: int, groups: Sequence[dist.ProcessGroup]) -> Callable[[], None]:
    """Return a function that runs an operation, whose larger tensor has `values` values."""
    group = groups[-1]
    if len(groups) > 1:
        return all_reduce_between(values, size, groups[0], group)
    whole, beside, part = torch.ones(values), torch.ones(values), torch.ones(values // size)
    calls = {
        "all-reduce": lambda: dist.all_reduce(whole, group=group),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "all-to-all": lambda: dist.all_to_all_single(whole, beside, group=group),
    }

    def call() -> None:
        calls[name]()

    return call


def all_reduce_between(
    values: int, size: int, inside: dist.ProcessGroup, between: dist.ProcessGroup
) -> Callable[[], None]:
    """Return a function that runs an all-reduce inside sites and between them."""
    whole, part = torch.ones(values), torch.ones(values // (size // 2))

    def call() -> None:
        dist.reduce_scatter_tensor(part, whole, group=inside)
        dist.all_reduce(part, group=between)
        dist.all_gather_into_tensor(whole, part, group=inside)

    return call


def largest(value: float) -> float:
    """Return the largest value of all ranks."""
    values = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return float(values)


def summed(values: Sequence[float]) -> list[float]:
    """Return the sum of each value over all ranks."""
    sums = torch.tensor(list(values), dtype=torch.float64)
    dist.all_reduce(sums)
    return sums.tolist()


def slowest(call: Callable[[], None]) -> float:
    """Return the seconds that a call takes at the rank where it takes longest."""
    dist.barrier()
    start = time.perf_counter()
    call()
    return largest(time.perf_counter() - start)


def serve(arguments: argparse.Namespace) -> None:
    """Run all operations on one rank. Rank 0 prints a line of JSON for each operation."""
    torch.set_num_threads(1)
    force(arguments.force)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = {name: new_groups(name, rank, size) for name in arguments.backends}
    for megabytes in arguments.megabytes:
        for name in arguments.operations:
            values = round(megabytes * 1e6 / 4) // size * size
            cell = measure(name, values, groups, arguments)
            if rank == 0:
                print(json.dumps({"operation": name, "megabytes": megabytes, "backends": cell}), flush=True)
    dist.destroy_process_group()


def measure(
    name: str, values: int, groups: dict[str, list[dist.ProcessGroup]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the times of one operation with each backend, the missing share, and how many were cut."""
    wanted = [b for b in groups if b not in ALL_REDUCE_ONLY or name == "all-reduce"]
    size = dist.get_world_size()
    calls = {backend: operation(name, values, size, groups[backend]) for backend in wanted}
    times: dict[str, list[float]] = {backend: [] for backend in wanted}
    missing: dict[str, list[float]] = {backend: [] for backend in wanted}
    cut: dict[str, list[float]] = {backend: [] for backend in wanted}
    end = time.monotonic() + arguments.seconds * len(wanted)
    for _ in range(arguments.rounds + 1):
        for backend, call in calls.items():
            times[backend].append(slowest(call))
            if backend != "gloo":
                report = farwrite.torch.last_report(groups[backend][-1])
                assert report is not None
                lacks, whole = summed([report.missing_bytes, report.result_bytes])
                missing[backend].append(lacks / max(whole, 1))
                cut[backend].append(largest(report.was_cut))
        goes_on = torch.tensor([time.monotonic() < end])
        dist.broadcast(goes_on, 0)
        if len(times["gloo" if "gloo" in times else wanted[0]]) > 1 and not goes_on:
            break
    # The first round is a warm-up, in which bounded operations measure the path. It does not count.
    return {
        backend: {
            "seconds": times[backend][1:],
            "missing": mean(missing[backend][1:] or [0]),
            "cut": sum(cut[backend][1:]),
        }
        for backend in wanted
    }


def run(
    link: Sequence[str], size: int, arguments: argparse.Namespace, forced: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the results of rank 0 of a job of `size` ranks. `forced` names what must be changed in gloo."""
    with NetworkPath(arguments.program, *link, prefix=REAL_TIME) as path:
        started = []
        for side in (path.a, path.b):
            side.run("sysctl", "-qw", f"net.ipv4.tcp_congestion_control={arguments.tcp}")
        for rank in range(size):
            side = (path.a, path.b)[rank * 2 // size]
            environment = dict(
                os.environ,
                MASTER_ADDR=str(path.a.v4),
                MASTER_PORT="29500",
                RANK=str(rank),
                WORLD_SIZE=str(size),
                OMP_NUM_THREADS="1",
                GLOO_SOCKET_IFNAME=side.dev,
            )
            command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve", *sys.argv[1:]]
            command += ["--force", *forced]
            process = side.popen(
                command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            started.append(path.own(process))
        return [json.loads(line) for line in outputs(started, 3600)[0].splitlines()]


def show(size: int, loss: str, row: dict[str, Any], names: Sequence[str]) -> None:
    """Print the row of an operation."""
    cells = row["backends"]
    medians = {name: median(cell["seconds"]) * 1e3 for name, cell in cells.items()}
    rounds = min(len(cell["seconds"]) for cell in cells.values())
    text = f"{size:>5}  {loss:>5}  {row['operation']:>14}  {row['megabytes']:>4g}  {rounds:>6}"
    for name in names:
        if name in medians:
            text += f"  {medians[name]:>7.0f} ({max(cells[name]['seconds']) * 1e3:>6.0f})"
        else:
            text += f"  {'':>16}"
    for name in LOSING:
        if name in cells:
            text += f"  {cells[name]['missing']:>7.2%}  {cells[name]['cut']:>3.0f}"
    print(text, flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="example: --ranks 4 --losses 0% 1% --megabytes 1 20 --operations all-reduce all-gather",
    )
    parser.add_argument("--program", required=True, help="the program farwrite")
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8], help="numbers of ranks")
    parser.add_argument("--losses", nargs="+", default=["0%", "1%"], help="losses of packets on the path")
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[1, 5, 20, 80], help="sizes of the larger tensor"
    )
    parser.add_argument(
        "--operations", nargs="+", choices=OPERATIONS, default=["all-reduce"], help="measured operations"
    )
    parser.add_argument(
        "--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help="gloo, or kinds of farwrite"
    )
    parser.add_argument("--rounds", type=int, default=5, help="the most measured operations of a cell")
    parser.add_argument(
        "--seconds", type=float, default=10, help="the time after which a cell begins no further round"
    )
    parser.add_argument("--link", default="--rate 1Gbit --rtt 10ms", help="options of `farwrite link`")
    parser.add_argument("--tcp", default="bbr", help="congestion control of TCP, for gloo")
    parser.add_argument("--force", nargs="*", choices=FORCED, default=[], help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: must be at least 1")
    if arguments.serve:
        serve(arguments)
        return
    if odd := [size for size in arguments.ranks if size < 2 or size % 2]:
        parser.error(f"--ranks {odd[0]}: must be even, because each site has half of the ranks")
    gloo = examine_here()
    print(gloo.describe())
    print(f"farwrite link {arguments.link}, TCP {arguments.tcp}, {os.cpu_count()} cores. Medians of at most")
    print(f"{arguments.rounds} in ms, and the longest. Bounded with a target of {LOSS_TARGET:.0%}.")
    heads = "".join(f"  {name:>16}" for name in arguments.backends)
    heads += "".join(f"  {'missing':>7}  {'cut':>3}" for name in arguments.backends if name in LOSING)
    print(f"{'ranks':>5}  {'loss':>5}  {'operation':>14}  {'MB':>4}  {'rounds':>6}{heads}")
    for size in arguments.ranks:
        for loss in arguments.losses:
            for row in run([*arguments.link.split(), "--loss", loss], size, arguments, gloo.needed()):
                show(size, loss, row, arguments.backends)


if __name__ == "__main__":
    main()
