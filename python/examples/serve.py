"""Inference of a small model that is split over ranks: it answers prompts from a text with some bytes.

The backends take turns, and each answers the same prompts. Start the script with torchrun, on one machine or
on several machines::

    torchrun --nproc-per-node 2 python/examples/serve.py --way tensor --backends gloo exact bounded

The first start trains the model, and saves it in a folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

sys.path.append(str(Path(__file__).resolve().parent))

from split import WAYS, CountedGroup, Mixture, Pipeline, Tensor
from train import Text
from transformer import EXPERTS, HEADS, Past, Transformer, saved_model, windows

from farwrite.torch import Bounded, Exact, Options, Policy

#: The bounded operations: those that carry activations in any way of splitting the model.
BOUNDED = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
PARITY = Exact("ec-mds:32,8")
#: The share of bytes that may be missing.
LOSS_TARGET = 0.02
POLICIES: dict[str, Policy] = {
    "exact": Exact(),
    "exact-ec": PARITY,
    # Go-Back-N, as in RoCE, except that a receiver keeps what arrives out of order.
    "gbn": Exact("gbn"),
    "bounded": Bounded(LOSS_TARGET, operations=BOUNDED),
    "bounded-ec": Bounded(LOSS_TARGET, operations=BOUNDED, exact=PARITY),
    "hadamard": Bounded(LOSS_TARGET, operations=BOUNDED, hadamard_block=1024),
    "hadamard-ec": Bounded(LOSS_TARGET, operations=BOUNDED, hadamard_block=1024, exact=PARITY),
    # The all-reduce of OptiNIC: both phases are best effort, with the transform.
    "optinic": Bounded(LOSS_TARGET, operations=BOUNDED, hadamard_block=1024, parts="bounded"),
}
BACKENDS = ("gloo", *POLICIES)


def group_of(backend: str) -> dist.ProcessGroup:
    """Make a group of all ranks."""
    if backend == "gloo":
        return dist.new_group(backend="gloo")
    options = Options(trusted_store=True, policy=POLICIES[backend])
    return dist.new_group(backend="farwrite", pg_options=options)


@dataclass
class Server:
    """A model that one backend serves, and its results."""

    way: Tensor | Pipeline | Mixture
    group: CountedGroup
    first_s: list[float] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)
    #: The number of bytes of prompts that the model predicted from the bytes before them, how many
    #: predictions were right, and the sum of the losses.
    asked: float = 0
    right: float = 0
    loss: float = 0

    @torch.no_grad()
    def answer(
        self, pieces: torch.Tensor, answer: int
    ) -> tuple[torch.Tensor | None, torch.Tensor, float, float]:
        """Answer prompts, which are pieces without their last byte, with `answer` bytes each.

        Return the hidden values of the prompts, the bytes of the answers, the seconds until the first byte,
        and the seconds from then until the last byte.
        """
        start = time.monotonic()
        prompts = self.way.own(pieces)[:, :-1]
        count, place = prompts.shape
        past: Past = {}
        hidden = self.way.step(prompts, past, 0)
        following = [self.way.following(hidden, count)]
        first = time.monotonic()
        for more in range(answer - 1):
            last = self.way.step(following[-1], past, place + more)
            following.append(self.way.following(last, count))
        return hidden, torch.cat(following, dim=1), first - start, time.monotonic() - first

    @torch.no_grad()
    def judge(self, hidden: torch.Tensor | None, pieces: torch.Tensor) -> None:
        """Compare the model's prediction at each byte of the prompts with the next byte of the text."""
        if hidden is None:
            return
        wanted = self.way.own(pieces)[:, 1:].flatten()
        logits = self.way.model.predict(hidden).flatten(0, 1)
        self.asked += len(wanted)
        self.right += float((logits.argmax(dim=1) == wanted).sum())
        self.loss += float(cross_entropy(logits, wanted, reduction="sum"))

    def serve(self, batches: list[torch.Tensor], answer: int) -> None:
        """Answer batches, one after the other, and then judge the answers. The first batch does not count."""
        dist.barrier()
        self.answer(batches[0], answer)
        self.group.is_counting = True
        served = []
        for pieces in batches[1:]:
            hidden, _, first, others = self.answer(pieces, answer)
            served.append(hidden)
            self.first_s.append(first)
            self.answer_s.append(others)
        self.group.is_counting = False
        for hidden, pieces in zip(served, batches[1:], strict=True):
            self.judge(hidden, pieces)

    def result(self, generated: int) -> dict[str, Any]:
        """Return the results, with the times of rank 0. All ranks must call this method."""
        group = self.group
        counts = (group.bounded, group.cut, group.missing_bytes, group.result_bytes)
        sums = torch.tensor([self.asked, self.right, self.loss, *counts], dtype=torch.float64)
        dist.all_reduce(sums)
        asked, right, loss, bounded, cut, missing, whole = sums.tolist()
        return {
            "first_s": self.first_s,
            "answer_s": self.answer_s,
            "tokens_s": generated * len(self.first_s) / (sum(self.first_s) + sum(self.answer_s)),
            "accuracy": right / asked,
            "loss": loss / asked,
            "bounded_operations": bounded / group.size,
            "cut_share": cut / max(bounded, 1),
            "missing_share": missing / max(whole, 1),
        }


def check(arguments: argparse.Namespace, ranks: int) -> None:
    """Check that the model and the prompts can be split into equal parts for the ranks."""
    split = {
        "tensor": {"heads": HEADS},
        "sequence": {"heads": HEADS, "--prompts": arguments.prompts},
        "pipeline": {},
        "experts": {"experts": EXPERTS, "--prompts": arguments.prompts},
    }
    for name, number in split[arguments.way].items():
        if number % ranks:
            raise SystemExit(
                f"--way {arguments.way}: {name} {number}: must be a multiple of the {ranks} ranks"
            )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Serve with all backends, and return the results of each backend."""
    text, held_out = Text.read()
    has_experts = arguments.way == "experts"
    longest = arguments.context + arguments.answer
    model = Transformer(has_experts)
    options = arguments.seed, arguments.train_steps, text, longest, has_experts
    # Rank 0 sends its weights to all ranks. Other machines do not have the file, and training on another
    # processor can give other weights.
    weights = [None]
    if dist.get_rank() == 0:
        weights = [torch.load(saved_model(arguments.models, *options), weights_only=True)]
    dist.broadcast_object_list(weights)
    model.load_state_dict(weights[0])
    model.eval()
    servers = {}
    for backend in arguments.backends:
        group = CountedGroup(group_of(backend))
        servers[backend] = Server(WAYS[arguments.way](model, group), group)
    generator = torch.Generator().manual_seed(arguments.seed)
    for _ in range(arguments.rounds):
        batches = [
            windows(held_out, arguments.context, arguments.prompts, generator)
            for _ in range(arguments.requests + 1)
        ]
        for server in servers.values():
            server.serve(batches, arguments.answer)
    generated = arguments.prompts * arguments.answer
    return {
        "way": arguments.way,
        "seed": arguments.seed,
        "conditions": (
            f"{arguments.rounds} x {arguments.requests} batches of {arguments.prompts} prompts of "
            f"{arguments.context} bytes, answers of {arguments.answer}"
        ),
        "backends": {backend: server.result(generated) for backend, server in servers.items()},
    }


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--way", choices=WAYS, default="tensor", help="how the model is split")
    options.add_argument(
        "--backends",
        nargs="+",
        choices=BACKENDS,
        default=["gloo", "exact", "bounded"],
        help="gloo, or policies of farwrite",
    )
    options.add_argument("--seed", type=int, default=1, help="seed of the training and the prompts")
    options.add_argument("--prompts", type=int, default=8, help="number of prompts that are served together")
    options.add_argument("--context", type=int, default=256, help="number of bytes of a prompt")
    options.add_argument("--answer", type=int, default=8, help="number of bytes of an answer")
    options.add_argument("--rounds", type=int, default=3, help="number of turns of each backend")
    options.add_argument(
        "--requests",
        type=int,
        default=10,
        help="batches of prompts in a turn, after a first one that does not count",
    )
    options.add_argument("--train-steps", type=int, default=300, help="steps of training of the model")
    options.add_argument("--models", type=Path, default=Path("models"), help="a folder for trained models")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    return options


def main() -> None:
    """Serve, and print the results."""
    arguments = parser().parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    check(arguments, dist.get_world_size())
    results = run(arguments)
    if dist.get_rank() == 0 and arguments.json:
        print(json.dumps(results))
    elif dist.get_rank() == 0:
        for backend, result in results["backends"].items():
            print(
                f"{backend}: first byte {np.mean(result['first_s']):.3f} s, p99 "
                f"{np.quantile(result['first_s'], 0.99):.3f} s; {result['tokens_s']:.1f} bytes/s, "
                f"{result['accuracy']:.2%} right, cut {result['cut_share']:.1%}, missing "
                f"{result['missing_share']:.2%}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
