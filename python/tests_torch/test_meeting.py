"""How ranks join each other. Two threads stand for two ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import pytest
from ranks import message
from torch.distributed import FileStore, HashStore, PrefixStore, Store, TCPStore

from farwrite.torch import (
    Bounded,
    Eqds,
    Exact,
    Fixed,
    Options,
    RendezvousError,
    rendezvous,
    signs_of_life,
)
from farwrite.torch.rendezvous import Place

OPTIONS = Options(trusted_store=True)
#: The timeout of cases in which a rank does not join.
SHORT = timedelta(seconds=1)
LONG = timedelta(seconds=60)


class Counted:
    """A store that notes the names of the operations."""

    def __init__(self) -> None:
        self.inner = HashStore()
        self.operations: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.operations.append(name)
        return getattr(self.inner, name)


def both(store: Store, *, options: tuple[Options, Options] = (OPTIONS, OPTIONS),
         addresses: tuple[str, str] = ("10.0.0.1", "10.0.0.2"), sizes: tuple[int, int] = (2, 2),
         timeout: timedelta = LONG, start: bytes = b"") -> list[list[bytes] | str]:  # fmt: skip
    """Return the result of each of two ranks, or the message of its exception."""

    def meet(rank: int) -> list[bytes] | str:
        place = Place("g", store, rank, sizes[rank])
        try:
            return rendezvous.meet(place, b"of %d" % rank + start, addresses[rank], options[rank], timeout)[1]
        except RendezvousError as error:
            return str(error)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(meet, range(2)))


def test_everyone_gets_the_information_of_all(tmp_path: Path) -> None:
    for store in (HashStore(), FileStore(str(tmp_path / "store"), 2), PrefixStore("p", HashStore())):
        assert both(store) == [[b"of 0", b"of 1"]] * 2


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_the_store_has_no_message_after_a_rendezvous(tmp_path: Path, rounds: int) -> None:
    stores = HashStore(), FileStore(str(tmp_path / "store"), 2), PrefixStore("p", HashStore())
    for store in stores:

        def join(rank: int, store: Store = store) -> int:
            place = Place("g", store, rank, 2)
            return rendezvous.join(place, Says(rounds), "10.0.0.1", OPTIONS, LONG)  # type: ignore[arg-type]

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(join, range(2))) == [1024] * 2
        attempt = store.get("farwrite/0/attempt").decode()
        keys = [
            rendezvous._keys(Place("g", store, 0, 2, attempt=attempt), number) for number in range(rounds)
        ]
        assert store.multi_get(keys[0]) == [b"met"] * 2
        assert not any(store.check([key]) for later in keys[1:] for key in later)


class Says:
    """A communicator with something to say in some rounds."""

    packet_bytes = 1024

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.said = 0

    def meet(self, messages: list[bytes]) -> bytes | None:
        assert messages == [b"%d" % self.said] * 2 or not self.said
        self.said += 1
        return b"%d" % self.said if self.said <= self.rounds else None


def test_a_job_that_starts_again_in_the_same_store() -> None:
    store = HashStore()
    for start in range(20):
        # The messages of each start have keys of their own. A rank would take an equal one for its own.
        assert both(store, start=b", %d" % start) == [[b"of 0, %d" % start, b"of 1, %d" % start]] * 2


def test_an_attempt_that_was_not_completed() -> None:
    store = HashStore()
    # Rank 0 of an earlier start ends before rank 1 joins.
    with pytest.raises(RendezvousError, match="rank 1 did not join"):
        rendezvous.meet(Place("g", store, 0, 2), b"old", "10.0.0.1", OPTIONS, timedelta(seconds=0.1))
    with ThreadPoolExecutor(1) as threads:
        # Rank 1 finds that attempt, and waits for the next one.
        early = threads.submit(rendezvous.meet, Place("g", store, 1, 2), b"one", "10.0.0.2", OPTIONS, LONG)
        while not store.check([f"farwrite/0/{store.get('farwrite/0/attempt').decode()}/1"]):
            sleep(0.01)
        late = rendezvous.meet(Place("g", store, 0, 2), b"new", "10.0.0.1", OPTIONS, LONG)
        assert late[1] == early.result()[1] == [b"new", b"one"]


def test_a_rank_that_joins_twice() -> None:
    store = HashStore()
    both(store)
    place = Place("g", store, 1, 2)
    with pytest.raises(RendezvousError, match="the store already has a rank 1 of a group of this name"):
        rendezvous.meet(place, b"", "10.0.0.1", OPTIONS, SHORT)
    with pytest.raises(RendezvousError, match="rank 0 did not join within 0:00:01"):
        rendezvous.meet(Place("g", HashStore(), 1, 2), b"", "10.0.0.1", OPTIONS, SHORT)


def test_a_group_that_is_made_again() -> None:
    store = HashStore()
    both(store)
    with ThreadPoolExecutor(2) as threads:
        places = [Place("g", store, rank, 2, instance="1") for rank in range(2)]
        meetings = [
            threads.submit(rendezvous.meet, place, b"new", "10.0.0.1", OPTIONS, LONG) for place in places
        ]
        assert [meeting.result()[1] for meeting in meetings] == [[b"new", b"new"]] * 2


def test_other_ranks_use_the_name_of_a_destroyed_group() -> None:
    store = HashStore()
    # Rank 1 has made a group of this name before, with rank 0. Now it makes one with rank 2.
    for members in ((0, 1), (1, 2)):
        instance = Place.instance_of(members, before=0)
        with ThreadPoolExecutor(2) as threads:
            places = [Place("g", store, rank, 2, instance) for rank in range(2)]
            meetings = [
                threads.submit(rendezvous.meet, place, b"%d%d" % members, "10.0.0.1", OPTIONS, LONG)
                for place in places
            ]
            assert [meeting.result()[1] for meeting in meetings] == [[b"%d%d" % members] * 2] * 2


def test_a_rank_that_waits_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # torch 2.7 has no `Store.clone`.
    stores = [TCPStore("127.0.0.1", server.port, is_master=False) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        first, late = (
            threads.submit(rendezvous.meet, Place("g", stores[rank], rank, 2), b"", "10.0.0.1", OPTIONS, LONG)
            for rank in wait_between(range(2), 0.5)
        )
        assert first.result()[1] == late.result()[1] == [b"", b""]
    # The stores of torch warn about each wait that times out.
    assert capfd.readouterr().err == ""


def wait_between(values: Iterable[int], seconds: float) -> Iterator[int]:
    """Return values with pauses between them."""
    for value in values:
        yield value
        sleep(seconds)


def test_a_rank_that_does_not_come() -> None:
    with pytest.raises(
        RendezvousError, match=r"^rank 0 of group 'g': rank 1, 2 did not join within 0:00:01$"
    ):
        rendezvous.meet(Place("g", HashStore(), 0, 3), b"", "10.0.0.1", OPTIONS, SHORT)


def test_ranks_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Options(trusted_store=True, policy=Exact("ec-mds:32,8"))
    said = both(HashStore(), options=(OPTIONS, other))
    assert (
        "rank 1 has policy Exact(scheme='ec-mds:32,8', expected_loss=None), and this rank has Exact("
        in said[0]
    )
    assert "rank 0 has policy Exact(scheme='auto', expected_loss=None)" in said[1]
    log, replay = (
        Options(trusted_store=True, policy=Bounded(), **{name: "folder"})
        for name in ("missing_log", "replay_log")
    )
    said = both(HashStore(), options=(log, replay))
    assert "exact=Exact(scheme='auto', expected_loss=None)), replayed, and this rank has Bounded(" in said[0]
    # A rank may write a log while the other ranks write none.
    silent = Options(trusted_store=True, policy=Bounded())
    assert both(HashStore(), options=(log, silent)) == [[b"of 0", b"of 1"]] * 2
    here, there = (Options(trusted_store=True, sites=sites) for sites in ((0, 0), [0, 1]))
    said = both(HashStore(), options=(here, there))
    assert "rank 1 has sites [0, 1], and this rank has [0, 0]: all ranks must have the same sites" in said[0]
    said = both(HashStore(), options=(OPTIONS, Options(key=bytes(32))))
    assert "rank 1 has a key, and this rank has no key: all ranks must have the same key, or none" in said[0]
    assert "rank 0 has no key, and this rank has a key: " in said[1]
    said = both(HashStore(), options=(OPTIONS, Options(trusted_store=True, rate_control=Eqds(10**9))))
    assert "rank 1 has the rate control Eqds, and this rank has Adaptive: if a rank has Eqds" in said[0]
    slower = Options(trusted_store=True, rate_control=Fixed(10**6))
    assert both(HashStore(), options=(OPTIONS, slower)) == [[b"of 0", b"of 1"]] * 2
    said = both(HashStore(), sizes=(2, 3))
    assert "rank 1 has size 3, and this rank has 2: all ranks must have the same size" in said[0]
    assert "rank 0 has size 2, and this rank has 3: all ranks must have the same size" in said[1]
    versions = iter(["0.1.0", "0.2.0"])
    monkeypatch.setattr(rendezvous, "version", lambda _: next(versions))
    said = both(HashStore())
    problem = "has version 0.1.0, and this rank has 0.2.0: all ranks must have the same version"
    assert any(problem in one for one in said)


def test_a_rank_of_another_version_may_send_other_fields() -> None:
    store = HashStore()
    store.set("farwrite/0/attempt", "1")
    store.set("farwrite/0/1/0", b'{"farwrite": "0.0.1", "size": 2}')
    store.set("farwrite/0/1/complete", "2")
    with pytest.raises(RendezvousError, match=r"rank 0 has version 0\.0\.1, and this rank has "):
        rendezvous.meet(Place("g", store, 1, 2), b"", "10.0.0.1", OPTIONS, LONG)


def test_what_is_no_rank_of_farwrite() -> None:
    for value in (b"\xff\x00", b"[]", b'{"farwrite": 1}', b"x" * 1000):
        store = HashStore()
        store.set("farwrite/0/attempt", "1")
        store.set("farwrite/0/1/0", value)
        store.set("farwrite/0/1/complete", "2")
        with pytest.raises(RendezvousError, match="the data that rank 0 stored is not from this version"):
            rendezvous.meet(Place("g", store, 1, 2), b"", "10.0.0.1", OPTIONS, LONG)


#: The values that rank 0 of a group stores in the first round and in a later round.
FIRST = json.dumps(
    {
        "farwrite": version("farwrite"),
        "size": 2,
        "policy": repr(OPTIONS.policy),
        "sites": None,
        "key": "no key",
        "rate_control": "Adaptive",
        "address": "10.0.0.2",
        "info": "aW5mbw==",
    }
).encode()
LATER = b'{"message": "aW5mbw=="}'


def damaged(random: Random, value: bytes) -> bytes:
    """Return a value with one to four changes, or random bytes."""
    if random.randrange(10) == 0:
        return random.randbytes(random.randrange(100))
    changed = bytearray(value)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(changed) + 1)
        end = start + random.randrange(8)
        part = random.choice(
            [b"", random.randbytes(1), value[random.randrange(len(value)) :][:20], b"null", b"[]", b"1e999"]
        )
        changed[start:end] = part
    return bytes(changed)


def test_any_value_of_the_store_is_read_or_refused() -> None:
    random = Random(1)
    rounds = (
        (FIRST, "farwrite/0/1/0", lambda place: rendezvous.meet(place, b"", "10.0.0.1", OPTIONS, LONG)),
        (LATER, "farwrite/0/1/round1/0", lambda place: rendezvous.exchange(place, 1, b"", LONG)),
    )
    for value, key, meet in rounds:
        values = [value, b"[" * 100_000, b'{"message": 5}', b'{"error": [[]]}']
        read, refused = 0, []
        for damage in values + [damaged(random, value) for _ in range(1000)]:
            store = HashStore()
            store.set("farwrite/0/attempt", "1")
            store.set("farwrite/0/1/complete", "2")
            store.set(key, damage)
            try:
                meet(Place("g", store, 1, 2, attempt="1"))
                read += 1
            except RendezvousError as error:
                refused.append(str(error))
        assert read > 0
        assert refused
        assert all("rank 0" in error for error in refused)


def test_addresses_that_others_cannot_reach() -> None:
    for said in both(HashStore(), addresses=("127.0.0.1", "10.0.0.2")):
        assert "rank 0 announces 127.0.0.1, which only its own machine can reach" in said


def test_the_local_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tcp = TCPStore("127.0.0.1", 0, 1, True)
    place = Place("g", PrefixStore("a", PrefixStore("b", tcp)), 0, 1)
    assert rendezvous.local_address(place, OPTIONS) == "127.0.0.1"
    own = Options(trusted_store=True, address="10.1.2.3")
    assert rendezvous.local_address(place, own) == "10.1.2.3"
    assert rendezvous.local_address(Place("g", HashStore(), 0, 1), OPTIONS) == "127.0.0.1"
    file = FileStore(str(tmp_path / "store"), 4)
    with pytest.raises(RendezvousError, match=r"a FileStore does not show .*: pass Options\(address="):
        rendezvous.local_address(Place("g", file, 0, 1), OPTIONS)
    # These variables say, as those of torchrun do, that all ranks are on this machine.
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert rendezvous.local_address(Place("g", file, 0, 4), OPTIONS) == "127.0.0.1"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(RendezvousError, match="a FileStore does not show"):
        rendezvous.local_address(Place("g", file, 0, 4), OPTIONS)


def test_messages_are_bound_to_job_group_and_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        Place("g", HashStore(), 0, 2),
        Place("h", HashStore(), 1, 2),
        Place("g", HashStore(), 1, 2, "1"),
    ]
    contexts = {place.context() for place in places}
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    contexts.add(places[0].context())
    monkeypatch.setenv("FARWRITE_TORCH_JOB", "b")
    contexts.add(places[0].context())
    assert len(contexts) == 5
    assert Place("g", HashStore(), 1, 2).context() == places[0].context()


def test_the_address_that_is_bound() -> None:
    assert rendezvous.bound_address("127.0.0.1") == "127.0.0.1"
    # No machine has this address, which is for documentation (RFC 5737).
    try:
        bound = rendezvous.bound_address("192.0.2.77")
    except OSError:
        pytest.skip("this machine has no route to other machines")
    assert bound != "192.0.2.77"
    assert rendezvous.bound_address(bound) == bound


class Absent:
    """A communicator that finds no path in its second round, which may be the last one."""

    packet_bytes = None

    def __init__(self, rank: int, is_last: bool) -> None:
        self.rank = rank
        self.is_last = is_last
        self.rounds = 0

    def meet(self, messages: list[bytes]) -> bytes | None:
        self.rounds += 1
        if self.rounds == 3 and self.rank == 1:
            raise ValueError("the path to rank 0: blocked")
        return None if self.rounds == 3 and self.is_last else b"round %d" % self.rounds


@pytest.mark.parametrize("is_last", [False, True])
def test_a_rank_without_a_path_ends_the_rendezvous_of_all(is_last: bool) -> None:
    store = HashStore()

    def join(rank: int) -> str:
        place = Place("g", store, rank, 2)
        with pytest.raises((RendezvousError, ValueError)) as caught:
            rendezvous.join(place, Absent(rank, is_last), "10.0.0.1", OPTIONS, LONG)  # type: ignore[arg-type]
        return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(join, range(2)))
    reason = "the path to rank 0: blocked"
    assert said == [f"rank 0 of group 'g': rank 1 cannot join: {reason}", reason]


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_rank_that_fails_before_it_joins_ends_the_waiting_of_the_other(
    failing: int, is_first: bool
) -> None:
    store = HashStore()
    # At its second start, the job finds what the first start has left in the store.
    for _ in range(2):

        def join(rank: int) -> str:
            if (rank == failing) != is_first:
                sleep(0.3)
            place = Place("g", store, rank, 2)
            if rank != failing:
                return message(
                    RendezvousError, lambda: rendezvous.meet(place, b"", "10.0.0.1", OPTIONS, LONG)
                )
            with pytest.raises(ValueError, match="no port is free"), rendezvous.refusing(place):
                raise ValueError("no port is free")
            return ""

        started = monotonic()
        with ThreadPoolExecutor(2) as threads:
            said = list(threads.map(join, range(2)))
        assert said[1 - failing].endswith(f"rank {failing} cannot join: no port is free")
        assert monotonic() - started < 9


def test_a_rank_that_is_killed_after_it_has_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signs_of_life, "EVERY_S", 0.1)
    monkeypatch.setattr(signs_of_life, "DEAD_AFTER_S", 4.0)
    store = HashStore()
    dead = "rank 1 has given no sign of life for 4 s: its process was killed, or its machine stopped"

    def join(rank: int) -> str:
        place = Place("g", store, rank, 4)
        # Rank 1 ends after its first signs of life. Rank 3 never joins.
        timeout = timedelta(seconds=1.5) if rank == 1 else LONG
        return message(RendezvousError, lambda: rendezvous.meet(place, b"", "10.0.0.1", OPTIONS, timeout))

    with ThreadPoolExecutor(3) as threads:
        said = list(threads.map(join, range(3)))
    assert said[0] == f"rank 0 of group 'g': {dead}"
    assert said[2] == f"rank 2 of group 'g': rank 0 cannot join: {dead}"


def test_a_reason_not_to_wait_ends_the_waiting() -> None:
    for rank in range(2):
        failures = iter([None, "rank 2 does not answer"])
        place = Place("g", HashStore(), rank, 2, watch=lambda failures=failures: next(failures))
        with pytest.raises(RendezvousError, match="rank . of group 'g': rank 2 does not answer"):
            rendezvous.meet(place, b"", "10.0.0.1", OPTIONS, LONG)


@pytest.mark.parametrize(("number", "last"), [(1, "set"), (2, "delete_key")])
@pytest.mark.parametrize("size", [2, 64])
def test_a_round_takes_few_operations_of_the_store_in_groups_of_all_sizes(
    size: int, number: int, last: str
) -> None:
    store = Counted()
    place = Place("g", store, size - 1, size)
    for key in rendezvous._keys(place, number)[:-1]:
        store.inner.set(key, json.dumps({"message": ""}))
    assert rendezvous.exchange(place, number, b"last", SHORT) == [*[b""] * (size - 1), b"last"]
    assert store.operations == ["set", "check", "multi_get", last]


def test_a_rank_that_waits_for_a_late_one_asks_for_its_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_CHECK_EVERY", timedelta(0))
    size, late, queries = 64, 40, 100
    store = HashStore()
    asked: list[list[str]] = []

    class Noted:
        def check(self, keys: list[str]) -> bool:
            if keys[0] in round_keys:
                asked.append(keys)
            return store.check(keys)

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    def watch() -> None:
        if len(asked) >= queries:
            store.set(round_keys[late], said)

    place = Place("g", Noted(), 0, size, watch=watch)
    round_keys, said = rendezvous._keys(place, 1), json.dumps({"message": ""})
    for rank in set(range(size)) - {late}:
        store.set(round_keys[rank], said)
    assert rendezvous.exchange(place, 1, b"first", LONG) == [b"first", *[b""] * (size - 1)]
    assert asked[0] == round_keys
    assert asked[queries - 1] == [round_keys[late]]
    assert asked[-1] == round_keys[late + 1 :]
