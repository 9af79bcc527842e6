"""Measures how many steps a training needs with the losses of all-reduces in virtual time (claim O3V).

The example `tails` has written which bytes of the messages of these all-reduces had not arrived when their
steps ended. The all-reduces are rings, and follow here the rules for bounded parts in `docs/collectives.md`:
in place of a partial sum that has not arrived, a rank sends its own contribution alone, and in place of a
reduced value, it uses its own contribution. As with any sum, nothing scales a result that lacks
contributions. So the results of ranks differ, and nothing makes their models
equal again. Each step has the losses of one of the all-reduces, drawn at random.

The gradients have another size than the messages. A gap of a message is at the same place of a part of the
gradients, as a share of its length. The training is that of `drops.py`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parent))

from drops import TASKS, Values, judge, training
from table import Table

#: Ranks of the all-reduces.
RANKS = 8
#: For each task: the loss on the test data up to which steps are counted. That of the text is from claim O3.
TARGETS = {"text": 2.78, "digits": 0.3}
#: The panel and the series of the training without losses.
EXACT = ("no losses", "exact")


class Gap(NamedTuple):
    """What is missing of a message: its step, the rank that receives it, and the place in the part."""

    step: int
    rank: int
    #: Shares of the part.
    start: float
    end: float


#: By panel and series: the gaps of each all-reduce.
Masks = Mapping[tuple[str, str], Sequence[Sequence[Gap]]]


def read(file: Path) -> Masks:
    """Read the rows of the example `tails`: one for each message."""
    found: dict[tuple[str, str], dict[str, list[Gap]]] = defaultdict(lambda: defaultdict(list))
    with file.open(newline="", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            gaps = found[row["panel"], row["series"]][row["run"]]
            for gap in row["missing"].split():
                start, end = (int(place) / int(row["bytes"]) for place in gap.split("-"))
                gaps.append(Gap(int(row["step"]), int(row["host"]), start, end))
    return {place: list(runs.values()) for place, runs in found.items()}


def counts(gaps: Sequence[Gap], length: int) -> NDArray[np.int8]:
    """Return by rank, part and value: the number of contributions in the result of the rank.

    These are the contributions of the last ranks before the owner of the part, and of the owner. 0: there is
    only that of the rank itself.
    """
    lost = np.zeros((2 * (RANKS - 1), RANKS, length), dtype=np.bool_)
    for gap in gaps:
        lost[gap.step, gap.rank, round(gap.start * length) : round(gap.end * length)] = True
    found = np.ones((RANKS, RANKS, length), dtype=np.int8)
    for step, messages in enumerate(lost):
        for rank, missing in enumerate(messages):
            part = (rank - 2 - step) % RANKS
            sent = found[rank - 1, part]
            is_reduced = step >= RANKS - 1
            found[rank, part] = np.where(missing, 0, sent) if is_reduced else np.where(missing, 1, sent + 1)
    return found


def around(inputs: Values, found: NDArray[np.int8]) -> Values:
    """Return the result of each rank, of the shape of the inputs: by rank, part and value."""
    results = np.empty_like(inputs)
    for part in range(RANKS):
        # The owner, and then the ranks before it.
        sums = inputs[(part - np.arange(RANKS)) % RANKS, part].cumsum(axis=0)
        results[:, part] = sums[-1]
        ranks, values = np.nonzero(found[:, part] < RANKS)
        number = found[ranks, part, values]
        own = inputs[ranks, part, values]
        results[ranks, part, values] = np.where(number > 0, sums[number - 1, values], own)
    return results


@dataclass
class Ring:
    """Sums tensors of all ranks around a ring. Each call has the gaps of one of the all-reduces."""

    all_reduces: Sequence[Sequence[Gap]]
    random: np.random.Generator
    ranks: int = RANKS

    def __call__(self, contributions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the result of an all-reduce at each rank."""
        size, shape = contributions[0].numel(), contributions[0].shape
        length = -(-size // RANKS)
        inputs = np.zeros((RANKS, RANKS * length), dtype=np.float32)
        for place, contribution in zip(inputs, contributions, strict=True):
            place[:size] = contribution.detach().flatten().numpy()
        gaps = self.all_reduces[self.random.integers(len(self.all_reduces))]
        results = around(inputs.reshape(RANKS, RANKS, length), counts(gaps, length))
        return [torch.from_numpy(result[:size]).view(shape) for result in results.reshape(RANKS, -1)]


#: For each test: the number of steps before it, and the loss on the test data.
Tests = list[tuple[int, float]]


def train(task: str, all_reduces: Sequence[Sequence[Gap]], seed: int, steps: int, every: int) -> Tests:
    """Train up to the first test with a loss of at most the target, testing after each `every` steps.

    A loss is the mean over ranks. A `ValueError` says that `steps` steps do not reach the target.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = TASKS[task](seed)
    ring = Ring(all_reduces, np.random.default_rng(seed))
    tests: Tests = []
    for number, models in zip(range(1, steps + 1), training(made, ring, seed), strict=False):
        if number % every == 0:
            with torch.no_grad():
                losses = [judge(model(made.test[0]), made.test[1])[1] for model in models]
            tests.append((number, mean(losses)))
            if mean(losses) <= TARGETS[task]:
                return tests
    raise ValueError(f"{steps} steps do not reach a loss of {TARGETS[task]}: {tests}")


def steps_to(target: float, tests: Tests) -> float:
    """Return the number of steps to a loss, by the line between the last two tests."""
    (before, high), (after, low) = tests[-2:]
    return before + (after - before) * (high - target) / (high - low)


def main() -> None:
    """Train with all losses and without, and write the rows of the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("masks", type=Path, help="the file that the example has written")
    parser.add_argument("--task", choices=TASKS, default="text", help="the model")
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings of each series")
    parser.add_argument("--steps", type=int, default=100, help="most steps of a training")
    parser.add_argument("--test-every", type=int, default=5, help="steps between two tests")
    parser.add_argument("--processes", type=int, default=1, help="number of trainings at the same time")
    parser.add_argument("--csv", type=Path, help="a file for the rows; without it, standard output")
    arguments = parser.parse_args()
    masks = {EXACT: [[]], **read(arguments.masks)}
    target, seeds = TARGETS[arguments.task], range(1, arguments.seeds + 1)
    runs = max(len(all_reduces) for all_reduces in masks.values())
    table = Table(
        "O3V",
        f"training of {arguments.task} to a loss of {target}: {RANKS} ranks, {arguments.seeds} seeds; a step "
        f"has the losses of one of {runs} all-reduces; tests after each {arguments.test_every} steps",
    )
    with Pool(arguments.processes) as pool:
        trained = {
            place: [
                pool.apply_async(
                    train, (arguments.task, all_reduces, seed, arguments.steps, arguments.test_every)
                )
                for seed in seeds
            ]
            for place, all_reduces in masks.items()
        }
        for place, results in trained.items():
            gaps = [gap for all_reduce in masks[place] for gap in all_reduce]
            messages = 2 * (RANKS - 1) * RANKS * len(masks[place])
            missing = sum(gap.end - gap.start for gap in gaps) / messages
            table.add(*place, 0, "masked_percent", 100 * missing)
            found = [result.get() for result in results]
            # A row needs the losses of all seeds, so rows end where the first seed reaches the target.
            for tests in zip(*found, strict=False):
                number, losses = tests[0][0], [loss for _, loss in tests]
                table.add(*place, number, "test_loss", mean(losses))
            for seed, tests in zip(seeds, found, strict=True):
                table.add(*place, seed, "steps_to_loss", steps_to(target, tests))
    table.write(arguments.csv)


if __name__ == "__main__":
    main()
