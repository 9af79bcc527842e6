"""The ranks of a job: processes that run test functions, one after the other."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist

import farwrite.torch

#: The options of the default group, which a group without options gets.
OPTIONS = farwrite.torch.Options()
#: Seconds that no test function exceeds, with the import of torch before the first function.
LONGEST_S = 300


class Ranks:
    """Processes with a default group of some backend, and another group of gloo."""

    def __init__(
        self, size: int, backend: str = "farwrite", options: farwrite.torch.Options | None = None
    ) -> None:
        self.size = size
        self._is_broken = False
        # The server imports torch once, and its child processes inherit it.
        context = get_context("forkserver")
        context.set_forkserver_preload(["farwrite.torch", "torch.distributed.fsdp"])
        port = free_port()
        self._ends: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, rank, size, port, backend, options), daemon=True
            )
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function of a module on every rank at once, and return the results by rank.

        Raises
        ------
        AssertionError
            If the function raises on a rank. The message has the rank and the traceback. After
            that, the job runs nothing more, because its ranks may be at different operations.
        """
        assert not self._is_broken, "the job broke in an earlier test"
        for end in self._ends:
            end.send((function, arguments))
        answers = [_answer(end, monotonic() + LONGEST_S) for end in self._ends]
        failures = [f"rank {rank}: {what}" for rank, (ok, what) in enumerate(answers) if not ok]
        if failures:
            self._is_broken = True
            self._kill()
        assert not failures, "\n".join(failures)
        return [what for _, what in answers]

    def close(self) -> None:
        """End the processes."""
        if not self._is_broken:
            for end in self._ends:
                end.send(None)
            for process in self._processes:
                process.join(30)
        self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def message(kind: type[BaseException], call: Callable[[], Any]) -> str:
    """Return the message of the exception that a call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


def gloo() -> dist.ProcessGroup:
    """Return a group of all ranks that does not use farwrite."""
    return _groups[0]


_groups: list[dist.ProcessGroup] = []


def _serve(
    end: Connection, rank: int, size: int, port: int, backend: str, options: farwrite.torch.Options | None
) -> None:
    import traceback

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group(backend, pg_options=options)
    _groups.append(dist.new_group(backend="gloo"))
    while (request := end.recv()) is not None:
        function, arguments = request
        try:
            answer = True, function(*arguments)
        except BaseException:
            answer = False, traceback.format_exc()
        end.send(answer)
    dist.destroy_process_group()


def _answer(end: Connection, until: float) -> tuple[bool, Any]:
    if not end.poll(max(0, until - monotonic())):
        return False, f"no answer in {LONGEST_S} s"
    try:
        answer: tuple[bool, Any] = end.recv()
    except EOFError:
        return False, "its process ended"
    return answer


def free_port() -> int:
    """Return a free port below 32768. Linux gives such a port only to a program that asks for this
    port, so it stays free until a test uses it."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
