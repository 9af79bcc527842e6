"""Data-parallel training of a small model on scikit-learn's digits.

`--backend gloo` runs the same over TCP. Start it with torchrun, on one machine or several::

    torchrun --nproc-per-node 2 python/examples/train.py --epochs 5
"""

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import farwrite.torch  # the first of two lines: it registers the backend


def main() -> None:
    """Train, and print the accuracy and how long steps took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="farwrite")
    parser.add_argument(
        "--bounded", type=float, help="a share of gradients that may be missing, such as 0.02"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=512, help="of the hidden layers")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    if arguments.backend == "farwrite":
        target = arguments.bounded
        policy = farwrite.torch.Bounded(target) if target else farwrite.torch.Exact()
        # The second line: a store on a network that only the ranks use.
        dist.init_process_group(
            "farwrite", pg_options=farwrite.torch.Options(trusted_store=True, policy=policy)
        )
    else:
        dist.init_process_group(arguments.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()

    images, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    images = (images / 16).float()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(arguments.seed))
    tests, trainings = order[:360], order[360:]

    torch.manual_seed(arguments.seed)
    width = arguments.width
    hidden = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    model = DistributedDataParallel(nn.Sequential(*hidden))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    seconds = []
    for epoch in range(arguments.epochs):
        shuffled = trainings[torch.randperm(len(trainings), generator=torch.Generator().manual_seed(epoch))]
        for batch in shuffled[: len(shuffled) // (32 * ranks) * 32 * ranks].view(-1, ranks, 32)[:, rank]:
            begin = time.monotonic()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seconds.append(time.monotonic() - begin)
    if arguments.backend == "farwrite" and rank == 0:
        print(farwrite.torch.last_report())
    with torch.no_grad():
        outputs = model.module(images[tests])
    right = (outputs.argmax(1) == labels[tests]).float().mean().item()
    test_loss = nn.functional.cross_entropy(outputs, labels[tests]).item()
    if rank == 0:
        milliseconds = np.array(seconds[5:]) * 1e3
        print(
            f"{arguments.backend}: {ranks} ranks, {len(seconds)} steps, "
            f"step mean {milliseconds.mean():.1f} ms, p99 {np.quantile(milliseconds, 0.99):.1f} ms, "
            f"test loss {test_loss:.4f}, accuracy {right:.3f}"
        )
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    least, most = weights.clone(), weights.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"drift between replicas: {(most - least).max().item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
