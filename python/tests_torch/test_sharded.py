"""Training with shards of weights on ranks, where reduce-scatters are bounded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from test_bounded import OPTIONS, be_late
from torch import nn

import farwrite.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

#: Weights, half of them on each of two ranks.
WEIGHTS = 200_000
STEPS = 10
LATE_STEP = 5


@pytest.fixture(scope="module")
def bounded() -> Iterator[Ranks]:
    """Return a job of two ranks whose default group is bounded, because DeepSpeed uses no other group."""
    job = Ranks(2, options=OPTIONS)
    yield job
    job.close()


class _Late(torch.autograd.Function):
    """The identity with a late gradient: after weights are gathered, before gradients are reduced."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, is_late: bool) -> torch.Tensor:
        ctx.is_late = is_late
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.is_late:
            be_late(dist.group.WORLD)
        return gradient, None


class _Sum(nn.Module):
    """A rank adds `scale` to the gradient of each weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WEIGHTS))

    def forward(self, scale: float, is_late: bool) -> torch.Tensor:
        return scale * _Late.apply(self.weight, is_late).sum()


# The change of a weight in a step: if all contributions arrive, and if the owner has only its own
# contribution. Rank 0 contributes 2 and rank 1 contributes 4. FSDP2 asks for a mean, and ZeRO-3 for a sum of
# halves.
@pytest.mark.parametrize(("way", "lacking"), [("fsdp2", [2.0, 4.0]), ("zero3", [1.0, 2.0])])
def test_every_weight_takes_the_contributions_that_came(
    bounded: Ranks, way: str, lacking: list[float]
) -> None:
    answers = bounded.run(_train, way)
    for steps in zip(*(moves for moves, _ in answers), strict=True):
        assert torch.equal(steps[0], steps[1]), "ranks compute with different weights"
    owned = [slice(0, WEIGHTS // 2), slice(WEIGHTS // 2, WEIGHTS)]
    for rank, (moves, reported) in enumerate(answers):
        own = torch.stack([step[owned[rank]] for step in moves])
        lacks = own == lacking[rank]
        assert bool((lacks | (own == 3.0)).all()), "a weight took a step of neither kind"
        assert int(lacks.sum()) == reported, f"rank {rank}"
    assert answers[0][1] > 0, "rank 0 waited for rank 1, which was late"


def _train(way: str) -> tuple[list[torch.Tensor], int]:
    """Return the changes of weights in each step, and the number of weights that lack a contribution."""
    from train import WAYS

    rank, model = dist.get_rank(), _Sum()
    before = farwrite.torch.last_report()
    task = SimpleNamespace(model=model, optimizer=lambda: torch.optim.SGD(model.parameters(), lr=1.0))
    trained = WAYS[way](task)
    moves, old = [], torch.zeros(WEIGHTS)
    for step in range(STEPS):
        trained.learn(trained.model(2.0 + 2.0 * rank, rank == 1 and step == LATE_STEP))
        new = torch.cat(trained.weights())
        moves.append(old - new)
        old = new
    after = farwrite.torch.last_report()
    assert after is not None
    assert after.bounded_operations - _bounded(before) == STEPS, "a reduce-scatter for each step"
    return moves, (_missing(after) - _missing(before)) // 4


def _bounded(report: farwrite.torch.Report | None) -> int:
    return report.bounded_operations if report else 0


def _missing(report: farwrite.torch.Report | None) -> int:
    """Return how many bytes were missing. All bounded operations of the job have results of one size."""
    return round(report.missing_share * report.bounded_operations * 2 * WEIGHTS) if report else 0
