"""Data-parallel training of a small model: digits of scikit-learn, or the bytes of a text.

`--backend gloo` runs the same over TCP. Start it with torchrun, on one machine or several::

    torchrun --nproc-per-node 2 python/examples/train.py --steps 200
"""

import argparse
import json
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch  # the first of two lines: it registers the backend


class Digits:
    """1797 pictures of 8 x 8 points, and a network of three layers; its gradients have 1.2 MB."""

    def __init__(self, seed: int) -> None:
        images, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        self.test = (images[order[:360]] / 16).float(), labels[order[:360]]
        self._train = (images[order[360:]] / 16).float(), labels[order[360:]]
        layers = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw 32 pictures and their digits."""
        chosen = torch.randint(len(self._train[0]), (32,), generator=generator)
        return self._train[0][chosen], self._train[1][chosen]


class Text:
    """Bytes of a text, and a transformer that predicts the next one; its gradients have 3.4 MB.

    The text is that of the licences in Debian's package base-files; MPL-2.0 is for tests.
    """

    CONTEXT = 64
    FOLDER = Path("/usr/share/common-licenses")

    def __init__(self, seed: int) -> None:
        files = sorted(path for path in self.FOLDER.iterdir() if not path.is_symlink())
        texts = [path.read_bytes() for path in files if path.name != "MPL-2.0"]
        self._train = torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8).long()
        test = torch.frombuffer(bytearray((self.FOLDER / "MPL-2.0").read_bytes()), dtype=torch.uint8).long()
        self.test = self._windows(test, torch.arange(0, len(test) - self.CONTEXT - 1, self.CONTEXT))
        self.model = Transformer(self.CONTEXT)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw 16 pieces of the text, and what follows each of their bytes."""
        starts = torch.randint(len(self._train) - self.CONTEXT - 1, (16,), generator=generator)
        return self._windows(self._train, starts)

    def _windows(self, text: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = starts[:, None] + torch.arange(self.CONTEXT)
        return text[places], text[places + 1]


class Transformer(nn.Module):
    """Four layers of width 128, which see only earlier bytes."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, 128)
        self.places = nn.Parameter(torch.zeros(context, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.next = nn.Linear(128, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the byte after each, by piece, byte and place."""
        hidden = self.layers(self.bytes(text) + self.places, mask=self.mask, is_causal=True)
        return self.next(hidden).transpose(1, 2)


def join(arguments: argparse.Namespace) -> None:
    """Make the default group."""
    if arguments.backend != "farwrite":
        dist.init_process_group(arguments.backend)
        return
    policy: farwrite.torch.Policy = farwrite.torch.Exact()
    if arguments.bounded:
        policy = farwrite.torch.Bounded(
            arguments.bounded, hadamard_block=arguments.hadamard, exact=farwrite.torch.Exact(arguments.exact)
        )
    # The second line: a store on a network that only the ranks use.
    dist.init_process_group("farwrite", pg_options=farwrite.torch.Options(trusted_store=True, policy=policy))


def drift(model: nn.Module) -> float:
    """Return the largest difference between weights of two ranks."""
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    least, most = weights.clone(), weights.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float((most - least).max())


def step(task: Digits | Text, model: nn.Module, generator: torch.Generator) -> float:
    """Do one step, and return how many seconds it took."""
    begin = time.monotonic()
    inputs, labels = task.batch(generator)
    loss = cross_entropy(model(inputs), labels)
    task.optimizer.zero_grad()
    loss.backward()
    task.optimizer.step()
    return time.monotonic() - begin


def train(task: Digits | Text, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, and return how long steps took and what the loss on tests was when."""
    generator = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    # What a step takes without the other ranks, for the share of communication.
    copy = deepcopy(task)
    alone = [step(copy, copy.model, generator) for _ in range(12)]

    model = DistributedDataParallel(task.model)
    seconds, tests, missing = [], [], []
    for number in range(1, arguments.steps + 1):
        seconds.append(step(task, model, generator))
        # Of the operation that a step waits for last; those of its other buckets do not count.
        if arguments.backend == "farwrite" and (report := farwrite.torch.last_report()):
            missing.append(report.missing_bytes / max(1, report.result_bytes))
        if number % arguments.test_every == 0 or number == arguments.steps:
            with torch.no_grad():
                loss = cross_entropy(task.model(task.test[0]), task.test[1]).item()
            tests.append((sum(seconds), loss))
    report = farwrite.torch.last_report() if arguments.backend == "farwrite" else None
    milliseconds = np.array(seconds[5:]) * 1e3
    return {
        "backend": arguments.backend,
        "ranks": dist.get_world_size(),
        "steps": arguments.steps,
        "step_mean_ms": milliseconds.mean(),
        "step_p99_ms": np.quantile(milliseconds, 0.99),
        "alone_ms": np.median(alone[2:]) * 1e3,
        "tests": tests,
        "missing_share": float(np.mean(missing or [0])),
        "cut_share": report.cut_share if report else 0.0,
        "scheme": report.scheme if report else None,
    }


def main() -> None:
    """Train, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=("digits", "text"), default="digits")
    parser.add_argument("--backend", default="farwrite")
    parser.add_argument(
        "--bounded", type=float, help="a share of gradients that may be missing, such as 0.02"
    )
    parser.add_argument("--hadamard", type=int, help="values of a block of the Hadamard transform")
    parser.add_argument("--exact", default="sr-nack", help="with --bounded: the scheme of exact operations")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--test-every", type=int, default=20, help="steps between two tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    join(arguments)
    torch.manual_seed(arguments.seed)
    task = Digits(arguments.seed) if arguments.task == "digits" else Text(arguments.seed)
    result = train(task, arguments)
    result["drift"] = drift(task.model)
    if dist.get_rank() == 0:
        if arguments.json:
            print(json.dumps(result))
        else:
            print(
                f"{result['backend']}: {result['ranks']} ranks, {result['steps']} steps, mean "
                f"{result['step_mean_ms']:.1f} ms, p99 {result['step_p99_ms']:.1f} ms; test loss "
                f"{result['tests'][-1][1]:.4f}, missing {result['missing_share']:.2%}; "
                f"drift between replicas: {result['drift']}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
