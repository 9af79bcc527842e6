"""Measures the accuracy of training and of inference for shares of packets that are dropped (claim O2).

All ranks are in this process, and no network is used. In the first phase of an all-reduce, the owner of a
part of the tensor gets the contributions of all ranks. The second phase brings the reduced parts to all
ranks. Packets are dropped in the first phase alone, or in both phases. In the second case, ranks have
different results, and nothing makes their models equal again, because OptiNIC describes no such step.

`farwrite._native.replay` computes the first phase from its missing contributions. The second phase follows
the rules of bounded parts in `docs/collectives.md`. So the dropped packets are exactly those that this
program draws. A rank never loses what it sends to itself. The models are those of
`python/examples/train.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, islice, product
from math import sqrt
from multiprocessing import Pool
from pathlib import Path
from statistics import mean
from typing import Protocol

import numpy as np
import torch
from farwrite import _native
from farwrite.torch import Hadamard
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1] / "python" / "examples")]

from train import Digits, Text, Transformer  # noqa: E402

from table import Table  # noqa: E402

#: Bytes of a packet: the transform needs a power of two, and this one fits into an Ethernet frame.
PACKET = 1024
#: Number of ranks of training and of tensor parallelism.
RANKS = 4
Values = NDArray[np.float32]


@dataclass(frozen=True)
class Series:
    """What is dropped, and whether values are transformed before they are sent."""

    both_phases: bool = False
    hadamard: Hadamard | None = None


TRANSFORM = Hadamard(block=1024, packet=PACKET // 4)
SERIES = {
    "first phase": Series(),
    "first phase, Hadamard": Series(hadamard=TRANSFORM),
    "both phases": Series(both_phases=True),
    "both phases, Hadamard": Series(both_phases=True, hadamard=TRANSFORM),
}
STEPS = {"digits": 200, "text": 200}
TASKS: dict[str, Callable[[int], Digits | Text]] = {"digits": Digits, "text": Text}


class AllReduce(Protocol):
    """Sums tensors of all ranks."""

    ranks: int

    def __call__(self, contributions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the result of an all-reduce at each rank."""


@dataclass
class Sum:
    """Sums tensors of all ranks, as over a network that drops a share of the packets."""

    drop: float
    series: Series
    random: np.random.Generator
    ranks: int = RANKS

    def __call__(self, contributions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the result of an all-reduce at each rank."""
        size, shape = contributions[0].numel(), contributions[0].shape
        # The part that a rank reduces consists of whole packets.
        packets = -(-size * 4 // (PACKET * RANKS))
        inputs = np.zeros((RANKS, RANKS * packets * PACKET // 4), dtype=np.float32)
        for place, contribution in zip(inputs, contributions, strict=True):
            place[:size] = contribution.detach().flatten().numpy()
        reduced = self._reduce(inputs, packets)
        if not self.series.both_phases:
            return [torch.from_numpy(reduced[:size]).view(shape)] * RANKS
        results = self._gather(inputs, reduced, packets)
        return [torch.from_numpy(result[:size]).view(shape) for result in results]

    def _reduce(self, inputs: Values, packets: int) -> Values:
        """Return the parts that their owners have reduced."""
        transform = self.series.hadamard
        result = _native.replay(
            "all-reduce",
            0,
            list(inputs.view(np.uint8)),
            list(self._missing(packets)),
            packet_bytes=PACKET,
            algorithm="direct",
            sites=[],
            # The stride 0 is the largest one.
            hadamard=transform and (transform.block, transform.stride or 0),
            element="float32",
            reduction="sum",
        )
        return result.view(np.float32)

    def _missing(self, packets: int) -> Iterator[tuple[int, int, list[int]]]:
        """Draw the packets to owners that are dropped. Yield their bytes, and the ranks that sent them."""
        dropped = self.random.random((RANKS, packets, RANKS)) < self.drop
        for owner in range(RANKS):
            dropped[owner, :, owner] = False
        for number, senders in enumerate(dropped.reshape(-1, RANKS)):
            if senders.any():
                yield number * PACKET, (number + 1) * PACKET, np.flatnonzero(senders).tolist()

    def _gather(self, inputs: Values, reduced: Values, packets: int) -> Iterator[Values]:
        """Draw the packets with reduced values that are dropped. Yield the result of each rank."""
        length = packets * PACKET // 4
        for rank, own in enumerate(inputs):
            arrived = self.random.random((RANKS, packets)) >= self.drop
            arrived[rank] = True
            there = arrived.repeat(PACKET // 4)
            result = np.where(there, reduced, own)
            if self.series.hadamard:
                for owner in range(RANKS):
                    part = slice(owner * length, (owner + 1) * length)
                    if not arrived[owner].all():
                        result[part] = estimate(self.series.hadamard, reduced[part], own[part], there[part])
            yield result


def estimate(transform: Hadamard, reduced: Values, own: Values, arrived: NDArray[np.bool_]) -> Values:
    """Return what a rank computes from the coefficients of a reduced part that arrived.

    `own` is the contribution of the rank, which stands for blocks of which nothing arrived.
    """
    coefficients = transform.encode(torch.from_numpy(reduced)).numpy() * arrived
    lost = []
    for part in transform.parts([len(reduced)]):
        group = part.block * part.blocks
        for start in range(part.start, part.start + part.groups * group, group):
            place = slice(start, start + group)
            share = arrived[place].mean()
            if share:
                coefficients[place] /= share
            else:
                lost.append(place)
    result = transform.decode(torch.from_numpy(coefficients)).numpy()
    for place in lost:
        result[place] = own[place]
    return result


def training(task: Digits | Text, total: AllReduce, seed: int) -> Iterator[list[nn.Module]]:
    """Train as `DistributedDataParallel` does: it divides gradients by the number of ranks, and sums them.

    Yield the model of each rank after each step.
    """
    replicas = [deepcopy(task) for _ in range(total.ranks)]
    optimizers = [replica.optimizer() for replica in replicas]
    models = [replica.model for replica in replicas]
    generators = [torch.Generator().manual_seed(1000 * seed + rank) for rank in range(total.ranks)]
    while True:
        contributions = []
        for model, generator in zip(models, generators, strict=True):
            values, wanted = task.batch(generator)
            gradients = torch.autograd.grad(cross_entropy(model(values), wanted), list(model.parameters()))
            contributions.append(torch.cat([gradient.flatten() for gradient in gradients]) / total.ranks)
        for model, optimizer, result in zip(models, optimizers, total(contributions), strict=True):
            parameters = list(model.parameters())
            parts = result.split([parameter.numel() for parameter in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.grad = part.view(parameter.shape)
            optimizer.step()
        yield models


def train(task: Digits | Text, total: Sum, seed: int, steps: int) -> list[nn.Module]:
    """Train for some steps. Return the model of each rank."""
    *_, models = islice(training(task, total, seed), steps)
    return models


def judge(logits: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float]:
    """Return the percentage of places whose most likely class is the right one, and the loss."""
    share = (logits.argmax(dim=1) == wanted).float().mean().item()
    return 100 * share, cross_entropy(logits, wanted).item()


class SplitDigits:
    """The network of `Digits`, whose hidden layers are split over the ranks. It needs one all-reduce."""

    def __init__(self, model: nn.Module, total: Sum) -> None:
        self._layers = [layer for layer in model if isinstance(layer, nn.Linear)]
        self._total = total

    def __call__(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Return the logits of the digits at each rank."""
        first, second, last = self._layers
        hidden = first(images).relu().chunk(RANKS, dim=1)
        weights = second.weight.chunk(RANKS, dim=1)
        partial = [part @ weight.T for part, weight in zip(hidden, weights, strict=True)]
        return [last((result + second.bias).relu()) for result in self._total(partial)]


class SplitTransformer:
    """The transformer of `Text`, whose layers are split over the ranks.

    Each rank has one head of the attention, and a part of the hidden values of the feed-forward network.
    There is an all-reduce after each half of a layer. Each rank computes with its own hidden values.
    """

    def __init__(self, model: Transformer, total: Sum) -> None:
        self._model = model
        self._total = total

    def __call__(self, text: torch.Tensor) -> list[torch.Tensor]:
        """Return the logits at each rank, as `Transformer` does."""
        model = self._model
        hidden = [model.bytes(text) + model.places] * RANKS
        for layer in model.layers.layers:
            partial = [self._attention(layer, rank, layer.norm1(own)) for rank, own in enumerate(hidden)]
            hidden = self._add(hidden, partial, layer.self_attn.out_proj.bias)
            partial = [self._widened(layer, rank, layer.norm2(own)) for rank, own in enumerate(hidden)]
            hidden = self._add(hidden, partial, layer.linear2.bias)
        return [model.next(own).transpose(1, 2) for own in hidden]

    def _add(
        self, hidden: Sequence[torch.Tensor], partial: Sequence[torch.Tensor], bias: torch.Tensor
    ) -> list[torch.Tensor]:
        """Add the sums of partial values to the hidden values of each rank."""
        return [own + result + bias for own, result in zip(hidden, self._total(partial), strict=True)]

    def _attention(self, layer: nn.TransformerEncoderLayer, rank: int, values: torch.Tensor) -> torch.Tensor:
        attention = layer.self_attn
        weights, biases = (of.chunk(3) for of in (attention.in_proj_weight, attention.in_proj_bias))
        query, key, content = (
            values @ weight.chunk(RANKS)[rank].T + bias.chunk(RANKS)[rank]
            for weight, bias in zip(weights, biases, strict=True)
        )
        scores = query @ key.transpose(1, 2) / sqrt(key.shape[2]) + self._model.mask
        return scores.softmax(dim=2) @ content @ attention.out_proj.weight.chunk(RANKS, dim=1)[rank].T

    def _widened(self, layer: nn.TransformerEncoderLayer, rank: int, values: torch.Tensor) -> torch.Tensor:
        weight, bias = (of.chunk(RANKS)[rank] for of in (layer.linear1.weight, layer.linear1.bias))
        return (values @ weight.T + bias).relu() @ layer.linear2.weight.chunk(RANKS, dim=1)[rank].T


def split(model: nn.Module, total: Sum) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """Split a model over the ranks."""
    return SplitTransformer(model, total) if isinstance(model, Transformer) else SplitDigits(model, total)


#: The accuracy in percent and the loss at each rank.
Judged = list[tuple[float, float]]


@dataclass(frozen=True)
class Run:
    """One point of the figure: a model, a series, a drop rate and a seed."""

    task: str
    series: str
    drop: float
    seed: int
    steps: int

    def total(self) -> Sum:
        """Return the all-reduce of this run."""
        return Sum(self.drop, SERIES[self.series], np.random.default_rng([self.seed, round(1e6 * self.drop)]))

    def training(self) -> Judged:
        """Train with dropped packets. Return what inference without drops has at each rank."""
        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        task = TASKS[self.task](self.seed)
        models = train(task, self.total(), self.seed, self.steps)
        with torch.no_grad():
            return [judge(model(task.test[0]), task.test[1]) for model in models]


@torch.no_grad()
def inference(
    task: str, seed: int, steps: int, drops: Sequence[float]
) -> tuple[Judged, dict[tuple[str, float], Judged]]:
    """Train without dropped packets. Return what inference has without drops, and with dropped packets."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = TASKS[task](seed)
    with torch.enable_grad():
        models = train(made, Sum(0.0, Series(), np.random.default_rng(seed)), seed, steps)
    found = {}
    for series in SERIES:
        for drop in drops:
            model = split(models[0], Run(task, series, drop, seed, steps).total())
            batches = [model(values) for values in made.test[0].split(64)]
            found[series, drop] = [
                judge(torch.cat(logits), made.test[1]) for logits in zip(*batches, strict=True)
            ]
    return [judge(model(made.test[0]), made.test[1]) for model in models], found


def main() -> None:
    """Do all runs, and write the rows of the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="the models")
    parser.add_argument(
        "--drops", nargs="+", type=float, default=[0, 0.01, 0.05, 0.1], help="shares of dropped packets"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of each point")
    parser.add_argument("--steps", type=int, default=0, help="steps of training; 0: the number of the figure")
    parser.add_argument("--processes", type=int, default=1, help="number of runs at the same time")
    parser.add_argument("--csv", type=Path, help="a file for the rows; without it, standard output")
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    table = Table(
        "O2",
        f"drops drawn independently for packets of {PACKET} bytes; {RANKS} ranks; {arguments.seeds} seeds; "
        + ", ".join(f"{task}: {arguments.steps or STEPS[task]} steps" for task in arguments.tasks),
    )
    with Pool(arguments.processes) as pool:
        for task in arguments.tasks:
            steps = arguments.steps or STEPS[task]
            inferred = [pool.apply_async(inference, (task, seed, steps, arguments.drops)) for seed in seeds]
            runs = {
                (series, drop): [
                    pool.apply_async(Run(task, series, drop, seed, steps).training) for seed in seeds
                ]
                for series in SERIES
                for drop in filter(None, arguments.drops)
            }
            whole, answers = zip(*(result.get() for result in inferred), strict=True)
            for place in product(SERIES, arguments.drops):
                # All series share the trainings without drops.
                trained = [result.get() for result in runs[place]] if place in runs else whole
                for panel, reached in [("training", trained), ("inference", [of[place] for of in answers])]:
                    accuracies, losses = zip(*chain.from_iterable(reached), strict=True)
                    for measure, value in [
                        ("accuracy_percent", mean(accuracies)),
                        ("lowest_percent", min(accuracies)),
                        ("loss", mean(losses)),
                    ]:
                        table.add(f"{panel}, {task}", *place, measure, value)
    table.write(arguments.csv)


if __name__ == "__main__":
    main()
