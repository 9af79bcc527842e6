"""Data-parallel training of a small model on digits of scikit-learn, or on the bytes of a text.

`--backend gloo` trains over TCP. Start the script with torchrun, on one machine or on several machines::

    torchrun --nproc-per-node 2 python/examples/train.py --steps 200
"""

import argparse
import json
import os
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch  # the first of the two lines that farwrite needs: it registers the backend

#: Number of the first steps, whose times do not count, because they are longer than those of later steps.
UNTIMED = 5


class Digits:
    """1797 pictures of 8 x 8 points, and a network of three layers, whose gradients have 1.2 MB."""

    def __init__(self, seed: int) -> None:
        # The import is here because only this task needs scikit-learn.
        from sklearn.datasets import load_digits

        images, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        self.test = (images[order[:360]] / 16).float(), labels[order[:360]]
        self._train = (images[order[360:]] / 16).float(), labels[order[360:]]
        layers = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        self.model = nn.Sequential(*layers)

    def optimizer(self) -> torch.optim.Optimizer:
        """Make an optimizer of the current weights of the model."""
        return torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw 32 pictures at random, and return them with their digits."""
        chosen = torch.randint(len(self._train[0]), (32,), generator=generator)
        return self._train[0][chosen], self._train[1][chosen]


class Text:
    """The bytes of a text, and a transformer that predicts the next byte, whose gradients have 3.4 MB.

    The text consists of the licences in Debian's package base-files. MPL-2.0 is used for tests only.
    """

    CONTEXT = 64
    FOLDER = Path("/usr/share/common-licenses")

    def __init__(self, seed: int) -> None:
        self._train, test = self.read()
        self.test = self._windows(test, torch.arange(0, len(test) - self.CONTEXT - 1, self.CONTEXT))
        self.model = Transformer(self.CONTEXT)

    @classmethod
    def read(cls) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bytes for training and the bytes for tests."""
        files = sorted(path for path in cls.FOLDER.iterdir() if not path.is_symlink())
        texts = [path.read_bytes() for path in files if path.name != "MPL-2.0"]
        test = (cls.FOLDER / "MPL-2.0").read_bytes()
        learnt, held = (
            torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in (b"".join(texts), test)
        )
        return learnt.long(), held.long()

    def optimizer(self) -> torch.optim.Optimizer:
        """Make an optimizer of the current weights of the model."""
        return torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw 16 pieces of the text at random. Return them, and the byte after each of their bytes."""
        starts = torch.randint(len(self._train) - self.CONTEXT - 1, (16,), generator=generator)
        return self._windows(self._train, starts)

    def _windows(self, text: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = starts[:, None] + torch.arange(self.CONTEXT)
        return text[places], text[places + 1]


class Transformer(nn.Module):
    """A transformer of four layers of width 128, in which each byte sees only earlier bytes."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, 128)
        self.places = nn.Parameter(torch.zeros(context, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.next = nn.Linear(128, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the byte that follows each byte, of shape (pieces, 256, places)."""
        hidden = self.layers(self.bytes(text) + self.places, mask=self.mask, is_causal=True)
        return self.next(hidden).transpose(1, 2)


def join(arguments: argparse.Namespace) -> None:
    """Make the default group, with the policy of the options."""
    if arguments.backend != "farwrite":
        dist.init_process_group(arguments.backend)
        return
    exact = farwrite.torch.Exact(**({"scheme": arguments.exact} if arguments.exact else {}))
    policy: farwrite.torch.Policy = exact
    if arguments.bounded is not None:
        policy = farwrite.torch.Bounded(
            arguments.bounded,
            hadamard_block=arguments.hadamard,
            exact=exact,
            parts="bounded" if arguments.resynchronise else "exact",
        )
    # The second line, with options. The store must be on a network that only the ranks use.
    options = farwrite.torch.Options(
        trusted_store=True, policy=policy, missing_log=arguments.log, replay_log=arguments.replay
    )
    if arguments.trace:
        farwrite.torch.trace(arguments.trace / f"rank-{os.environ['RANK']}.jsonl")
    dist.init_process_group("farwrite", pg_options=options)


class Alone:
    """Training in one process, without other ranks."""

    def __init__(self, task: Digits | Text) -> None:
        self.model: nn.Module = task.model
        self.optimizer = task.optimizer()

    def learn(self, loss: torch.Tensor) -> None:
        """Change the weights by the gradients of the loss."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        """Return all weights with which this rank computes. All ranks must call this method."""
        return [parameter.detach() for parameter in self.model.parameters()]


class Replicas(Alone):
    """Training by `DistributedDataParallel`: every rank has all weights."""

    def __init__(self, task: Digits | Text) -> None:
        super().__init__(task)
        self.model = DistributedDataParallel(task.model)


class Shards(Alone):
    """Training by FSDP2: every rank has a part of each weight."""

    def __init__(self, task: Digits | Text) -> None:
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(task.model, mesh=mesh)
        super().__init__(task)

    def weights(self) -> list[torch.Tensor]:
        """Return all weights with which this rank computes. All ranks must call this method."""
        self.model.unshard()
        whole = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.model.reshard()
        return whole


class Zero3:
    """Training by ZeRO-3 of DeepSpeed: every rank has a part of each weight."""

    def __init__(self, task: Digits | Text) -> None:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        os.environ.setdefault("LOCAL_RANK", "0")
        import deepspeed
        import deepspeed.ops

        self._zero = deepspeed.zero
        # DeepSpeed would compile an operation over shared memory, which training does not use.
        deepspeed.ops.__compatible_ops__.clear()
        self.model, *_ = deepspeed.initialize(
            model=task.model,
            optimizer=task.optimizer(),
            dist_init_required=False,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization": {"stage": 3},
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
                # DeepSpeed's default scales gradients to a norm of 1, which the other ways do not do.
                "gradient_clipping": 0.0,
            },
        )

    def learn(self, loss: torch.Tensor) -> None:
        """Change the weights by the gradients of the loss."""
        self.model.backward(loss)
        self.model.step()

    def weights(self) -> list[torch.Tensor]:
        """Return all weights with which this rank computes. All ranks must call this method."""
        parameters = list(self.model.parameters())
        with self._zero.GatheredParameters(parameters):
            return [parameter.detach().clone() for parameter in parameters]


#: How the weights are distributed over ranks, by the value of `--way`.
WAYS = {"ddp": Replicas, "fsdp2": Shards, "zero3": Zero3}


def drift(weights: list[torch.Tensor], group: dist.ProcessGroup | None = None) -> float:
    """Return the largest difference of a weight between two ranks. It is 0 only if no weight differs.

    The ranks exchange the weights as integers, so the operation is exact with every policy.
    """
    bits = torch.cat([weight.flatten() for weight in weights]).view(torch.int32)
    everyone = [torch.empty_like(bits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, bits, group)
    replicas = torch.stack(everyone).view(torch.float32).double()
    differences = replicas.amax(0) - replicas.amin(0)
    # If all ranks have the same bits, the difference is 0, also if the bits are infinite or NaN.
    differences[(torch.stack(everyone) == bits).all(0)] = 0
    return float(differences.nan_to_num(nan=torch.inf).max())


def resynchronise(way: Alone | Zero3, number: int, every: int) -> float | None:
    """Make the weights and the momentum equal at all ranks after each `every` steps. Return the drift."""
    optimizer = getattr(way, "optimizer", None)
    return farwrite.torch.resynchronise(way.model, number, every=every, optimizer=optimizer)


def step(task: Digits | Text, way: Alone | Zero3, generator: torch.Generator) -> float:
    """Do one step of training. Return its duration in seconds."""
    begin = time.monotonic()
    inputs, labels = task.batch(generator)
    way.learn(cross_entropy(way.model(inputs), labels))
    return time.monotonic() - begin


def mean_over_ranks(values: list[float]) -> list[float]:
    """Return the mean of each value over all ranks. All ranks must call this function."""
    means = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(means)
    return (means / dist.get_world_size()).tolist()


def train(task: Digits | Text, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train. Return the times of steps, and for each test: the seconds of training, the step and the loss."""
    generator = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    # The times of steps without other ranks show which share of a step is communication.
    copy = Alone(deepcopy(task))
    alone = [step(task, copy, generator) for _ in range(12)]

    way = WAYS[arguments.way](task)
    seconds, tests, drifts = [], [], []
    for number in range(1, arguments.steps + 1):
        seconds.append(step(task, way, generator))
        if arguments.resynchronise:
            begin = time.monotonic()
            drifts.append(resynchronise(way, number, arguments.resynchronise))
            seconds[-1] += time.monotonic() - begin
        if number % arguments.test_every == 0 or number == arguments.steps:
            with torch.no_grad():
                loss = cross_entropy(way.model(task.test[0]), task.test[1]).item()
            tests.append((sum(seconds), number, loss))
    report = farwrite.torch.last_report() if arguments.backend == "farwrite" else None
    missing, cut = mean_over_ranks([report.missing_share, report.cut_share] if report else [0.0, 0.0])
    milliseconds = np.array(seconds[UNTIMED:]) * 1e3
    return {
        "backend": arguments.backend,
        "way": arguments.way,
        "ranks": dist.get_world_size(),
        "steps": arguments.steps,
        "step_mean_ms": milliseconds.mean(),
        "step_p99_ms": np.quantile(milliseconds, 0.99),
        "alone_ms": np.median(alone[2:]) * 1e3,
        "tests": tests,
        "missing_share": missing,
        "cut_share": cut,
        "scheme": report.scheme if report else None,
        "drift": drift(way.weights()),
        "drifts": [each for each in drifts if each is not None],
    }


def main() -> None:
    """Train, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=("digits", "text"), default="digits", help="the data to train on")
    parser.add_argument(
        "--way", choices=WAYS, default="ddp", help="how the weights are distributed over ranks"
    )
    parser.add_argument("--backend", default="farwrite", help="the backend of torch.distributed")
    parser.add_argument(
        "--bounded", type=float, help="the share of gradients that may be missing, such as 0.02"
    )
    parser.add_argument(
        "--hadamard",
        type=int,
        help="with --bounded: the number of values of a block of the Hadamard transform",
    )
    parser.add_argument("--exact", help="the scheme of exact operations")
    parser.add_argument(
        "--resynchronise",
        type=int,
        metavar="STEPS",
        help="with --bounded and ddp: a deadline for whole all-reduces; replicas are made equal after each "
        "STEPS steps",
    )
    parser.add_argument("--log", help="with --bounded: a folder for logs of the missing contributions")
    parser.add_argument(
        "--replay", help="with --bounded: the folder with the logs of a run, which is repeated exactly"
    )
    parser.add_argument("--trace", type=Path, help="a folder for a trace of each rank (docs/trace.md)")
    parser.add_argument("--steps", type=int, default=200, help="number of steps")
    parser.add_argument("--test-every", type=int, default=20, help="steps between two tests")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights and the data")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    if arguments.steps <= UNTIMED:
        parser.error(f"--steps {arguments.steps}: must be more than {UNTIMED}: the first steps are not timed")

    if arguments.hadamard != parser.get_default("hadamard") and arguments.bounded is None:
        parser.error(f"--hadamard {arguments.hadamard}: needs --bounded")
    for name in ("bounded", "exact", "log", "replay", "trace"):
        if getattr(arguments, name) is not None and arguments.backend != "farwrite":
            parser.error(f"--{name} {getattr(arguments, name)}: needs --backend farwrite")
    every = arguments.resynchronise
    if every is not None and (every < 1 or arguments.bounded is None or arguments.way != "ddp"):
        parser.error(f"--resynchronise {every}: needs a number from 1, --bounded and --way ddp")

    torch.set_num_threads(1)
    join(arguments)
    torch.manual_seed(arguments.seed)
    task = Digits(arguments.seed) if arguments.task == "digits" else Text(arguments.seed)
    result = train(task, arguments)
    if dist.get_rank() == 0:
        if arguments.json:
            print(json.dumps(result))
        else:
            print(
                f"{result['backend']}, {result['way']}: {result['ranks']} ranks, {result['steps']} steps, "
                f"mean {result['step_mean_ms']:.1f} ms, p99 {result['step_p99_ms']:.1f} ms; test loss "
                f"{result['tests'][-1][-1]:.4f}, missing {result['missing_share']:.2%}; "
                f"drift between replicas: {result['drift']}"
                + (f", at most {max(result['drifts'])} before" if result["drifts"] else "")
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
