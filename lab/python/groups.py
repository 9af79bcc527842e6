"""Measures groups of PyTorch: how long a further one takes, what it holds, and what destroyed ones leave.

The ranks are processes of this machine with a default group of farwrite, which communicate over its loopback
interface. All ranks are in each further group, which runs one all-reduce of 4 bytes. The time of a group is
that of the slowest rank. Memory is the proportional set size (PSS) of a rank's process. Rank 0 also has
torch's store.
"""

import argparse
import ctypes
import os
import socket
import time
from dataclasses import astuple, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

#: Groups before the first measurement. They load what all groups share, and then the memory grows evenly.
WARM_UP = 100


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    memory_bytes: int
    files: int
    threads: int

    @staticmethod
    def now() -> "Held":
        """Return what this process holds."""
        # Without this call, the C library keeps free memory, up to 10 MB more at one time than at another.
        ctypes.CDLL(None).malloc_trim(0)
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        (kib,) = (line.split()[1] for line in lines if line.startswith("Pss:"))
        return Held(int(kib) * 1024, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))

    def since(self, before: "Held") -> "Held":
        """Return what is held in addition."""
        return Held(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


def make(backend: str) -> tuple[dist.ProcessGroup, float, float]:
    """Make a group and use it. Return it, the seconds that making took, and those of the first all-reduce."""
    dist.barrier()
    start = time.perf_counter()
    group = dist.new_group(backend=backend)
    made = time.perf_counter()
    values = torch.ones(1)
    dist.all_reduce(values, group=group)
    used = time.perf_counter()
    assert int(values) == dist.get_world_size(), "a wrong sum"
    return group, made - start, used - made


def measure(groups: int, cycles: int, backend: str) -> tuple[list[tuple[float, float]], Held, Held]:
    """Return the times of groups, what all of them hold, and what `cycles` destroyed ones leave."""

    def make_and_destroy(times: int) -> Held:
        for _ in range(times):
            dist.destroy_process_group(make(backend)[0])
        dist.barrier()
        return Held.now()

    before = make_and_destroy(WARM_UP)
    after = make_and_destroy(cycles)
    made = [make(backend) for _ in range(groups)]
    held = Held.now().since(after)
    return [(new, used) for _, new, used in made], held, after.since(before)


def serve(end: Connection, rank: int, size: int, port: int, *arguments: int | str) -> None:
    """Measure at one rank, and send the results to the main process."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("farwrite", rank=rank, world_size=size)
    end.send(measure(*arguments))
    end.recv()
    dist.destroy_process_group()


def run(size: int, *arguments: int | str) -> list[tuple[list[tuple[float, float]], Held, Held]]:
    """Return the results of `measure` of all ranks."""
    context = get_context("forkserver")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ends, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        # The process is a daemon, so that this program ends if a rank fails.
        process = context.Process(target=serve, args=(theirs, rank, size, port, *arguments), daemon=True)
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    answers = [end.recv() for end in ends]
    for end in ends:
        end.send(None)
    for process in processes:
        process.join(60)
    return answers


def main() -> None:
    """Measure, and print what each rank holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4, help="number of ranks")
    parser.add_argument("--groups", type=int, default=64, help="number of groups that exist at the same time")
    parser.add_argument("--cycles", type=int, default=1000, help="number of groups made and destroyed")
    parser.add_argument("--backend", default="farwrite", help="the backend of the groups, such as gloo")
    args = parser.parse_args()
    if args.groups < 1:
        parser.error(f"--groups {args.groups}: must be at least 1")
    answers = run(args.ranks, args.groups, args.cycles, args.backend)
    rounds = zip(*(times for times, _, _ in answers), strict=True)
    slowest = [[max(times) for times in zip(*ranks, strict=True)] for ranks in rounds]
    names = ("making a group", "its first all-reduce")
    for name, times in zip(names, zip(*slowest, strict=True), strict=True):
        print(f"{name}: median {median(times) * 1e3:.1f} ms, longest {max(times) * 1e3:.1f} ms")
    print(
        f"memory, open files, threads of each of {args.groups} groups; left by {args.cycles} destroyed ones:"
    )
    for rank, (_, held, left) in enumerate(answers):
        memory, files, threads = (value / args.groups for value in astuple(held))
        print(
            f"rank {rank}: {memory / 1e6:.2f} MB, {files:g} files, {threads:g} threads; "
            f"{left.memory_bytes / 1e6:+.2f} MB, {left.files:+} files, {left.threads:+} threads"
        )


if __name__ == "__main__":
    main()
