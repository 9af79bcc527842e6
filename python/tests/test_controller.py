"""Tests of congestion controllers in Python."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from farwrite import sim
from farwrite.sim.plan import text_of
from farwrite.sim.sweep import evaluate

CABLE = {"rate": "40Gbit", "delay": "1us"}
PLAN: dict[str, Any] = {
    "topology": {"rack": {"shape": "star", "hosts": 5, "cable": CABLE}},
    "workload": {"incast": {"pattern": "incast", "senders": 4, "size": "2MB", "spacing": "7us"}},
}
ONE = 2**32
NS = 1_000


class Dcqcn(sim.Controller):
    """DCQCN with the parameters of its paper (SIGCOMM 2015, section 3.1)."""

    g_shift = 8
    period = timer = 55 * NS
    byte_counter = 10_000_000
    steps = 5
    least, additive, hyper = 10_000_000, 40_000_000, 400_000_000

    def __init__(self, rate_bps: int, rtt_ns: int, mtu_bytes: int) -> None:
        self.line = self.rate = self.target = self.pace_bps = rate_bps
        self.alpha = ONE
        self.period_began = self.now = 0
        self.has_cut = False
        self.sent = self.timer_steps = self.byte_steps = 0

    def on_sent(self, now_ns: int, sent_bytes: int) -> None:
        self.run(now_ns)
        self.sent += sent_bytes
        while self.sent >= self.byte_counter and self.rate < self.line:
            self.sent -= self.byte_counter
            self.increase()
            self.byte_steps += 1
        self.sent %= self.byte_counter
        self.pace_bps = self.rate

    def on_feedback(self, now_ns: int, received_bytes: int, rtt_ns: int | None) -> None:
        self.run(now_ns)

    def on_loss(self, now_ns: int, timed_out: bool) -> None:
        self.run(now_ns)

    def on_timeout(self, now_ns: int) -> None:
        self.run(now_ns)

    def on_notification(self, now_ns: int) -> None:
        self.run(now_ns)
        if not self.has_cut:
            self.period_began, self.has_cut = self.now, True
        periods = (self.now - self.period_began) // self.period
        self.period_began += periods * self.period
        for _ in range(periods):
            self.alpha -= min(max(self.alpha >> self.g_shift, 1), self.alpha)
        self.target = self.rate
        self.rate = max(self.rate - self.rate * self.alpha // (2 * ONE), self.least)
        self.alpha -= self.alpha >> self.g_shift
        self.alpha = min(self.alpha + (ONE >> self.g_shift), ONE)
        self.period_began = self.now
        self.timer_steps = self.byte_steps = self.sent = 0
        self.timeout_ns = self.now + self.timer
        self.pace_bps = self.rate

    def run(self, now_ns: int) -> None:
        self.now = max(self.now, now_ns)
        while self.timeout_ns is not None and self.timeout_ns <= self.now:
            self.increase()
            self.timer_steps += 1
            self.timeout_ns = self.timeout_ns + self.timer if self.rate < self.line else None
        self.pace_bps = self.rate

    def increase(self) -> None:
        more, less = max(self.timer_steps, self.byte_steps), min(self.timer_steps, self.byte_steps)
        step = 0 if more < self.steps else self.hyper if less > self.steps else self.additive
        self.target = min(self.target + step, self.line)
        self.rate += -(-(self.target - self.rate) // 2)


def test_dcqcn_in_python_is_ours_packet_by_packet() -> None:
    ours = sim.run(PLAN | {"transport": ["roce"]})
    theirs = sim.run(PLAN | {"transport": ["roce@own"]}, controllers=MappingProxyType({"own": Dcqcn}))
    # The hash is that of all events of the run.
    assert theirs.runs["trace"].tolist() == ours.runs["trace"].tolist()
    assert np.array_equal(theirs.flows["fct_ns"], ours.flows["fct_ns"])
    assert ours.runs["marked"][0] > 0
    # A controller that does nothing gives another run.
    idle = sim.sweep(
        PLAN | {"transport": ["roce@own"]}, controllers=MappingProxyType({"own": sim.Controller})
    )
    assert idle.runs["trace"].tolist() != ours.runs["trace"].tolist()


class Window(sim.Controller):
    """A window of ten packets."""

    def __init__(self, rate_bps: int, rtt_ns: int, mtu_bytes: int) -> None:
        super().__init__(rate_bps, rtt_ns, mtu_bytes)
        self.window_bytes = 10 * mtu_bytes
        self.round_trips: list[int] = []

    def on_feedback(self, now_ns: int, received_bytes: int, rtt_ns: int | None) -> None:
        assert rtt_ns is None or rtt_ns > 4 * NS


def test_a_window_limits_the_queue() -> None:
    results = sim.run(PLAN | {"transport": ["roce-nocc@own"]}, controllers={"own": Window})
    assert results.runs["done"].tolist() == [4]
    assert results.runs["queue_peak_bytes"][0] <= 4 * 11 * 4200


class Probe(Window):
    """Checks what each acknowledgement says."""

    detail = "telemetry"
    marks = packets = 0

    def on_acknowledged(
        self, now_ns: int, acked_bytes: int, rtt_ns: int | None, marked: bool, hops: list[sim.controller.Hop]
    ) -> None:
        [(_, at_ns, queued_bytes, _, rate_bps)] = hops
        assert rtt_ns is not None
        assert now_ns - rtt_ns < at_ns < now_ns
        assert rate_bps == 40_000_000_000
        assert acked_bytes <= 4096 + 16 + 44 + 42
        # The switch marks from 20 kB on.
        assert marked == (queued_bytes > 20_000)
        Probe.marks += marked
        Probe.packets += 1


def test_a_controller_reads_round_trips_marks_and_hops() -> None:
    step = {"ecn": {"kmin": "20kB", "kmax": "20kB", "pmax": 1.0}}
    plan = PLAN | {"transport": ["roce-nocc@own"], "switch": {"step": step}}
    results = sim.run(plan, controllers={"own": Probe})
    assert results.runs["done"].tolist() == [4]
    assert Probe.packets == 4 * -(-2_000_000 // 4096)
    assert 0 < Probe.marks == results.runs["marked"][0]


class Wordy(Window):
    """Asks for something else."""

    detail = "everything"  # type: ignore[assignment]


class Broken(Window):
    """Raises an exception at the first acknowledgement."""

    def on_feedback(self, now_ns: int, received_bytes: int, rtt_ns: int | None) -> None:
        raise KeyError("broken")


class Nonsense(Window):
    """Sets a pace of 0."""

    def on_feedback(self, now_ns: int, received_bytes: int, rtt_ns: int | None) -> None:
        self.pace_bps = 0


class Still(Window):
    """Wants to be called at once, again and again."""

    def on_feedback(self, now_ns: int, received_bytes: int, rtt_ns: int | None) -> None:
        self.timeout_ns = now_ns


@pytest.mark.parametrize(
    ("controller", "error", "words"),
    [
        (Broken, KeyError, "broken"),
        (Nonsense, ValueError, "controller own: pace_bps = 0: a whole number from 1 to"),
        (Still, ValueError, "controller own: timeout_ns is"),
        (Wordy, ValueError, "controller own: detail = everything"),
    ],
)
def test_errors_of_controllers_end_the_run(controller: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        sim.run(PLAN | {"transport": ["roce@own"]}, controllers={"own": controller})
    assert "in the controller own of a flow" in raised.value.__notes__


def test_a_controller_is_callable() -> None:
    with pytest.raises(TypeError, match=r"^controllers: own = 5: must be a subclass of Controller"):
        sim.run(PLAN, controllers={"own": 5})  # type: ignore[dict-item]


class First(sim.Controller):
    """The first one of all raises an exception at its first packet."""

    made = sent = 0

    def __init__(self, rate_bps: int, rtt_ns: int, mtu_bytes: int) -> None:
        super().__init__(rate_bps, rtt_ns, mtu_bytes)
        self.is_first = First.made == 0
        First.made += 1

    def on_sent(self, now_ns: int, sent_bytes: int) -> None:
        First.sent += 1
        if self.is_first:
            raise KeyError("broken")


def test_an_error_ends_its_run_at_once_and_no_other_run() -> None:
    text, _ = text_of(PLAN | {"transport": ["roce-nocc@own"]})
    # A worker keeps the plan from one run to the next.
    with pytest.raises(KeyError, match="broken"):
        evaluate(text, (), 0, (("own", First),))
    assert First.sent < 10
    counts, _, _ = evaluate(text, (), 0, (("own", First),))
    assert counts["done"] == 4
