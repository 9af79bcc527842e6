"""Weights from a trainer to sites: versions, deltas, late sites, sites that die, tensors that do not fit."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Semaphore
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import FileStore, HashStore, PrefixStore, TCPStore

from farwrite.torch import Options, RendezvousError
from farwrite.torch.weights import Publisher, Subscriber, header, publisher, subscriber
from farwrite.torch.weights.link import Join

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: No test waits so long, unless it fails.
LONGEST = timedelta(seconds=120)
#: A `FileStore` does not show which address of this machine others can reach.
HERE = Options(address="127.0.0.1")
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64,
    torch.int64, torch.int8, torch.uint16, torch.bool,
]  # fmt: skip


def _state(seed: int) -> dict[str, torch.Tensor]:
    """Return tensors of all types and some shapes, with values that depend on the seed."""
    bits = torch.Generator().manual_seed(seed)

    def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        size = torch.empty(shape, dtype=dtype).nbytes
        octets = torch.randint(256 if dtype != torch.bool else 2, [size], generator=bits, dtype=torch.uint8)
        return octets.view(dtype).view(shape)

    state = {str(dtype): values(dtype, 3, 5) for dtype in DTYPES}
    # More than one send, no values, no dimensions, and strides.
    state["large"] = values(torch.float32, 1025, 5000)
    state["empty"] = values(torch.float32, 0, 4)
    state["number"] = values(torch.int64)
    state["transposed"] = values(torch.bfloat16, 7, 30).t()
    return state


def _zeros() -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in _state(0).items()}


def _bytes(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    # The values of NaN compare as unequal, so the tests compare bytes.
    return {
        name: tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in tensors.items()
    }


class Sites:
    """Processes that subscribe to a publisher of this process."""

    def __init__(self) -> None:
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["farwrite.torch"])
        self._processes: list[Any] = []

    def start(self, function: Callable[..., None], *arguments: Any) -> Connection:
        """Call a function in another process, with the port of the store and the end of a pipe."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=function, args=(self.store.port, theirs, *arguments), daemon=True
        )
        process.start()
        theirs.close()
        self._processes.append(process)
        return ours

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@pytest.fixture
def sites() -> Iterator[Sites]:
    made = Sites()
    yield made
    made.close()


def _answer(end: Connection) -> Any:
    assert end.poll(LONGEST.total_seconds()), "the site hangs"
    return end.recv()


def _subscribe(port: int) -> Subscriber:
    torch.set_num_threads(1)
    return Subscriber(TCPStore("127.0.0.1", port, is_master=False), timeout=LONGEST)


def _receive_all(port: int, end: Connection) -> None:
    """Receive a version each time that the test asks for one, into the same tensors."""
    tensors = _zeros()
    with _subscribe(port) as site:
        while end.recv():
            end.send((site.receive(tensors, LONGEST), _bytes(tensors)))


def test_three_sites_receive_versions_and_deltas_and_one_comes_late(sites: Sites) -> None:
    first, second = _state(1), _state(2)
    with Publisher(sites.store, timeout=LONGEST) as publisher:
        ends = [sites.start(_receive_all) for _ in range(2)]
        for end in ends:
            end.send(True)
        assert publisher.publish(first) == 1
        expected = _bytes(first)
        # The publisher has copies.
        first["large"].zero_()
        for end in ends:
            assert _answer(end) == (1, expected)
        delta = {name: second[name] for name in ["large", "transposed"]}
        assert publisher.publish_delta(delta, version=7) == 7
        expected |= _bytes(delta)
        ends.append(sites.start(_receive_all))
        for end in ends:
            end.send(True)
            assert _answer(end) == (7, expected)
        assert publisher.wait(7, sites=3, timeout=LONGEST)
        # Nobody asks for version 8, of which these sites receive what version 9 has not replaced.
        publisher.publish_delta({"number": second["number"]})
        publisher.publish_delta({"empty": second["empty"], "torch.bool": second["torch.bool"]})
        expected |= _bytes({name: second[name] for name in ["number", "empty", "torch.bool"]})
        for end in ends:
            end.send(True)
            assert _answer(end) == (9, expected)
        assert publisher.wait(9, sites=3, timeout=LONGEST)
        assert [site.version for site in publisher.sites().values()] == [9, 9, 9]
        assert not publisher.wait(10, sites=1, timeout=timedelta(milliseconds=1))
        ends[0].send(False)
        assert _until(publisher, lambda: publisher.sites()[1].left or publisher.sites()[2].left)
        # A site that leaves has received what it has.
        assert publisher.wait(9, sites=3, timeout=timedelta(milliseconds=1))


def _until(publisher: Publisher, ask: Callable[[], Any]) -> Any:
    with publisher._changed:
        return publisher._changed.wait_for(ask, LONGEST.total_seconds())


def _die_in_the_middle(port: int, end: Connection) -> None:
    """End by a signal when the first tensor has arrived."""

    def die(values: object) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    site, tensors = _subscribe(port), _zeros()
    subscriber.digest = die
    end.send("joined")
    site.receive(tensors, LONGEST)


def test_a_site_that_is_killed_in_the_middle_delays_no_other_site(sites: Sites) -> None:
    with Publisher(sites.store, timeout=LONGEST) as publisher:
        killed, living = sites.start(_die_in_the_middle), sites.start(_receive_all)
        assert _answer(killed) == "joined"
        for seed in range(1, 6):
            # From the third version on, the publisher needs the memory of a version that the dead site has.
            state = _state(seed)
            publisher.publish(state)
            living.send(True)
            assert _answer(living) == (seed, _bytes(state))
        left = _until(publisher, lambda: [site for site in publisher.sites().values() if site.left])
        assert len(left) == 1
        assert left[0].version == 0
        assert "rank 1 does not answer" in left[0].left


def _generate(port: int, end: Connection, number: int) -> None:
    sys.path.append(str(EXAMPLES))
    from publish import generate

    torch.set_num_threads(1)
    generate(number, "127.0.0.1", port)
    end.send(number)


def test_the_sites_of_the_example_generate_with_the_last_version(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from publish import train

    ends = [sites.start(_generate, number) for number in (1, 2)]
    train(sites.store, sites=2)
    assert [_answer(end) for end in ends] == [1, 2]


def _pair(publish: dict[str, torch.Tensor]) -> tuple[Publisher, Subscriber]:
    """Return a publisher with a version, and a subscriber in this process."""
    store = HashStore()
    publisher = Publisher(store, "model", timeout=LONGEST)
    publisher.publish(publish)
    return publisher, Subscriber(store, "model", timeout=LONGEST)


@pytest.mark.parametrize(
    ("into", "problem"),
    [
        (
            {"a": torch.zeros(3, 4), "b": torch.zeros(2)},
            "tensor 'a': is torch.float32 of shape [3, 4] here, and torch.float32 of shape [4, 3] at the "
            "publisher",
        ),
        (
            {"a": torch.zeros(4, 3), "b": torch.zeros(2, dtype=torch.bfloat16)},
            "tensor 'b': is torch.bfloat16 of shape [2] here, and torch.float32 of shape [2] at the "
            "publisher",
        ),
        (
            {"a": torch.zeros(4, 3)},
            "tensor 'b': is torch.float32 of shape [2] at the publisher, and missing here",
        ),
        (
            {"a": torch.zeros(4, 3), "b": torch.zeros(2), "c": torch.zeros(1)},
            "tensor 'c': is missing at the publisher",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_not_written(into: dict[str, torch.Tensor], problem: str) -> None:
    publisher, site = _pair({"a": torch.ones(4, 3), "b": torch.ones(2)})
    with publisher:
        with pytest.raises(ValueError, match="tensor") as error:
            site.receive(into)
        assert str(error.value) == problem
        assert all(not tensor.any() for tensor in into.values())
        with pytest.raises(RuntimeError, match="the subscriber has ended, make another one: tensor"):
            site.receive(into)
        assert problem in _until(publisher, lambda: publisher.sites()[1].left)


def test_a_site_waits_and_asks_again() -> None:
    publisher, site = _pair({"a": torch.ones(4)})
    tensors = {"a": torch.zeros(4, requires_grad=True)}
    with publisher, site:
        assert site.receive(tensors) == site.version == 1
        with pytest.raises(TimeoutError, match="there is no version after 1"):
            site.receive(tensors, timedelta(0))
        with pytest.raises(TimeoutError):
            site.receive(tensors, timedelta(milliseconds=10))
        publisher.publish({"a": torch.full([4], 2.0)})
        assert site.receive(tensors) == 2
        assert tensors["a"].tolist() == [2, 2, 2, 2]
        with pytest.raises(ValueError, match="into: are other tensors than those that received version 2"):
            site.receive({"a": torch.zeros(4)})


def test_a_site_learns_that_the_publisher_has_left() -> None:
    publisher, site = _pair({"a": torch.ones(4)})
    tensors = {"a": torch.zeros(4)}
    assert site.receive(tensors) == 1
    publisher.close()
    with pytest.raises(RuntimeError, match="rank 0"):
        site.receive(tensors)
    with pytest.raises(RuntimeError, match="the publisher is closed"):
        publisher.publish(tensors)


def test_a_publisher_that_has_left_is_not_found(tmp_path: Path) -> None:
    short = timedelta(seconds=0.3)
    file = FileStore(str(tmp_path / "store"), 1)
    tcp = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for store in (HashStore(), file, tcp, PrefixStore("prefix", tcp)):
        first = Publisher(store, options=HERE)
        number = first._join._joined
        assert store.check([number])
        # The end of a publisher does not hide the next one of its name.
        with Publisher(store, options=HERE) as second:
            first.close()
            assert not store.check([number])
            second.publish({"a": torch.ones(4)})
            with Subscriber(store, options=HERE, timeout=LONGEST) as site:
                assert site.receive({"a": torch.zeros(4)}) == 1
        with pytest.raises(RendezvousError, match="the store has no publisher of 'weights' within 0:00:00.3"):
            Subscriber(store, options=HERE, timeout=short)


def test_a_site_that_waits_for_a_publisher_learns_that_it_has_left() -> None:
    # This publisher serves no site.
    store = HashStore()
    join = Join(store, "weights", None, LONGEST)
    join.begin()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(Subscriber, store, timeout=LONGEST)
        while not join.count() and not waiting.done():
            sleep(0.001)
        join.end()
        with pytest.raises(RendezvousError, match="rank 1 of group 'weights': the publisher has left"):
            waiting.result()


def test_a_program_may_wait_in_the_store_of_its_publisher() -> None:
    tcp = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = TCPStore("127.0.0.1", tcp.port, is_master=False, wait_for_workers=False)
    with Publisher(tcp) as publisher, ThreadPoolExecutor(2) as threads:
        publisher.publish({"a": torch.ones(4)})
        for store, name in ((tcp, "trainer"), (other, "site")):
            threads.submit(store.get, name)
        try:
            with Subscriber(other, timeout=timedelta(seconds=20)) as site:
                assert site.receive({"a": torch.zeros(4)}) == 1
        finally:
            free = tcp.clone()
            free.set("trainer", "")
            free.set("site", "")


def test_a_forked_process_does_not_close_a_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    with Publisher(store, options=HERE) as publisher:
        publisher.publish({"a": torch.ones(4)})
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: 0)
            publisher.close()
        with Subscriber(store, options=HERE, timeout=LONGEST) as site:
            assert site.receive({"a": torch.zeros(4)}) == 1


def test_a_publisher_leaves_a_file_that_other_processes_use(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = FileStore(str(path), 2)
    Publisher(store, options=HERE).close()
    del store
    gc.collect()
    # A `FileStore` removes its file when it has ended in all processes, which are two here.
    assert path.exists()


def test_a_publisher_that_waits_for_sites_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "JOIN_EVERY_S", 0.001)
    path = tmp_path / "store"
    with Publisher(FileStore(str(path), 1)) as waiting:
        before, count, looks = path.stat().st_size, waiting._join.count, Semaphore(0)

        def counted() -> int:
            looks.release()
            return count()

        monkeypatch.setattr(waiting._join, "count", counted)
        for _ in range(20):
            assert looks.acquire(timeout=LONGEST.total_seconds())
        assert path.stat().st_size == before


def test_other_values_than_the_publisher_had(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, site = _pair({"a": torch.ones(4)})
    monkeypatch.setattr(subscriber, "digest", lambda values: "00" * 16)
    with publisher, pytest.raises(RuntimeError, match="tensor 'a': its values are not those"):
        site.receive({"a": torch.zeros(4)})


@pytest.mark.parametrize(
    ("state", "version", "problem"),
    [
        (
            {"a": torch.ones(3), "b": torch.ones(2)},
            None,
            r"tensor 'a': is .* \[3\] here, .* \[4\] in version 5",
        ),
        (
            {"a": torch.ones(4)},
            None,
            "tensor 'b': is torch.float32 of shape .* in version 5, and missing here",
        ),
        ({"a": torch.ones(4), "b": torch.ones(2)}, 5, "version = 5: must be larger than 5, the last version"),
        ([1], None, "state_dict is of list: must be tensors by name"),
        ({5: torch.ones(4)}, None, "state_dict has the name 5: names must be of str"),
        ({"a": 3}, None, r"state_dict\['a'\] is 3, not a tensor"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, None, "'a': is of torch.complex128: must be one of"),
    ],
)
def test_what_is_not_a_version(state: Any, version: int | None, problem: str) -> None:
    with Publisher(HashStore()) as publisher:
        with pytest.raises(ValueError, match="publish a whole state dict first"):
            publisher.publish_delta({"a": torch.ones(4)})
        publisher.publish({"a": torch.ones(4), "b": torch.ones(2)}, version=5)
        with pytest.raises((ValueError, TypeError), match=problem):
            publisher.publish(state, version)
        with pytest.raises(ValueError, match="tensor 'c': is missing in version 5"):
            publisher.publish_delta({"c": torch.ones(1)})


def test_headers_are_those_of_safetensors() -> None:
    digests = [header.digest(np.zeros(size, dtype=np.uint8)) for size in (24, 0)]
    entries = {
        "a": header.Entry(torch.bfloat16, (3, 4), digests[0]),
        "b": header.Entry(torch.float32, (0,), digests[1]),
    }
    text = header.encode(9, entries)
    assert len(text) % 8 == 0
    assert json.loads(text) == {
        "__metadata__": {"version": "9", "blake2b": " ".join(digests)},
        "a": {"dtype": "BF16", "shape": [3, 4], "data_offsets": [0, 24]},
        "b": {"dtype": "F32", "shape": [0], "data_offsets": [24, 24]},
    }
    assert header.decode(text) == (9, entries)
    for changed in (
        text[:-20],
        b"[]",
        b"\xff",
        b"[" * 100_000,
        text.replace(b"BF16", b"BF17"),
        text.replace(b"[0, 24]", b"[0, 23]"),
        text.replace(b"[3, 4]", b"[-3, -4]"),
        text.replace(digests[1].encode(), b""),
        text.replace(b'"9"', b'"nine"'),
    ):
        assert changed != text
        with pytest.raises(ValueError, match="not the header of a version of weights"):
            header.decode(changed)
