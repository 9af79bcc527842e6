"""Invalid input causes a clear error that names the argument and its unit."""

import re
from typing import Any

import numpy as np
import pytest

from farwrite import model
from farwrite.plan import plan

GOOD: dict[str, Any] = {
    "scheme": "sr-rto",
    "message_bytes": 1e6,
    "bandwidth_bps": 1e9,
    "rtt_s": 1e-3,
    "loss_chunk": 0.01,
    "chunk_bytes": 4096,
    "rto_rtts": 3,
    "beta": 0.5,
    "variant": "serial",
    "encode_bps": 1e9,
    "decode_bps": 1e9,
}
UNITS = {
    "message_bytes": "bytes",
    "bandwidth_bps": "bit/s",
    "rtt_s": "s",
    "loss_chunk": "as a probability",
    "chunk_bytes": "bytes",
    "rto_rtts": "round trips",
    "beta": "round trips",
    "encode_bps": "bit/s",
    "decode_bps": "bit/s",
}
ZERO_WILL_DO = {"loss_chunk", "beta"}
NONE_WILL_DO = {"rto_rtts", "encode_bps", "decode_bps"}


def call(**changed: object) -> model.CompletionTime:
    return model.completion_time(**{**GOOD, **changed})


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf, -np.inf])
def test_numbers_out_of_range(name: str, value: float) -> None:
    if value == 0 and name in ZERO_WILL_DO:
        assert call(**{name: value}).mean > 0
        return
    with pytest.raises(ValueError, match=rf"^{name} = \S+ {UNITS[name]}: must be "):
        call(**{name: value})


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize(
    "value", ["1", b"1", ["1"], True, 1j, object(), {"a": 1}, np.datetime64("2025-01-01"), [None]]
)
def test_what_is_no_number(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=rf"^{name} \({UNITS[name]}\) must be a number"):
        call(**{name: value})


@pytest.mark.parametrize("name", UNITS)
def test_none(name: str) -> None:
    if name in NONE_WILL_DO:
        assert call(**{name: None}).mean > 0
        return
    with pytest.raises(TypeError, match=rf"^{name} \({UNITS[name]}\) must be a number"):
        call(**{name: None})


def test_where_in_an_array() -> None:
    with pytest.raises(ValueError, match=r"^rtt_s = NaN s: .*at index \(1, 2\)"):
        call(rtt_s=[[1, 1, 1], [1, 1, np.nan]])


def test_shapes_that_do_not_match() -> None:
    with pytest.raises(ValueError, match=r"rtt_s \(s\) has shape \(3,\)") as caught:
        call(message_bytes=[1, 2], rtt_s=[1, 2, 3])
    assert "message_bytes (bytes) has shape (2,)" in str(caught.value)
    with pytest.raises(ValueError, match=r"^rtt_s \(s\) has rows of different lengths"):
        call(rtt_s=[[1], [1, 2]])
    with pytest.raises(ValueError, match=r"q \(as a probability\) has shape \(3,\)"):
        call(rtt_s=[1, 2]).quantile([0.1, 0.2, 0.3])


def test_masked_arrays() -> None:
    with pytest.raises(TypeError, match=r"^rtt_s \(s\) must not be a masked array"):
        call(rtt_s=np.ma.masked_array([1.0, 2.0], mask=[False, True]))


def test_words() -> None:
    with pytest.raises(ValueError, match=r'^scheme = "sr": must be sr-rto, sr-nack, gbn'):
        call(scheme="sr")
    with pytest.raises(ValueError, match=r"^m = 8 chunks: must be at most k"):
        call(scheme="ec-xor:4,8")
    with pytest.raises(TypeError, match="^scheme must be a string"):
        call(scheme=["sr-rto", None])
    with pytest.raises(ValueError, match=r'^variant = "letter": must be paper, serial or protocol'):
        call(variant="letter")
    with pytest.raises(TypeError, match="^scheme must be one string"):
        model.parity_overhead(["gbn"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^quantiles .* must be a list of numbers, not 0.5"):
        model.sweep({"scheme": "gbn"}, 0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^variant must be one string"):
        call(variant=["paper"])


def test_coding_speed_needs_the_variant_that_has_it() -> None:
    with pytest.raises(ValueError, match="serial or protocol where coding takes time"):
        call(variant="paper")


def test_methods() -> None:
    time = call()
    for q in [-0.1, 1.0, np.nan]:
        with pytest.raises(ValueError, match=r"^q = \S+ as a probability: must be"):
            time.quantile(q)
    with pytest.raises(ValueError, match=r"^t_s = NaN s: must be"):
        time.cdf(np.nan)
    with pytest.raises(TypeError, match=r"^t_s \(s\) must be a number"):
        time.survival("1 ms")


def test_samples() -> None:
    time = call()
    with pytest.raises(ValueError, match=r"^n = -1 draws a point: must be from 0"):
        time.sample(-1, 0)
    with pytest.raises(ValueError, match=r"^n = 10{12} draws a point: must be from 0"):
        time.sample(10**12, 0)
    with pytest.raises(TypeError, match=r"^seed \(as a seed\) must be one whole number"):
        time.sample(1, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^seed = -1 as a seed: must be from 0"):
        time.sample(1, -1)


def test_bursts() -> None:
    with pytest.raises(ValueError, match=r"^p_bad_to_good = 0 as a probability: must be above 0"):
        call(loss_chunk=model.Markov(0.1, 0.0))
    with pytest.raises(TypeError, match=r"^packets_per_chunk \(packets\) must be a whole number"):
        call(loss_chunk=model.Markov(0.1, 0.1, packets_per_chunk=1.5))


def test_collectives() -> None:
    arguments = ("sr-rto", 1e6, 1e9, 1e-3, 0.01)
    with pytest.raises(ValueError, match=r"^sites = 1 sites: must be 2 to 256"):
        model.collective_time("ring", 1, *arguments)
    with pytest.raises(TypeError, match=r"^sites \(sites\) must be a whole number"):
        model.collective_time("ring", 2.5, *arguments)
    with pytest.raises(ValueError, match=r'^collective = "star": must be ring'):
        model.collective_time("star", 2, *arguments)
    with pytest.raises(TypeError, match="^collective must be one string"):
        model.collective_time(["ring"], 2, *arguments)  # type: ignore[arg-type]


def test_probabilities() -> None:
    with pytest.raises(ValueError, match=r"^loss_packet = 2 as a probability: must be 0 to 1"):
        model.chunk_loss(2, 1)
    with pytest.raises(ValueError, match=r"^packets = 0 packets: must be at least 1"):
        model.chunk_loss(0.1, 0)
    with pytest.raises(ValueError, match=r'^scheme = "gbn": must be ec-mds:K,M'):
        model.group_failure("gbn", 0.1)
    with pytest.raises(ValueError, match=r"^packets = 4294967296 packets"):
        model.chunk_loss(0.1, 2**32)


def test_messages_are_for_people() -> None:
    with pytest.raises(ValueError, match="rtt_s") as caught:
        call(rtt_s=-0.025)
    assert re.fullmatch(r"rtt_s = -0\.025 s: must be finite and above zero", str(caught.value))


def test_numbers_too_large_for_a_float() -> None:
    with pytest.raises(ValueError, match=r"^message_bytes \(bytes\) has a number that is too large"):
        call(message_bytes=10**400)


def test_packets_of_a_chunk_are_bounded() -> None:
    with pytest.raises(ValueError, match=r"^packets_per_chunk = 4294967295 packets: must be 1 to 2\^20"):
        call(loss_chunk=model.Markov(1e-4, 0.1, packets_per_chunk=2**32 - 1))


def test_a_collective_names_the_buffer_that_was_given() -> None:
    with pytest.raises(ValueError, match=r"^message_bytes = -8 bytes"):
        model.collective_time("ring", 4, "sr-rto", -8, 1e9, 1e-3, 0.01)


@pytest.mark.parametrize("name", ["xor_bps", "mds_bps"])
def test_a_plan_names_the_rate_that_was_given(name: str) -> None:
    rate: dict[str, Any] = {name: -1}
    for candidates in (["sr-nack"], ["ec-xor:8,1"]):
        with pytest.raises(ValueError, match=rf"^{name} = -1 bit/s"):
            plan(1e6, 1e9, 1e-3, 0.01, candidates=candidates, **rate)
