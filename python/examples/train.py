"""Data-parallel training of a small model: digits of scikit-learn, or the bytes of a text.

`--backend gloo` runs the same over TCP. Start it with torchrun, on one machine or several::

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

import farwrite.torch  # the first of two lines: it registers the backend

#: First steps of a run, which take longer than later ones.
UNTIMED = 5


class Digits:
    """1797 pictures of 8 x 8 points, and a network of three layers; its gradients have 1.2 MB."""

    def __init__(self, seed: int) -> None:
        # Only this task needs scikit-learn.
        from sklearn.datasets import load_digits

        images, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        self.test = (images[order[:360]] / 16).float(), labels[order[:360]]
        self._train = (images[order[360:]] / 16).float(), labels[order[360:]]
        layers = [nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
        self.model = nn.Sequential(*layers)

    def optimizer(self) -> torch.optim.Optimizer:
        """Make the optimizer of the model's weights, as they are now."""
        return torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

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
        self._train, test = self.read()
        self.test = self._windows(test, torch.arange(0, len(test) - self.CONTEXT - 1, self.CONTEXT))
        self.model = Transformer(self.CONTEXT)

    @classmethod
    def read(cls) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bytes to learn from, and those for tests."""
        files = sorted(path for path in cls.FOLDER.iterdir() if not path.is_symlink())
        texts = [path.read_bytes() for path in files if path.name != "MPL-2.0"]
        test = (cls.FOLDER / "MPL-2.0").read_bytes()
        learnt, held = (
            torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in (b"".join(texts), test)
        )
        return learnt.long(), held.long()

    def optimizer(self) -> torch.optim.Optimizer:
        """Make the optimizer of the model's weights, as they are now."""
        return torch.optim.AdamW(self.model.parameters(), lr=2e-3)

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
    if arguments.bounded is not None:
        policy = farwrite.torch.Bounded(
            arguments.bounded,
            hadamard_block=arguments.hadamard,
            exact=farwrite.torch.Exact(**({"scheme": arguments.exact} if arguments.exact else {})),
            parts="bounded" if arguments.resynchronise else "exact",
        )
    # The second line: a store on a network that only the ranks use.
    options = farwrite.torch.Options(
        trusted_store=True, policy=policy, missing_log=arguments.log, replay_log=arguments.replay
    )
    if arguments.trace:
        farwrite.torch.trace(arguments.trace / f"rank-{os.environ['RANK']}.jsonl")
    dist.init_process_group("farwrite", pg_options=options)


class Alone:
    """Training without other ranks."""

    def __init__(self, task: Digits | Text) -> None:
        self.model: nn.Module = task.model
        self.optimizer = task.optimizer()

    def learn(self, loss: torch.Tensor) -> None:
        """Change the weights by the gradients of a loss."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        """Return all weights, as this rank computes with them. All ranks must call it."""
        return [parameter.detach() for parameter in self.model.parameters()]


class Replicas(Alone):
    """Every rank has all weights: `DistributedDataParallel`."""

    def __init__(self, task: Digits | Text) -> None:
        super().__init__(task)
        self.model = DistributedDataParallel(task.model)


class Shards(Alone):
    """Every rank has a part of all weights: FSDP2."""

    def __init__(self, task: Digits | Text) -> None:
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(task.model, mesh=mesh)
        super().__init__(task)

    def weights(self) -> list[torch.Tensor]:
        """Return all weights, as this rank computes with them. All ranks must call it."""
        self.model.unshard()
        whole = [parameter.detach().clone() for parameter in self.model.parameters()]
        self.model.reshard()
        return whole


class Zero3:
    """Every rank has a part of all weights: ZeRO-3 of DeepSpeed."""

    def __init__(self, task: Digits | Text) -> None:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        os.environ.setdefault("LOCAL_RANK", "0")
        import deepspeed
        import deepspeed.ops

        self._zero = deepspeed.zero
        # DeepSpeed's operation through shared memory would need a compiler. Training does not use it.
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
                # As the others do; else gradients are scaled to a norm of 1.
                "gradient_clipping": 0.0,
            },
        )

    def learn(self, loss: torch.Tensor) -> None:
        """Change the weights by the gradients of a loss."""
        self.model.backward(loss)
        self.model.step()

    def weights(self) -> list[torch.Tensor]:
        """Return all weights, as this rank computes with them. All ranks must call it."""
        parameters = list(self.model.parameters())
        with self._zero.GatheredParameters(parameters):
            return [parameter.detach().clone() for parameter in parameters]


#: How weights lie on ranks, by the name of an option.
WAYS = {"ddp": Replicas, "fsdp2": Shards, "zero3": Zero3}


def drift(weights: list[torch.Tensor], group: dist.ProcessGroup | None = None) -> float:
    """Return the largest difference between a weight of two ranks; 0 only where no weight differs.

    Weights travel as integers, which no policy leaves out.
    """
    bits = torch.cat([weight.flatten() for weight in weights]).view(torch.int32)
    everyone = [torch.empty_like(bits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, bits, group)
    replicas = torch.stack(everyone).view(torch.float32).double()
    differences = replicas.amax(0) - replicas.amin(0)
    # Where all ranks have the same bits, there is no difference, even if they are no number.
    differences[(torch.stack(everyone) == bits).all(0)] = 0
    return float(differences.nan_to_num(nan=torch.inf).max())


def resynchronise(way: Alone | Zero3, number: int, every: int) -> float | None:
    """Make weights and momentum equal at all ranks after each `every` steps, and return the drift."""
    optimizer = getattr(way, "optimizer", None)
    return farwrite.torch.resynchronise(way.model, number, every=every, optimizer=optimizer)


def step(task: Digits | Text, way: Alone | Zero3, generator: torch.Generator) -> float:
    """Do one step, and return how many seconds it took."""
    begin = time.monotonic()
    inputs, labels = task.batch(generator)
    way.learn(cross_entropy(way.model(inputs), labels))
    return time.monotonic() - begin


def mean_over_ranks(values: list[float]) -> list[float]:
    """Return means over all ranks. All ranks must call it."""
    means = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(means)
    return (means / dist.get_world_size()).tolist()


def train(task: Digits | Text, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train. Return the times of steps, and for each test its time in seconds, its step and its loss."""
    generator = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    # What a step takes without the other ranks, for the share of communication.
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
    """Train, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=("digits", "text"), default="digits")
    parser.add_argument("--way", choices=WAYS, default="ddp", help="how weights lie on ranks")
    parser.add_argument("--backend", default="farwrite")
    parser.add_argument(
        "--bounded", type=float, help="a share of gradients that may be missing, such as 0.02"
    )
    parser.add_argument("--hadamard", type=int, help="values of a block of the Hadamard transform")
    parser.add_argument("--exact", help="with --bounded: the scheme of exact operations")
    parser.add_argument(
        "--resynchronise",
        type=int,
        metavar="STEPS",
        help="with --bounded and ddp: whole all-reduces have a deadline, and replicas become equal after "
        "each STEPS steps",
    )
    parser.add_argument("--log", help="with --bounded: a folder for logs of what was missing")
    parser.add_argument("--replay", help="with --bounded: the folder of the logs of a run to repeat exactly")
    parser.add_argument("--trace", type=Path, help="a folder for a trace of each rank: docs/trace.md")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--test-every", type=int, default=20, help="steps between two tests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    if arguments.steps <= UNTIMED:
        parser.error(f"--steps {arguments.steps}: must be more than {UNTIMED}, which are not timed")

    for name in ("exact", "hadamard"):
        if getattr(arguments, name) != parser.get_default(name) and arguments.bounded is None:
            parser.error(f"--{name} {getattr(arguments, name)}: needs --bounded")
    for name in ("bounded", "log", "replay", "trace"):
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
