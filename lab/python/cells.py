"""Settings of trainings, and summaries of their results as rows of a table and of a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import mean, median
from typing import Any

from table import Table

HEADING = (
    f"{'':>12}  {'mean ms':>8}  {'p99 ms':>8}  {'waiting':>7}  {'s to loss':>9}  {'of seeds':>15}  "
    f"{'steps':>5}  {'loss':>6}  {'missing':>7}  {'cut':>5}  {'drift':>7}  ended"
)


@dataclass(frozen=True)
class Cell:
    """One setting, in which each backend trains with each seed."""

    task: str
    way: str
    ranks: int
    #: Options of `farwrite link`.
    link: str
    #: Number of TCP BBR flows over the path during the training.
    background: int

    def __str__(self) -> str:
        """Return the name of the setting, which is also that of its rows."""
        link = self.link.replace("--", "")
        return f"{self.task}, {self.way}, {self.ranks} ranks, {link}, {self.background} TCP flows"


@dataclass
class Runs:
    """The trainings of one backend in one cell."""

    #: The result of rank 0 of each training that ended without an error.
    ended: list[dict[str, Any]] = field(default_factory=list)
    #: The seed and the error of each training that failed.
    failed: list[str] = field(default_factory=list)

    def summarize(self, target: float) -> dict[str, float]:
        """Return numbers over all seeds. Their names end in the unit. `target` is a loss on the test data."""
        # A training that fails, or does not reach the target loss, counts as longer than every other
        # training.
        lost = [(inf, inf)] * len(self.failed)
        reached = [first_at_most(target, run["tests"]) for run in self.ended] + lost
        seconds, steps = ([one[place] for one in reached] for place in (0, 1))
        summary = {
            "s_to_loss": median(seconds),
            "s_to_loss_least": min(seconds),
            "s_to_loss_most": max(seconds),
            "steps_to_loss": median(steps),
            "failed": float(len(self.failed)),
        }
        if not self.ended:
            return summary
        return summary | {
            "waiting_percent": 100 * mean(1 - run["alone_ms"] / run["step_mean_ms"] for run in self.ended),
            "final_loss": mean(run["tests"][-1][2] for run in self.ended),
            "missing_percent": 100 * mean(run["missing_share"] for run in self.ended),
            "cut_percent": 100 * mean(run["cut_share"] for run in self.ended),
            **{key: mean(run[key] for run in self.ended) for key in ("step_mean_ms", "step_p99_ms", "drift")},
        }

    def lines(self, backend: str, target: float) -> Iterator[str]:
        """Yield the row of a table, and a line for each training that failed."""
        of = self.summarize(target)
        ended = f"{len(self.ended)} of {len(self.ended) + len(self.failed)}"
        if self.ended:
            seeds = f"{_or_never(of['s_to_loss_least'])} - {_or_never(of['s_to_loss_most'])}"
            yield (
                f"{backend:>12}  {of['step_mean_ms']:>8.1f}  {of['step_p99_ms']:>8.1f}  "
                f"{of['waiting_percent']:>6.0f}%  {_or_never(of['s_to_loss']):>9}  {seeds:>15}  "
                f"{_or_never(of['steps_to_loss'], 0):>5}  {of['final_loss']:>6.3f}  "
                f"{of['missing_percent']:>6.2f}%  {of['cut_percent']:>4.0f}%  {of['drift']:>7.1g}  {ended}"
            )
        else:
            yield f"{backend:>12}  {ended} trainings ended"
        yield from (f"{'':>12}  failed: {problem}" for problem in self.failed)

    def add_to(self, table: Table, panel: str, backend: str, target: float) -> None:
        """Add the rows of this backend to the table of a CSV file."""
        for measure, value in self.summarize(target).items():
            if isfinite(value):
                table.add(panel, backend, 0, measure, value)
        # The curve has one point for each test: the means over the seeds of its time and of its loss.
        for tests in zip(*(run["tests"] for run in self.ended), strict=True):
            seconds, _, loss = (mean(column) for column in zip(*tests, strict=True))
            table.add(panel, backend, seconds, "test_loss", loss)


def first_at_most(target: float, tests: Sequence[tuple[float, int, float]]) -> tuple[float, float]:
    """Return the seconds and the steps until the loss on the test data was at most `target`, or inf."""
    return next(((seconds, steps) for seconds, steps, loss in tests if loss <= target), (inf, inf))


def _or_never(value: float, digits: int = 1) -> str:
    return "never" if value == inf else f"{value:.{digits}f}"
