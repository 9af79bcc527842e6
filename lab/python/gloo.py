"""Examines how gloo of the installed PyTorch computes a reduce-scatter and a mean.

Some versions compute a reduce-scatter by an all-reduce, which sends twice as many bytes. Some versions
compute a wrong mean. A comparison with gloo must take this into account. `python -P lab/python/gloo.py`
prints the result.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

#: The offset of `tcpi_bytes_sent` in Linux's `struct tcp_info`, and the least length of this struct.
_SENT_AT, _INFO_BYTES = 200, 208
_VALUES = 1 << 18


@dataclass(frozen=True)
class Gloo:
    """The properties of gloo that a comparison needs."""

    #: Version of PyTorch.
    torch: str
    #: Number of ranks of the examined group.
    ranks: int
    #: The bytes that a rank sends in a reduce-scatter, divided by the bytes that it sends in an all-reduce of
    #: the same tensor. A reduce-scatter needs to send half of the bytes of an all-reduce.
    reduce_scatter_share: float
    #: The operations whose mean is not the sum divided by the number of ranks.
    wrong_means: tuple[str, ...]

    @property
    def reduces_whole(self) -> bool:
        """Whether a reduce-scatter is computed by an all-reduce."""
        return self.reduce_scatter_share > 0.75

    def needed(self) -> list[str]:
        """Return the names of what `same_operations.py` must change for this version of PyTorch."""
        return ["reduce-scatter"] * self.reduces_whole + ["mean"] * bool(self.wrong_means)

    def describe(self) -> str:
        """Return the properties as a sentence."""
        how = "is an all-reduce" if self.reduces_whole else "is one"
        mean = f"wrong: {', '.join(self.wrong_means)}" if self.wrong_means else "right"
        return (
            f"gloo of PyTorch {self.torch}, {self.ranks} ranks: its reduce-scatter {how} "
            f"({self.reduce_scatter_share:.2f} of the bytes), its mean is {mean}"
        )


def sent_bytes() -> int:
    """Return the bytes that this process has sent over its open TCP connections."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:
            # This is the descriptor with which the folder was listed. It is closed now.
            continue
        try:
            connection = socket.socket(fileno=copy)
        except OSError:
            # The descriptor is not a socket.
            os.close(copy)
            continue
        with connection:
            try:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            except OSError:
                # The socket has no TCP connection.
                continue
        if len(info) >= _INFO_BYTES:
            total += struct.unpack_from("=Q", info, _SENT_AT)[0]
    return total


def settled_bytes(group: dist.ProcessGroup | None) -> int:
    """Return the bytes that this process has sent until all ranks have ended their operations.

    A rank can end an operation while its last bytes are still in a buffer of the kernel.
    """
    dist.barrier(group)
    return sent_bytes()


def examine(group: dist.ProcessGroup | None = None) -> Gloo:
    """Examine a group of gloo. All of its ranks must call this function, and get the same result."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    whole = torch.arange(_VALUES // size * size).remainder(512).float() * (rank + 1)
    total = torch.arange(_VALUES // size * size).remainder(512).float() * (size * (size + 1) // 2)
    part = torch.empty(len(whole) // size)
    marks = [settled_bytes(group)]
    dist.all_reduce(whole.clone(), group=group)
    marks.append(settled_bytes(group))
    dist.reduce_scatter_tensor(part, whole, group=group)
    marks.append(settled_bytes(group))
    averaged = whole.clone()
    dist.all_reduce(averaged, dist.ReduceOp.AVG, group)
    dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.AVG, group)
    wanted = total / size
    found = torch.zeros(4, dtype=torch.float64)
    found[0], found[1] = marks[2] - marks[1], marks[1] - marks[0]
    found[2] = not torch.allclose(averaged, wanted)
    found[3] = not torch.allclose(part, wanted[rank * len(part) :][: len(part)])
    dist.all_reduce(found, group=group)
    names = ("all-reduce", "reduce-scatter")
    wrong = tuple(name for name, is_wrong in zip(names, found[2:].tolist(), strict=True) if is_wrong)
    return Gloo(torch.__version__, size, float(found[0] / found[1]), wrong)


def examine_here(size: int = 2) -> Gloo:
    """Examine gloo over the loopback interface of this machine. Ranks are processes."""
    context = get_context("spawn")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ours, theirs = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_rank, args=(theirs, store.port, rank, size), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    theirs.close()
    try:
        found: Gloo = ours.recv()
    finally:
        for process in processes:
            process.join(30)
            process.kill()
    return found


def _rank(end: Connection, port: int, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    found = examine()
    if rank == 0:
        end.send(found)
    dist.destroy_process_group()


if __name__ == "__main__":
    print(examine_here().describe())
