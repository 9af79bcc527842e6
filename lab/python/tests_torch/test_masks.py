"""Trainings with the losses of all-reduces in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from farwrite import _native

from paper_figures.rows import load

if TYPE_CHECKING:
    from pathlib import Path

#: Packets of a part in these tests, and the values of one: 8 of its 1024 bytes are a header.
PACKETS, VALUES = 5, 254
LENGTH = PACKETS * VALUES


def test_a_lost_partial_sum_costs_the_contributions_before_it() -> None:
    from masks import RANKS, Gap, counts

    # In step 2, rank 5 receives the contributions of ranks 2, 3 and 4 to part 1.
    found = counts([Gap(2, 5, 0.2, 0.6)], LENGTH)
    lacks = np.zeros_like(found)
    lacks[:, 1, VALUES : 3 * VALUES] = 3
    assert np.array_equal(found, RANKS - lacks)


def test_a_lost_result_is_lost_for_all_later_ranks_too() -> None:
    from masks import RANKS, Gap, counts

    # Part 1 begins its second way at its owner, rank 1. In step 11, it comes to rank 6, and then to 7 and 0.
    found = counts([Gap(11, 6, 0, 1)], LENGTH)
    wanted = np.full_like(found, RANKS)
    wanted[[6, 7, 0], 1] = 0
    assert np.array_equal(found, wanted)


def test_a_later_gap_hides_an_earlier_one() -> None:
    from masks import RANKS, Gap, counts

    # In step 4, rank 7 receives the sum of part 1 that rank 5 began again in step 2. Ranks 0 and 1 follow.
    found = counts([Gap(2, 5, 0, 1), Gap(4, 7, 0, 1), Gap(11, 6, 0, 1)], LENGTH)
    wanted = np.full_like(found, RANKS)
    wanted[:, 1] = 3
    wanted[[6, 7, 0], 1] = 0
    assert np.array_equal(found, wanted)


def test_results_are_those_that_the_library_replays_from_the_same_counts() -> None:
    from masks import RANKS, Gap, around, counts

    random = np.random.default_rng(1)
    places = np.argwhere(random.random((2 * (RANKS - 1), RANKS, PACKETS)) < 0.1).tolist()
    gaps = [Gap(step, rank, packet / PACKETS, (packet + 1) / PACKETS) for step, rank, packet in places]
    inputs = random.standard_normal((RANKS, RANKS, LENGTH)).astype(np.float32)
    found = counts(gaps, LENGTH)
    results = around(inputs, found)
    for rank, result in enumerate(results):
        missing = []
        for part, packet in np.ndindex(RANKS, PACKETS):
            count = found[rank, part, packet * VALUES]
            # The last ranks before the owner, or the rank alone.
            there = [(part - distance) % RANKS for distance in range(count)] or [rank]
            lacking = sorted(set(range(RANKS)) - set(there))
            start = 4 * (part * LENGTH + packet * VALUES)
            missing.append((start, start + 4 * VALUES, lacking))
        wanted = _native.replay(
            "all-reduce",
            rank,
            [own.reshape(-1).view(np.uint8) for own in inputs],
            [gap for gap in missing if gap[2]],
            packet_bytes=1024,
            algorithm="ring",
            sites=[],
            element="float32",
            reduction="sum",
        )
        np.testing.assert_allclose(result.reshape(-1), wanted.view(np.float32), rtol=0, atol=1e-5)
    assert not np.array_equal(results[0], results[1])


def test_steps_to_a_loss_lie_between_two_tests() -> None:
    from masks import steps_to

    tests = [(10, 3.0), (20, 2.0), (30, 1.0)]
    assert [steps_to(target, tests) for target in (1.75, 1.25, 1.0)] == [22.5, 27.5, 30]


def test_a_training_with_losses_needs_more_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import masks

    # All ranks lack all that others send, so each learns from an eighth of its own gradients alone.
    rows = [f"all,nothing arrives,1,{step},{rank},8,0-3 3-8" for step in range(14) for rank in range(8)]
    file, out = tmp_path / "masks", tmp_path / "rows.csv"
    file.write_text("panel,series,run,step,host,bytes,missing\n" + "\n".join(rows))
    options = "--task digits --seeds 1 --steps 25 --test-every 5 --csv"
    monkeypatch.setattr("sys.argv", ["masks", str(file), *options.split(), str(out)])
    monkeypatch.setattr(masks, "TARGETS", {"digits": 2.23})
    with pytest.raises(ValueError, match="10 steps do not reach a loss of 2.23"):
        masks.train("digits", masks.read(file)["all", "nothing arrives"], 1, 10, 5)
    masks.main()
    found = load(tmp_path, "O3V")
    exact, alone = masks.EXACT, ("all", "nothing arrives")
    missing = [found.value(*place, "masked_percent", 0) for place in (exact, alone)]
    assert missing == [0, 100]
    steps = [found.value(*place, "steps_to_loss", 1) for place in (exact, alone)]
    assert 2 * steps[0] < steps[1]
