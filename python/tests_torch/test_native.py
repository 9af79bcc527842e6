"""The memory of operations, tested in a group of one rank, whose operations end without a peer."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from ipaddress import ip_address

import numpy as np
import pytest

from farwrite import _native
from farwrite.torch import Options


@pytest.fixture
def rank() -> Iterator[_native.Communicator]:
    one = _native.Communicator(
        0, 1, address=ip_address("127.0.0.1"), key=None, settings=Options(trusted_store=True).native(30, [])
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
