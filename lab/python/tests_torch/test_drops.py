"""The all-reduces of the program that drops packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

if TYPE_CHECKING:
    from drops import Sum

#: Not a multiple of the values of a packet, so the last part has padding.
VALUES = 300_001


def _sum(name: str, drop: float) -> tuple[Sum, list[torch.Tensor]]:
    """Return an all-reduce of a series, and contributions for it."""
    from drops import RANKS, SERIES, Sum

    generator = torch.Generator().manual_seed(1)
    contributions = [torch.randn(VALUES, generator=generator) for _ in range(RANKS)]
    return Sum(drop, SERIES[name], np.random.default_rng(1)), contributions


@pytest.mark.parametrize("transform", ["", ", Hadamard"])
@pytest.mark.parametrize("phases", ["first phase", "both phases"])
def test_without_drops_all_ranks_have_the_sum(phases: str, transform: str) -> None:
    total, contributions = _sum(phases + transform, 0.0)
    wanted = torch.stack(contributions).sum(0)
    for result in total(contributions):
        torch.testing.assert_close(result, wanted, rtol=0, atol=1e-5)


def test_ranks_differ_only_by_packets_of_the_second_phase() -> None:
    from drops import PACKET, RANKS

    drop = 0.2
    total, contributions = _sum("first phase", drop)
    # The first phase draws first, so both all-reduces drop the same packets in it.
    reduced, *_ = total(contributions)
    total, _ = _sum("both phases", drop)
    packets = -(-VALUES * 4 // (PACKET * RANKS))
    owners = torch.arange(VALUES) // (packets * PACKET // 4)
    for rank, (result, own) in enumerate(zip(total(contributions), contributions, strict=True)):
        kept = result == reduced
        assert torch.equal(result[~kept], own[~kept])
        assert kept[owners == rank].all()
        share = 1 - kept[owners != rank].float().mean().item()
        assert share == pytest.approx(drop, abs=0.06)


def test_the_error_of_transformed_parts_is_that_of_the_missing_coefficients() -> None:
    from drops import TRANSFORM, estimate

    random = np.random.default_rng(1)
    # One group of blocks that share packets.
    reduced = random.standard_normal(TRANSFORM.block * TRANSFORM.packet).astype(np.float32)
    own = np.ones_like(reduced)
    arrived = random.random(len(reduced) // TRANSFORM.packet) >= 0.2
    there = arrived.repeat(TRANSFORM.packet)
    error = estimate(TRANSFORM, reduced, own, there) - reduced
    share = arrived.mean()
    # docs/collectives.md: |e - x|^2 = (1 - q) / q * |x|^2 on average.
    assert (error**2).sum() / (reduced**2).sum() == pytest.approx((1 - share) / share, rel=0.1)
    assert np.array_equal(estimate(TRANSFORM, reduced, own, np.zeros_like(there)), own)
