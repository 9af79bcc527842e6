"""Compares farwrite.model with itself, with the paper's formulas, and with simple cases."""

import math
from typing import Any

import numpy as np
import pytest

from farwrite import model

LONG_HAUL = (128 * 2**20, 400e9, 25e-3)


def test_lossless_is_injection_and_round_trip() -> None:
    time = model.completion_time("sr-rto", *LONG_HAUL, 0.0)
    expected = 128 * 2**20 * 8 / 400e9 + 25e-3
    assert time.shape == ()
    assert time.mean == pytest.approx(expected, rel=1e-12)
    assert time.lossless_s == pytest.approx(expected, rel=1e-12)
    assert time.quantile(0.999) == pytest.approx(expected, rel=1e-12)
    assert time.mean_bounds == (time.mean, time.mean)


def test_selective_repeat_is_the_papers_formula() -> None:
    """Compute E[max_i X_i] as the sum of the survival function over a fine grid of times."""
    chunks, slot, rtt, loss = 50, 4096 * 8 / 1e9, 2e-3, 0.05
    i = np.arange(1, chunks + 1)[:, np.newaxis]
    t = np.linspace(0, 0.2, 100_001)
    sent = np.maximum(np.floor((t - rtt - i * slot) / (3 * rtt + slot)) + 1, 0)
    survival = 1 - np.prod(1 - loss**sent, axis=0)
    expected = np.trapezoid(survival, t)
    time = model.completion_time("sr-rto", chunks * 4096, 1e9, rtt, loss)
    assert time.mean == pytest.approx(expected, rel=1e-3)


def test_central_call_has_the_promised_defaults() -> None:
    for scheme, rto in [("sr-rto", 3), ("sr-nack", 1), ("gbn", 1), ("ec-mds:32,8", 3)]:
        by_default = model.completion_time(scheme, *LONG_HAUL, 1e-4)
        spelt = model.completion_time(scheme, *LONG_HAUL, 1e-4, 4096, rto, 0.5, "paper")
        assert by_default.mean == spelt.mean
        assert by_default.quantile(0.999) == spelt.quantile(0.999)


def test_arguments_broadcast_and_agree_with_single_calls() -> None:
    schemes = np.array(["sr-rto", "ec-mds:32,8"])[:, np.newaxis]
    losses = [1e-6, 1e-4, 1e-2]
    time = model.completion_time(schemes, *LONG_HAUL, losses)
    assert time.shape == (2, 3)
    assert time.mean.shape == time.quantile(0.5).shape == (2, 3)
    levels = np.array([0.5, 0.999])[:, np.newaxis, np.newaxis]
    assert time.quantile(levels).shape == (2, 2, 3)
    assert time.sample(4, 5).shape == (2, 3, 4)
    for row, scheme in enumerate(["sr-rto", "ec-mds:32,8"]):
        for column, loss in enumerate(losses):
            single = model.completion_time(scheme, *LONG_HAUL, loss)
            assert time.mean[row, column] == single.mean
            assert time.quantile(levels)[1, row, column] == single.quantile(0.999)
            seed = 5 + 3 * row + column
            assert np.array_equal(time.sample(4, 5)[row, column], single.sample(4, seed))
    single = model.completion_time("gbn", *LONG_HAUL, 1e-3)
    assert single.cdf([0.03, 0.3, 3.0]).shape == (3,)
    empty = model.completion_time("gbn", np.zeros((0, 4)), 1e9, 1e-3, 0.1)
    assert empty.mean.shape == (0, 4)
    assert empty.sample(2, 0).shape == (0, 4, 2)


def test_every_kind_of_array_will_do() -> None:
    expected = model.completion_time("sr-rto", 4096.0, 1e9, 1e-3, 0.1).mean
    sizes: list[Any] = [np.int32(4096), np.float32(4096), [4096], (4096,), np.array([[4096]])]
    for size in sizes:
        mean = model.completion_time("sr-rto", size, 1e9, 1e-3, 0.1).mean
        assert np.all(mean == expected)
    huge = model.completion_time("sr-rto", 2**70, 1e9, 1e3, 0.1, chunk_bytes=2**60)
    assert math.isfinite(huge.mean)
    backwards = np.array([4096, 8192])[::-1]
    assert model.completion_time("sr-rto", backwards, 1e9, 1e-3, 0.1).mean[1] == expected


@pytest.mark.parametrize("scheme", ["sr-rto", "sr-nack", "gbn", "ec-xor:4,2", "ec-mds:8,2"])
@pytest.mark.parametrize("variant", ["paper", "serial"])
def test_samples_agree_with_the_distribution(scheme: str, variant: str) -> None:
    time = model.completion_time(scheme, 200 * 4096, 1e9, 1e-3, 0.03, variant=variant)
    draws = time.sample(20_000, seed=11)
    error = draws.std() / math.sqrt(draws.size)
    assert abs(draws.mean() - time.mean) < 4 * error
    assert np.mean(draws <= time.quantile(0.9)) >= 0.9 - 4 * math.sqrt(0.09 / draws.size)
    assert np.array_equal(draws, time.sample(20_000, seed=11))
    assert not np.array_equal(draws, time.sample(20_000, seed=12))


def test_quantile_cdf_and_survival_are_one_distribution() -> None:
    time = model.completion_time("ec-mds:32,8", *LONG_HAUL, 0.05)
    levels = np.array([0.1, 0.5, 0.99, 0.999999])
    assert np.all(time.cdf(time.quantile(levels)) >= levels)
    assert time.cdf(0.05) + time.survival(0.05) == pytest.approx(1, abs=1e-15)
    low, high = time.quantile_bounds(levels)
    assert np.all(low <= time.quantile(levels))
    assert np.all(time.quantile(levels) <= high)
    below, above = time.cdf_bounds(0.05)
    assert below <= time.cdf(0.05) <= above


def test_bursts() -> None:
    bursts = model.Markov(p_good_to_bad=1e-3, p_bad_to_good=[0.1, 0.5])
    time = model.completion_time("ec-mds:32,8", 1e6, 1e9, 1e-3, bursts)
    assert time.shape == (2,)
    assert time.mean[0] > time.mean[1]
    even = model.Markov(p_good_to_bad=0.5, p_bad_to_good=0.5, loss_bad=0.01, loss_good=0.01)
    same = model.completion_time("sr-rto", 1e6, 1e9, 1e-3, even)
    iid = model.completion_time("sr-rto", 1e6, 1e9, 1e-3, 0.01)
    assert same.mean == pytest.approx(iid.mean, rel=1e-3)


def test_bursts_of_time_depend_on_the_rate() -> None:
    # A burst of 1 ms has about 100 packets at intervals of 10 us, and one packet at intervals of 100 ms.
    bursts = model.Markov.in_bursts_of_time(0.01, 1e-3, [1e-5, 0.1])
    chance = np.asarray(bursts.p_bad_to_good)
    assert chance == pytest.approx([1e-2, 0.99], rel=0.01)
    assert np.asarray(bursts.p_good_to_bad) == pytest.approx(chance / 99)
    with pytest.raises(ValueError, match="^burst_s = 0 seconds"):
        model.Markov.in_bursts_of_time(0.01, 0.0, 1e-5)
    for loss in (0, 0.995):
        with pytest.raises(ValueError, match=f"^loss_packet = {loss} "):
            model.Markov.in_bursts_of_time(loss, 1e-3, 1e-5)


def test_coding_takes_time() -> None:
    def mean(encode_bps: float | None = None) -> float:
        time = model.completion_time(
            "ec-mds:8,2", 1e7, 10e9, 1e-3, 0.0, variant="serial", encode_bps=encode_bps
        )
        return float(time.mean)

    assert mean(encode_bps=1e9) > 5 * mean()
    assert mean(encode_bps=1e12) == pytest.approx(mean(), rel=1e-2)


def test_collectives() -> None:
    sites = [2, 4, 8]
    time = model.collective_time("ring", sites, "sr-rto", *LONG_HAUL, 1e-4)
    lossless = model.collective_time("ring", sites, "sr-rto", *LONG_HAUL, 0.0)
    stages = 2 * np.array(sites) - 2
    transfer = 128 * 2**20 / np.array(sites) * 8 / 400e9 + 25e-3
    assert lossless.path.mean == pytest.approx(stages * transfer, rel=1e-9)
    assert np.all(time.path.mean < time.barrier.mean)
    draws = time.sample(2000, 3)
    assert draws.shape == (3, 2000)
    assert np.all(time.path.mean <= draws.mean(axis=-1) * 1.02)
    assert np.all(draws.mean(axis=-1) <= time.barrier.mean * 1.02)
    low, high = time.path.quantile_bounds(0.99)
    assert np.all((low <= time.path.quantile(0.99)) & (time.path.quantile(0.99) <= high))


def test_probabilities() -> None:
    assert model.chunk_loss(1e-5, [1, 16]) == pytest.approx([1e-5, 1 - (1 - 1e-5) ** 16])
    assert model.group_failure("ec-mds:1,1", 0.1) == pytest.approx(0.01)
    assert model.group_failure(["ec-xor:2,2", "ec-mds:2,2"], 0.1) == pytest.approx(
        [1 - 0.99**2, 4 * 0.1**3 * 0.9 + 0.1**4]
    )
    assert model.parity_overhead("ec-mds:32,8") == 0.25
    assert model.parity_overhead("gbn") == 0
