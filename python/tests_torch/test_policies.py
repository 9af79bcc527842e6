"""Schemes that the planner chooses, rate control, and the rules for timeouts."""

from __future__ import annotations

import time
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

import farwrite.torch
from farwrite.torch import (
    Adaptive,
    Bounded,
    Dcqcn,
    Eqds,
    Exact,
    Fixed,
    Options,
    RateControl,
    Swift,
    reports,
)

VALUES = 100_000
GBIT = 10**9


def _sums(group: dist.ProcessGroup, count: int) -> list[farwrite.torch.Report]:
    """Add ones on all ranks, check the sums without missing contributions, and return the reports."""
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
    # The loopback interface loses no packets.
    assert {report.exact_schemes for report in _sums(group, 3)} == {("sr-nack",)}
    dist.destroy_process_group(group)
    assert Exact("auto", expected_loss=0) == Exact("auto", expected_loss=0.0)
    expecting = Options(trusted_store=True, policy=Exact("auto", expected_loss=0.3))
    schemes = set()
    # The first operation of a group begins before the ranks have measured the network, on an idle machine.
    for _ in range(8):
        group = dist.new_group(pg_options=expecting)
        first, *_ = _sums(group, 1)
        schemes.update(first.exact_schemes)
        dist.destroy_process_group(group)
    assert any(scheme.startswith("ec-") for scheme in schemes), schemes


@pytest.mark.parametrize(
    "rate_control", [Adaptive(GBIT), Fixed(GBIT), Dcqcn(GBIT), Swift(GBIT, hops=3), Eqds(GBIT)]
)
def test_rate_control(two: Ranks, rate_control: RateControl) -> None:
    """Check that sums are right with each rate control, and that the rate of the options is a limit."""
    for seconds in two.run(_rate_control, rate_control):
        # Before the limit applies, a rank may send a burst of up to 256 KiB, which is a sixth of its bytes.
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
    # The first operation is the warm-up.
    assert all(1e-3 <= report.timeout_s <= 0.25 for report in reports[1:]), reports
    dist.destroy_process_group(group)


def test_reports_say_what_an_operation_waited_for(two: Ranks) -> None:
    two.run(_waited)


def _waited() -> None:
    group, other = dist.new_group(), 1 - dist.get_rank()
    # The step begins when both ranks have made the group.
    dist.barrier(group=group)
    farwrite.torch.step_report(group)
    tensor = torch.ones(VALUES)
    dist.barrier(group=group)
    for number in range(3):
        if number == 2 and dist.get_rank() == 1:
            time.sleep(2)
        dist.all_reduce(tensor, group=group)
    report = farwrite.torch.last_report(group)
    assert report is not None
    assert report.waited_for == other
    (arrival,), (peer,) = report.arrivals, report.peers
    assert 0 <= arrival.first_s <= arrival.last_s <= report.elapsed_s
    assert peer.rank == other
    assert peer.loss in (None, 0.0)
    assert peer.rtt_s > 0
    assert peer.rate_bps > 10**6
    step = farwrite.torch.step_report(group)
    assert (step.operations, step.cut, step.result_bytes) == (4, 0, 3 * tensor.nbytes)
    assert step.slowest is not None
    if dist.get_rank() == 0:
        # The other rank started late.
        assert arrival.first_s > 0.2
        assert step.waited_s > 0.2
        assert step.slowest == report
    assert farwrite.torch.step_report(group).operations == 0
    dist.destroy_process_group(group)


def test_a_bounded_group_that_is_slower_than_an_exact_one_says_so_once() -> None:
    totals = reports.Totals("rank 0 of group 'g'", 2)
    # 4 MiB at 1 Gbit/s and 40 ms: an exact operation takes 82 ms.
    fast, slow = _ended(0.09), _ended(0.36)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for ended in [fast] * 40 + [slow] * 40:
            totals.add("all_reduce", ended)
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "rank 0 of group 'g': a bounded all_reduce of 4194304 bytes takes at least 360 ms. An exact one with "
        "parity would take about 82 ms on this network (40 ms round trip, 1000 Mbit/s to rank 1): try "
        "policy=Exact('auto')"
    )


def test_the_report_of_a_step_has_all_of_its_operations() -> None:
    totals = reports.Totals("rank 0 of group 'g'", 2)
    for number in range(20_000):
        totals.add("broadcast", _ended(0.2 if number == 7 else 0.1))
        totals.add_wait(1.0)
    step = totals.step()
    assert (step.operations, step.result_bytes, step.waited_s) == (20_000, 20_000 << 22, 20_000.0)
    assert step.slowest is not None
    assert (step.slowest.elapsed_s, step.loss, step.rtt_s, step.rate_bps) == (0.2, 0.01, 0.04, 10**9)
    assert totals.step() == reports.StepReport(0, 0, 0, 0, 0.0, None, None, None, None)


def _ended(elapsed_s: float) -> Any:
    """Return the report of the native module on a bounded operation."""
    return SimpleNamespace(
        result_bytes=1 << 22, missing_bytes=0, elapsed_s=elapsed_s, timeout_s=1.0, was_cut=False,
        scheme="best-effort", exact_schemes=[], least_missing_share=None, arrivals=[],
        peers=[(1, 0.04, 10**9, 1000, 10)],
    )  # fmt: skip
