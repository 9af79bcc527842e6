"""DiLoCo between two sites, with torchft: a site dies and returns while the other one trains.

Each site trains on its own for a number of steps. Then the sites exchange what has changed in their weights.
Without `--lighthouse`, the program runs a lighthouse and two sites on this machine, kills one of them and
starts it again. `make torch-diloco` does this, in an environment that has torchft::

    python python/examples/diloco.py

On two machines, start `torchft_lighthouse --min_replicas 1` on one of them, and then a site on each::

    export FARWRITE_TORCH_KEY_FILE=~/job.key
    python python/examples/diloco.py --lighthouse http://10.0.0.1:29510 --name a
"""

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
import torchft
import torchft.coordination
import torchft.local_sgd
from torch import nn
from torch.nn.functional import cross_entropy
from torchft.checkpointing.pg_transport import PGTransport

import farwrite.torchft

#: Names of the sites of a run on one machine. The last one dies.
SITES = "ab"
#: The timeout of operations, of a quorum, and of connecting.
TIMEOUT = timedelta(seconds=60)


def digits(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Draw batches of 32 of the 1797 pictures of digits."""
    from sklearn.datasets import load_digits

    images, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(images), (32,), generator=generator)
        yield (images[chosen] / 16).float(), labels[chosen]


class Site:
    """A replica of torchft: a model, its two optimizers, and the manager that finds the other sites."""

    def __init__(self, name: str, lighthouse: str) -> None:
        torch.manual_seed(1)
        self.name = name
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        self.inner = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.outer = torch.optim.SGD(self.model.parameters(), lr=0.7, momentum=0.5, nesterov=True)
        # torchft wants a store for the ranks of a site, also where it has one rank.
        self._store = dist.TCPStore(socket.gethostname(), 0, is_master=True, wait_for_workers=False)
        group = farwrite.torchft.ProcessGroupFarwrite(TIMEOUT)
        self.manager = torchft.Manager(
            pg=group,
            # A site that joins gets the weights through the group too, and not by HTTP over TCP.
            checkpoint_transport=PGTransport(group, TIMEOUT, torch.device("cpu")),
            state_dict=self._state,
            load_state_dict=self._load,
            min_replica_size=1,
            use_async_quorum=False,
            timeout=TIMEOUT,
            quorum_timeout=TIMEOUT,
            connect_timeout=TIMEOUT,
            rank=0,
            world_size=1,
            store_addr=socket.gethostname(),
            store_port=self._store.port,
            lighthouse_addr=lighthouse,
            replica_id=name,
        )

    def _state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "inner": self.inner.state_dict()}

    def _load(self, state: dict[str, dict[str, object]]) -> None:
        self.model.load_state_dict(state["model"])
        self.inner.load_state_dict(state["inner"])

    def train(self, rounds: int, steps: int, pause: float) -> None:
        """Train until the sites have exchanged their changes `rounds` times. Print a line for each time."""
        batches = digits(seed=ord(self.name[0]))
        done, losses, since = self.manager.current_step(), [], time.monotonic()
        options = {"sync_every": steps, "pin_memory": False}
        with torchft.local_sgd.DiLoCo(self.manager, [self.model], self.inner, self.outer, **options):
            while done < rounds:
                images, labels = next(batches)
                loss = cross_entropy(self.model(images), labels)
                self.inner.zero_grad()
                loss.backward()
                # DiLoCo exchanges changes in this call, after each `steps` calls.
                self.inner.step()
                losses.append(loss.item())
                time.sleep(pause)
                if (now := self.manager.current_step()) != done:
                    done, mean = now, sum(losses) / len(losses)
                    print(f"{self.name}  {done:>5}  {self.manager.num_participants():>5}  {mean:>5.3f}  "
                          f"{time.monotonic() - since:>7.2f}", flush=True)  # fmt: skip
                    losses, since = [], time.monotonic()
        self.manager.shutdown()


def on_one_machine(arguments: argparse.Namespace) -> int:
    """Run a lighthouse and two sites, of which one dies and returns. Return the exit status."""
    # Only processes of this machine can read the store.
    os.environ["FARWRITE_TORCH_TRUSTED_STORE"] = "1"
    lighthouse = torchft.coordination.LighthouseServer("[::]:0", 1, join_timeout_ms=1000)
    command = [sys.executable, "-P", __file__, "--lighthouse", lighthouse.address()]
    command += [f"--{name}={getattr(arguments, name)}" for name in ("rounds", "steps", "pause")]
    start = partial(subprocess.Popen, stdout=subprocess.PIPE, text=True)
    print("site  round  sites   loss  seconds", flush=True)
    other, mortal = (start([*command, "--name", name]) for name in SITES)
    is_alone = threading.Event()
    follower = threading.Thread(target=follow, args=(other, is_alone))
    follower.start()
    for line in mortal.stdout:
        print(line, end="", flush=True)
        if int(line.split()[1]) >= arguments.kill_after:
            break
    mortal.kill()
    mortal.wait()
    print(f"{SITES[-1]} is dead", flush=True)
    is_alone.wait()
    print(f"{SITES[-1]} starts again", flush=True)
    returned = start([*command, "--name", SITES[-1]])
    follow(returned, threading.Event())
    follower.join()
    lighthouse.shutdown()
    return int(any(site.wait() != 0 for site in (other, returned)))


def follow(site: subprocess.Popen[str], is_alone: threading.Event) -> None:
    """Print the lines of a site. Set the event when it is alone or has ended."""
    for line in site.stdout:
        print(line, end="", flush=True)
        if int(line.split()[2]) == 1:
            is_alone.set()
    is_alone.set()


def main() -> int:
    """Run one site, or a run on one machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lighthouse", metavar="URL", help="where the lighthouse of torchft listens")
    parser.add_argument("--name", default="a", help="the name of this site (default: a)")
    parser.add_argument("--rounds", type=int, default=40, help="exchanges between the sites (default: 40)")
    parser.add_argument(
        "--steps", type=int, default=20, help="steps of a site between exchanges (default: 20)"
    )
    parser.add_argument("--pause", type=float, default=0.02, help="seconds of a step besides (default: 0.02)")
    parser.add_argument(
        "--kill-after", type=int, default=5, help="the round after which a site dies (default: 5)"
    )
    arguments = parser.parse_args()
    if arguments.lighthouse is None and arguments.rounds <= arguments.kill_after:
        parser.error("--rounds must be more than --kill-after")
    if arguments.lighthouse is None:
        return on_one_machine(arguments)
    site = Site(arguments.name, arguments.lighthouse)
    site.train(arguments.rounds, arguments.steps, arguments.pause)
    return 0


if __name__ == "__main__":
    sys.exit(main())
