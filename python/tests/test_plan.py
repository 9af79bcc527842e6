"""Compares farwrite.plan with farwrite.model."""

import pytest

from farwrite import model
from farwrite.plan import plan

LONG_HAUL = (128 * 2**20, 400e9, 25e-3)


def test_the_best_is_the_best_that_the_model_knows() -> None:
    found = plan(*LONG_HAUL, 1e-4, objective="p99.9", close=0)
    assert found.best.objective_s == min(at.objective_s for at in found.alternatives)
    assert found.best.objective_s == found.best.p999_s
    assert found.left_out == {}
    by_name = {at.scheme: at for at in found.alternatives}
    time = model.completion_time("sr-nack", *LONG_HAUL, 1e-4, variant="protocol")
    assert by_name["sr-nack"].mean_s == time.mean
    assert by_name["sr-nack"].p999_s == time.quantile(0.999)
    assert by_name["ec-mds:32,8"].parity_overhead == 0.25
    assert "ec-mds:4,2" not in by_name  # its parity is half of its data, more than the limit
    assert repr(found).startswith(f"<Plan: {found.best.scheme}")


def test_budgets() -> None:
    without = plan(*LONG_HAUL, 1e-4, cores=0)
    assert {at.scheme for at in without.alternatives} == {"sr-nack", "sr-rto", "gbn"}
    assert without.left_out == {}
    asked = plan(*LONG_HAUL, 1e-4, cores=0, candidates=["gbn", "ec-mds:32,8"])
    assert asked.left_out == {"ec-mds:32,8": "cores = 0: must be above zero for a scheme with parity"}
    few = plan(*LONG_HAUL, 1e-4, candidates=["sr-rto", "gbn"])
    assert few.best.scheme == "sr-rto"
    # Without a number of cores, one: too slow for 8 parities at 400 Gbit/s.
    usual, one, eight = (
        plan(*LONG_HAUL, 1e-4, candidates=["ec-mds:32,8"], cores=cores).best.mean_s for cores in [None, 1, 8]
    )
    assert usual == one > eight


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match=r"^candidates = none: must have one"):
        plan(*LONG_HAUL, 1e-4, candidates=[])
    for objective in ("p100", "p99.99999999999999"):
        with pytest.raises(ValueError, match=rf'^objective = "{objective}": must be mean, or p and percent'):
            plan(*LONG_HAUL, 1e-4, objective=objective)


def test_sensitivity_finds_the_border() -> None:
    found = plan(*LONG_HAUL, 1e-6, candidates=["sr-nack", "ec-mds:32,8"], cores=8)
    loss = next(of for of in found.sensitivity() if of.name == "loss_chunk")
    border = loss.above or loss.below
    assert border is not None
    there = plan(*LONG_HAUL, border.value, candidates=["sr-nack", "ec-mds:32,8"], cores=8)
    assert there.alternatives[0].scheme == border.scheme
    assert [stake.cost >= 1 for stake in loss.stakes] == [True] * len(loss.stakes)


def test_bursts() -> None:
    # Bursts of 20 chunks, with a loss of 1e-2: interleaving spreads them over 32 groups.
    bursts = model.Markov(0.01 / 20 / 0.99, 1 / 20)
    found = plan(64 * 2**20, 100e9, 30e-3, bursts, candidates=["sr-nack", "gbn", "ec-mds:32,8"], cores=8)
    assert found.best.scheme == "ec-mds:32,8"
    assert found.best.draws is not None
    assert found.best.interval_s is not None
    low_s, high_s = found.best.interval_s
    assert high_s is not None
    assert low_s < found.best.mean_s < high_s < 0.04
    exact = {at.scheme for at in found.alternatives if at.draws is None}
    assert exact == {"gbn"}
    assert plan(*LONG_HAUL, 1e-4).best.interval_s is None


def test_what_cannot_be_used_has_a_reason() -> None:
    found = plan(*LONG_HAUL, 1e-4, candidates=["sr-nack", "ec-mds:200,55"])
    assert "must be at most the parity budget" in found.left_out["ec-mds:200,55"]


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"^rtt_s = -1 s: must be"):
        plan(1e6, 1e9, -1, 0.1)
    with pytest.raises(TypeError, match=r"^rtt_s \(s\) must be one number, not an array"):
        plan(1e6, 1e9, [1, 2], 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'^objective = "median": must be mean, or p'):
        plan(1e6, 1e9, 1, 0.1, objective="median")
    with pytest.raises(ValueError, match=r'^candidates: scheme = "x": must be sr-rto'):
        plan(1e6, 1e9, 1, 0.1, candidates=["x"])
    with pytest.raises(ValueError, match=r"^cores = NaN cores: must be"):
        plan(1e6, 1e9, 1, 0.1, cores=float("nan"))
