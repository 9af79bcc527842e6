"""Environment variables set options, for launchers and trainers that pass no options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, message
from torch.distributed import HashStore

from farwrite.torch import Adaptive, Bounded, CollectiveError, Exact, Options, trust
from farwrite.torch.rendezvous import Place


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARWRITE_TORCH_TRUSTED_STORE", "1")


def test_each_variable_is_the_default_of_its_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary, text = tmp_path / "key", tmp_path / "text"
    binary.write_bytes(bytes(range(32)))
    text.write_text(bytes(range(32)).hex() + "\n")
    monkeypatch.setenv("FARWRITE_TORCH_SCHEME", "ec-mds:32,8")
    monkeypatch.setenv("FARWRITE_TORCH_MAX_BPS", "1000000000")
    monkeypatch.setenv("FARWRITE_TORCH_ADDRESS", "10.0.0.7")
    monkeypatch.setenv("FARWRITE_TORCH_PORTS", "5000-5100")
    monkeypatch.setenv("FARWRITE_TORCH_DEAD_AFTER_S", "30")
    monkeypatch.setenv("FARWRITE_TORCH_SITES", "0,0,1,1")
    monkeypatch.setenv("FARWRITE_TORCH_BUFFER_GROWTH_BYTES", "1000000")
    for file in (binary, text):
        monkeypatch.setenv("FARWRITE_TORCH_KEY_FILE", str(file))
        assert Options() == Options(
            trusted_store=True,
            key=bytes(range(32)),
            policy=Exact("ec-mds:32,8"),
            rate_control=Adaptive(10**9),
            address="10.0.0.7",
            ports=(5000, 5100),
            dead_after_s=30.0,
            sites=(0, 0, 1, 1),
            buffer_growth_bytes=1_000_000,
        )
    monkeypatch.setenv("FARWRITE_TORCH_BOUNDED", "0.02")
    assert Options().policy == Bounded(0.02, exact=Exact("ec-mds:32,8"))


def test_a_key_comes_from_a_file_a_descriptor_or_a_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = bytes(range(32))
    file = tmp_path / "key"
    file.write_bytes(key)
    assert Options(key=file).key == key
    with file.open("rb") as opened:
        assert Options(key=opened.fileno()).key == key
        assert not opened.closed
    monkeypatch.setenv("FARWRITE_TORCH_KEY", key.hex())
    assert Options().key == key
    monkeypatch.setenv("FARWRITE_TORCH_KEY_FILE", str(file))
    assert "FARWRITE_TORCH_KEY: set only one of the two" in message(ValueError, Options)


def test_a_group_on_a_network_needs_a_key_or_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARWRITE_TORCH_TRUSTED_STORE")
    monkeypatch.setattr(trust, "_warned", False)
    place = Place("g", HashStore(), 0, 2)
    # pytest turns a warning into an error, so these calls do not warn.
    trust.check_trust(place, Options(), "127.0.0.1")
    trust.check_trust(place, Options(key=bytes(32)), "10.0.0.1")
    said = message(ValueError, lambda: trust.check_trust(place, Options(), "10.0.0.1"))
    assert said.startswith(
        "rank 0 of group 'g': the group has no key, and the address 10.0.0.1 of this rank is not a loopback "
        "address: "
    )
    assert "set FARWRITE_TORCH_KEY_FILE to a file" in said
    assert "or FARWRITE_TORCH_TRUSTED_STORE=1 if" in said
    trusted = Options(trusted_store=True)
    trust.check_trust(replace(place, rank=1), trusted, "10.0.0.1")
    with pytest.warns(RuntimeWarning, match="anyone on the network between the ranks can read"):
        trust.check_trust(place, trusted, "10.0.0.1")
    trust.check_trust(place, trusted, "10.0.0.1")


def test_an_argument_goes_before_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARWRITE_TORCH_BOUNDED", "0.02")
    monkeypatch.setenv("FARWRITE_TORCH_SCHEME", "sr-rto")
    assert Options(policy=Exact("gbn")).policy == Exact("gbn")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TRUSTED_STORE", "yes", "FARWRITE_TORCH_TRUSTED_STORE=yes: must be 1 or 0"),
        ("KEY_FILE", "/nowhere", "FARWRITE_TORCH_KEY_FILE=/nowhere: No such file or directory"),
        ("KEY_FILE", "/dev/null", "must have 32 bytes, or 64 hexadecimal digits"),
        ("KEY", "much", "FARWRITE_TORCH_KEY: must have 32 bytes, or 64 hexadecimal digits"),
        ("SITES", "0,b", "FARWRITE_TORCH_SITES=0,b: must be the number of a site"),
        ("BUFFER_GROWTH_BYTES", "1G", "FARWRITE_TORCH_BUFFER_GROWTH_BYTES=1G: must be a number of bytes"),
        ("BOUNDED", "much", "FARWRITE_TORCH_BOUNDED=much: must be a share"),
        ("BOUNDED", "2", "FARWRITE_TORCH_BOUNDED=2: must be a share of bytes from 1e-6 to below 1"),
        ("MAX_BPS", "1Gbit", "FARWRITE_TORCH_MAX_BPS=1Gbit: must be a number of bits per second"),
        ("MAX_BPS", "0", "FARWRITE_TORCH_MAX_BPS=0: must be a number of bits per second from 1 to"),
        ("ADDRESS", "here", "FARWRITE_TORCH_ADDRESS=here: must be an IPv4 or IPv6 address"),
        ("PORTS", "5000", "FARWRITE_TORCH_PORTS=5000: must be two ports"),
        ("PORTS", "9-8", "FARWRITE_TORCH_PORTS=9-8: must be two ports from 1 to 65535, the lower first"),
        ("DEAD_AFTER_S", "5s", "FARWRITE_TORCH_DEAD_AFTER_S=5s: must be a number of seconds"),
        ("DEAD_AFTER_S", "0", "FARWRITE_TORCH_DEAD_AFTER_S=0: must be a number of seconds from 0.1 to 86400"),
        ("SHEME", "gbn", "FARWRITE_TORCH_SHEME: no such variable"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str) -> None:
    monkeypatch.setenv(f"FARWRITE_TORCH_{name}", value)
    assert said in message(ValueError, Options)


def test_an_argument_is_named_if_its_variable_is_bad_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARWRITE_TORCH_DEAD_AFTER_S", "5s")
    assert "dead_after_s = -1.0: must be" in message(ValueError, lambda: Options(dead_after_s=-1.0))


def test_a_range_of_ports(two: Ranks) -> None:
    two.run(_ports)


def _ports() -> None:
    # Each rank takes one port of the range. The ports are below those that the operating system chooses.
    group = dist.new_group(pg_options=Options(trusted_store=True, ports=(24011, 24012)))
    values = torch.ones(4)
    dist.all_reduce(values, group=group)
    assert values.tolist() == [2.0] * 4
    said = message(
        CollectiveError, lambda: dist.new_group(pg_options=Options(trusted_store=True, ports=(24011, 24012)))
    )
    assert "other programs use all ports from 24011 to 24012 of 127.0.0.1" in said
    dist.barrier()
    dist.destroy_process_group(group)
