"""The example of training measures how far the weights of ranks are apart."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import Ranks
from test_bounded import OPTIONS, VALUES, be_late
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))


def test_drift_is_exact_where_operations_are_bounded(two: Ranks) -> None:
    assert two.run(_drift) == [(0.0, 2.0**-10, float("inf"))] * 2


def _drift() -> tuple[float, float, float]:
    from train import drift

    rank = dist.get_rank()
    # The default group of the job is exact. A bounded group would leave out a rank that is late.
    group = dist.new_group(pg_options=OPTIONS)
    for _ in range(2):
        dist.all_reduce(torch.ones(VALUES), group=group)
    model = nn.Linear(VALUES, 1)
    found = []
    for difference in (0.0, 2.0**-10, float("nan")):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(1.0)
            if rank == 1:
                model.weight[0, 1::7] += difference
        if rank == 1:
            be_late(group)
        found.append(drift([parameter.detach() for parameter in model.parameters()], group))
    dist.destroy_process_group(group)
    return found[0], found[1], found[2]


def test_replicas_that_are_equally_broken_have_not_drifted(two: Ranks) -> None:
    assert two.run(_equally_broken) == [0.0, 0.0]


def _equally_broken() -> float:
    from train import drift

    return drift([torch.full((4,), float("nan"))])
