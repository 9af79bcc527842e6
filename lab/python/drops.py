"""Measures the accuracy of training and of inference for shares of packets that are dropped (claim O2).

All ranks are in this process, and no network is used. Operations are computed by `farwrite._native.replay`,
which computes the result of a bounded operation from its missing contributions. So the dropped packets are
exactly those that this program draws. A rank never loses its own contribution. The models are those of
`python/examples/train.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from multiprocessing import Pool
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from farwrite import _native
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
#: For each series: the block and the stride of the transform of contributions; None without a transform.
SERIES: dict[str, tuple[int, int] | None] = {"as they are": None, "Hadamard": (1024, 0)}
STEPS = {"digits": 200, "text": 200}
TASKS: dict[str, Callable[[int], Digits | Text]] = {"digits": Digits, "text": Text}


@dataclass
class Sum:
    """Sums tensors of all ranks, as over a network that drops a share of the packets."""

    drop: float
    hadamard: tuple[int, int] | None
    random: np.random.Generator

    def __call__(self, contributions: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the result of an all-reduce, which all ranks get."""
        size = contributions[0].numel()
        # The part that a rank reduces consists of whole packets.
        packets = -(-size * 4 // (PACKET * RANKS))
        inputs = np.zeros((RANKS, RANKS * packets * PACKET // 4), dtype=np.float32)
        for place, contribution in zip(inputs, contributions, strict=True):
            place[:size] = contribution.detach().flatten().numpy()
        result = _native.replay(
            "all-reduce",
            0,
            list(inputs.view(np.uint8)),
            list(self._missing(packets)),
            packet_bytes=PACKET,
            hadamard=self.hadamard,
            element="float32",
            reduction="sum",
        )
        values = torch.from_numpy(result.view(np.float32)[:size].copy())
        return values.view(contributions[0].shape)

    def _missing(self, packets: int) -> Iterator[tuple[int, int, list[int]]]:
        """Draw the packets to each rank that are dropped. Yield their bytes, and the ranks that sent them."""
        dropped = self.random.random((RANKS, packets, RANKS)) < self.drop
        for owner in range(RANKS):
            dropped[owner, :, owner] = False
        for number, senders in enumerate(dropped.reshape(-1, RANKS)):
            if senders.any():
                yield number * PACKET, (number + 1) * PACKET, np.flatnonzero(senders).tolist()


def train(task: Digits | Text, total: Sum, seed: int, steps: int) -> None:
    """Train as `DistributedDataParallel` does: it divides gradients by the number of ranks, and sums them."""
    optimizer = task.optimizer()
    parameters = list(task.model.parameters())
    generators = [torch.Generator().manual_seed(1000 * seed + rank) for rank in range(RANKS)]
    for _ in range(steps):
        contributions = []
        for generator in generators:
            values, wanted = task.batch(generator)
            gradients = torch.autograd.grad(cross_entropy(task.model(values), wanted), parameters)
            contributions.append(torch.cat([gradient.flatten() for gradient in gradients]) / RANKS)
        parts = total(contributions).split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)
        optimizer.step()


def judge(logits: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float]:
    """Return the percentage of places whose most likely class is the right one, and the loss."""
    share = (logits.argmax(dim=1) == wanted).float().mean().item()
    return 100 * share, cross_entropy(logits, wanted).item()


class SplitDigits:
    """The network of `Digits`, whose hidden layers are split over the ranks. It needs one all-reduce."""

    def __init__(self, model: nn.Module, total: Sum) -> None:
        self._layers = [layer for layer in model if isinstance(layer, nn.Linear)]
        self._total = total

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of the digits."""
        first, second, last = self._layers
        hidden = first(images).relu().chunk(RANKS, dim=1)
        weights = second.weight.chunk(RANKS, dim=1)
        partial = [part @ weight.T for part, weight in zip(hidden, weights, strict=True)]
        return last((self._total(partial) + second.bias).relu())


class SplitTransformer:
    """The transformer of `Text`, whose layers are split over the ranks.

    Each rank has one head of the attention, and a part of the hidden values of the feed-forward network.
    There is an all-reduce after each half of a layer.
    """

    def __init__(self, model: Transformer, total: Sum) -> None:
        self._model = model
        self._total = total

    def __call__(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits, as `Transformer` does."""
        model = self._model
        hidden = model.bytes(text) + model.places
        for layer in model.layers.layers:
            attended = self._total(self._attention(layer, layer.norm1(hidden)))
            hidden = hidden + attended + layer.self_attn.out_proj.bias
            widened = layer.linear1(layer.norm2(hidden)).relu().chunk(RANKS, dim=2)
            weights = layer.linear2.weight.chunk(RANKS, dim=1)
            partial = [part @ weight.T for part, weight in zip(widened, weights, strict=True)]
            hidden = hidden + self._total(partial) + layer.linear2.bias
        return model.next(hidden).transpose(1, 2)

    def _attention(self, layer: nn.TransformerEncoderLayer, values: torch.Tensor) -> list[torch.Tensor]:
        attention = layer.self_attn
        projected = values @ attention.in_proj_weight.T + attention.in_proj_bias
        queries, keys, contents = (part.chunk(RANKS, dim=2) for part in projected.chunk(3, dim=2))
        weights = attention.out_proj.weight.chunk(RANKS, dim=1)
        partial = []
        for query, key, content, weight in zip(queries, keys, contents, weights, strict=True):
            scores = query @ key.transpose(1, 2) / sqrt(key.shape[2]) + self._model.mask
            partial.append(scores.softmax(dim=2) @ content @ weight.T)
        return partial


def split(model: nn.Module, total: Sum) -> Callable[[torch.Tensor], torch.Tensor]:
    """Split a model over the ranks."""
    return SplitTransformer(model, total) if isinstance(model, Transformer) else SplitDigits(model, total)


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

    def training(self) -> tuple[float, float]:
        """Train with dropped packets. Return the accuracy and the loss of inference without drops."""
        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        task = TASKS[self.task](self.seed)
        train(task, self.total(), self.seed, self.steps)
        with torch.no_grad():
            return judge(task.model(task.test[0]), task.test[1])


@torch.no_grad()
def inference(
    task: str, seed: int, steps: int, drops: Sequence[float]
) -> dict[tuple[str, float], tuple[float, float]]:
    """Train without dropped packets. Return the accuracies and losses of inference with dropped packets."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    trained = TASKS[task](seed)
    with torch.enable_grad():
        train(trained, Run(task, "as they are", 0.0, seed, steps).total(), seed, steps)
    found = {}
    for series in SERIES:
        for drop in drops:
            model = split(trained.model, Run(task, series, drop, seed, steps).total())
            batches = [model(values) for values in trained.test[0].split(64)]
            found[series, drop] = judge(torch.cat(batches), trained.test[1])
    return found


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
                for drop in arguments.drops
            }
            answers = [result.get() for result in inferred]
            for place, results in runs.items():
                trained = [result.get() for result in results]
                for panel, reached in [("training", trained), ("inference", [of[place] for of in answers])]:
                    accuracies, losses = zip(*reached, strict=True)
                    for measure, value in [
                        ("accuracy_percent", mean(accuracies)),
                        ("lowest_percent", min(accuracies)),
                        ("loss", mean(losses)),
                    ]:
                        table.add(f"{panel}, {task}", *place, measure, value)
    table.write(arguments.csv)


if __name__ == "__main__":
    main()
