"""Measures the time of all-reduces of PyTorch: farwrite, exact and bounded, and gloo in the same run.

The ranks are processes of this machine, which communicate over its loopback interface. Each has one thread of
PyTorch. With `--device cuda`, the ranks share a GPU. The backends take turns. The time of an all-reduce is
that of the slowest rank. Each row has medians.
"""

import argparse
import os
import socket
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median

import torch
import torch.distributed as dist
from farwrite.torch import Bounded, Options

BACKENDS = ("gloo", "exact", "bounded")
WARM_UP = 2


def serve(end: Connection, rank: int, size: int, port: int, elements: int, rounds: int, device: str) -> None:
    """Run all rounds on one rank, and send the times of each backend, in seconds, to the main process."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    groups = {
        "gloo": dist.group.WORLD,
        "exact": dist.new_group(backend="farwrite", pg_options=Options(trusted_store=True)),
        "bounded": dist.new_group(
            backend="farwrite",
            pg_options=Options(trusted_store=True, policy=Bounded(loss_target=0.01)),
        ),
    }
    values = torch.ones(elements, device=device)
    times: dict[str, list[float]] = {name: [] for name in BACKENDS}
    for _ in range(WARM_UP + rounds):
        for name, group in groups.items():
            values.fill_(1.0)
            finish(device)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(values, group=group)
            finish(device)
            times[name].append(time.perf_counter() - start)
            assert name == "bounded" or bool((values == size).all()), f"{name}: a wrong sum"
    end.send({name: some[WARM_UP:] for name, some in times.items()})
    end.recv()
    dist.destroy_process_group()


def finish(device: str) -> None:
    """Wait until a GPU has done the work that is queued on it."""
    if device == "cuda":
        torch.cuda.synchronize()


def run(size: int, elements: int, rounds: int, device: str) -> dict[str, float]:
    """Return the median time of each backend among `size` ranks, in seconds."""
    context = get_context("forkserver")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ends, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        # The process is a daemon, so that this program ends if a rank fails.
        process = context.Process(
            target=serve, args=(theirs, rank, size, port, elements, rounds, device), daemon=True
        )
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    answers = [end.recv() for end in ends]
    for end in ends:
        end.send(None)
    for process in processes:
        process.join(60)
    slowest = {
        name: [max(some) for some in zip(*(a[name] for a in answers), strict=True)] for name in BACKENDS
    }
    return {name: median(times) for name, times in slowest.items()}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mib", type=float, default=64, help="size of the tensor of float32 in MiB; 0: one value"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of measured all-reduces of each backend"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of ranks")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="the device of the tensors")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: must be at least 1")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch.cuda.is_available() is False")
    print(f"{args.mib:g} MiB of float32, {args.device}, medians of {args.rounds}, {os.cpu_count()} cores")
    print(f"{'ranks':>5}  {'gloo':>8}  {'exact':>8}  {'bounded':>8}  exact/gloo  bounded/gloo")
    for size in args.ranks:
        times = run(size, max(1, round(args.mib * 2**18)), args.rounds, args.device)
        in_ms = [times[name] * 1e3 for name in BACKENDS]
        cells = "  ".join(f"{ms:>5.{0 if ms >= 10 else 2}f} ms" for ms in in_ms)
        ratios = [times[name] / times["gloo"] for name in ("exact", "bounded")]
        print(f"{size:>5}  {cells}  {ratios[0]:>10.2f}  {ratios[1]:>12.2f}")


if __name__ == "__main__":
    main()
