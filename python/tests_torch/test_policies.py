"""Schemes that the planner chooses, rate control, and the rules for timeouts."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

import farwrite.torch
from farwrite.torch import Adaptive, Bounded, Dcqcn, Eqds, Exact, Fixed, Options, RateControl, Swift

VALUES = 100_000
GBIT = 10**9


def _sums(group: dist.ProcessGroup, count: int) -> list[farwrite.torch.Report]:
    """Add ones on all ranks, check the sums where nothing is missing, and return the reports."""
    reports = []
    for _ in range(count):
        tensor = torch.ones(VALUES)
        dist.all_reduce(tensor, group=group)
        report = farwrite.torch.last_report(group)
        assert report is not None
        complete = (tensor == dist.get_world_size()).sum().item()
        assert report.missing_bytes == 4 * (VALUES - complete)
        reports.append(report)
    return reports


def test_the_planner_chooses_the_scheme_of_exact_operations(two: Ranks) -> None:
    two.run(_auto)


def _auto() -> None:
    group = dist.new_group(pg_options=Options(trusted_store=True, policy=Exact("auto")))
    # Loopback loses nothing.
    assert {report.exact_schemes for report in _sums(group, 3)} == {("sr-nack",)}
    dist.destroy_process_group(group)
    assert Exact("auto", expected_loss=0) == Exact("auto", expected_loss=0.0)
    expecting = Options(trusted_store=True, policy=Exact("auto", expected_loss=0.3))
    group = dist.new_group(pg_options=expecting)
    # The first operation begins before anything is measured.
    first, *_ = _sums(group, 1)
    assert any(scheme.startswith("ec-") for scheme in first.exact_schemes), first.exact_schemes
    dist.destroy_process_group(group)


@pytest.mark.parametrize(
    "rate_control", [Adaptive(GBIT), Fixed(GBIT), Dcqcn(GBIT), Swift(GBIT, hops=3), Eqds(GBIT)]
)
def test_rate_control(two: Ranks, rate_control: RateControl) -> None:
    """Check that each controller carries sums, and that a rate of the options is a limit."""
    for seconds in two.run(_rate_control, rate_control):
        # A rank may send a burst of up to 256 KiB before the limit applies, a sixth of its bytes.
        assert seconds > 0.5 * 4 * VALUES * 4 * 8 / GBIT


def _rate_control(rate_control: RateControl) -> float:
    options = Options(trusted_store=True, rate_control=rate_control)
    group = dist.new_group(pg_options=options)
    began = time.monotonic()
    _sums(group, 4)
    seconds = time.monotonic() - began
    dist.destroy_process_group(group)
    return seconds


@pytest.mark.parametrize("timeouts", ["loss-target", "optinic", "celeris"])
def test_timeouts(two: Ranks, timeouts: str) -> None:
    two.run(_timeouts, timeouts)


def _timeouts(timeouts: str) -> None:
    policy = Bounded(0.02, timeouts=timeouts, timeout_range_s=(1e-3, 0.25), min_bytes=4096)
    group = dist.new_group(pg_options=Options(trusted_store=True, policy=policy))
    reports = _sums(group, 6)
    assert all(report.scheme is not None for report in reports)
    # The first one is the warm-up.
    assert all(1e-3 <= report.timeout_s <= 0.25 for report in reports[1:]), reports
    dist.destroy_process_group(group)
