"""The memory of operations. Tests use a group of one rank, whose operations end without another rank."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from threading import Thread
from typing import Any

import numpy as np
import pytest

from farwrite import _native
from farwrite.torch import Options
from farwrite.torch.reports import Totals
from farwrite.torch.work import Work


@pytest.fixture
def rank() -> Iterator[_native.Communicator]:
    one = _native.Communicator(
        0,
        1,
        address=ip_address("127.0.0.1"),
        key=None,
        context=b"",
        settings=Options(trusted_store=True).native(30, []),
    )
    said = one.meet([])
    while said is not None:
        said = one.meet([said])
    yield one
    one.close()


def ended(ticket: _native.Ticket) -> None:
    until = time.monotonic() + 60
    while not ticket.is_done():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_waiting_releases_the_memory(rank: _native.Communicator) -> None:
    memory = np.ones(8, np.uint8)
    alive = weakref.ref(memory)
    ticket = rank.submit("broadcast", output=memory)
    del memory
    ticket.wait(30)
    assert alive() is None


def test_closing_releases_the_memory(rank: _native.Communicator) -> None:
    memory = np.ones(8, np.uint8)
    alive = weakref.ref(memory)
    ticket = rank.submit("broadcast", output=memory)
    del memory
    rank.close()
    assert alive() is None
    assert ticket.is_done()


def test_what_runs_when_memory_is_released_may_start_operations(rank: _native.Communicator) -> None:
    memory = np.ones(8, np.uint8)
    started: list[_native.Ticket] = []
    weakref.finalize(memory, lambda: started.append(rank.submit("barrier")))
    first = rank.submit("broadcast", output=memory)
    del memory
    ended(first)
    rank.submit("barrier").wait(30)
    started[0].wait(30)


def test_memory_with_gaps_is_refused(rank: _native.Communicator) -> None:
    gaps, whole = np.zeros(16, np.uint8)[::2], np.zeros(8, np.uint8)
    with pytest.raises(BufferError, match="^input: must be contiguous memory$"):
        rank.submit("all-gather", input=gaps, output=whole)
    with pytest.raises(BufferError, match="^output: must be contiguous memory$"):
        rank.submit("all-gather", input=whole, output=gaps)
    rank.submit("all-gather", input=whole.copy(), output=whole).wait(30)


def test_another_thread_runs_during_a_wait() -> None:
    here = ip_address("127.0.0.1")
    settings = Options(trusted_store=True).native(30, [])
    ranks = [
        _native.Communicator(rank, 2, address=here, key=None, context=b"", settings=settings)
        for rank in range(2)
    ]
    said: list[Any] = []
    while None not in said:
        said = [rank.meet(said) for rank in ranks]
    # The receive ends only after another thread has sent. A wait that holds the lock would prevent the send.
    ticket = ranks[0].submit("receive", output=np.zeros(8, np.uint8), peer=1, tag=0)

    def send() -> None:
        time.sleep(0.2)
        ranks[1].submit("send", input=np.ones(8, np.uint8), peer=0, tag=0)

    sender = Thread(target=send)
    sender.start()
    ticket.wait(20)
    sender.join()
    for rank in ranks:
        rank.close()


class _Slow:
    """An operation that ends after a tenth of a second of a fake clock, and records the limits of waits."""

    now_s = 0.0

    def __init__(self, limits: list[float]) -> None:
        self._limits = limits

    def wait(self, limit_s: float) -> None:
        self._limits.append(limit_s)
        _Slow.now_s += min(0.1, limit_s)
        if limit_s < 0.1:
            raise TimeoutError


def test_several_operations_of_one_call_share_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farwrite.torch.work.monotonic", lambda: _Slow.now_s)
    limits: list[float] = []
    started: Any = [(_Slow(limits), lambda ended: None) for _ in range(4)]
    with pytest.raises(TimeoutError):
        Work("all_reduce", started, [], Totals()).wait(timedelta(seconds=0.25))
    assert len(limits) == 3
    assert limits[0] <= 0.25
    assert limits[2] <= 0.05
