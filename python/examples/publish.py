"""A trainer publishes versions of a model, and two sites generate text with each one.

On one machine: `python python/examples/publish.py`. Several machines need a key (docs/torch.md): call
`train` on the first one, and `generate` on the others with the address of the first one.
"""

from datetime import timedelta
from multiprocessing import get_context

import torch
from torch import nn
from torch.distributed import TCPStore

from farwrite.torch.weights import Publisher, Subscriber

TEXT = "the trainer publishes weights, and the sites generate. " * 20
LETTERS = sorted(set(TEXT))
VERSIONS = 5


def model() -> nn.Module:
    """Return a model that predicts a letter from the letter before it."""
    return nn.Sequential(nn.Embedding(len(LETTERS), 32), nn.Linear(32, len(LETTERS)))


def train(store: TCPStore, sites: int) -> None:
    """Train. After each 20 steps, publish a version, and wait until all sites have it."""
    trained = model()
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.03)
    letters = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    with Publisher(store) as publisher:
        for _ in range(VERSIONS):
            for _ in range(20):
                optimizer.zero_grad()
                nn.functional.cross_entropy(trained(letters[:-1]), letters[1:]).backward()
                optimizer.step()
            if not publisher.wait(publisher.publish(trained.state_dict()), sites, timedelta(minutes=1)):
                raise SystemExit(f"sites are late: {publisher.sites()}")


def generate(site: int, host: str, port: int) -> None:
    """Generate text with each version that arrives."""
    served = model()
    with Subscriber(TCPStore(host, port, is_master=False)) as subscriber:
        while subscriber.version < VERSIONS:
            version, text = subscriber.receive(served.state_dict()), [0]
            for _ in range(60):
                text.append(int(torch.multinomial(served(torch.tensor(text[-1])).softmax(0), 1)))
            print(f"site {site}, version {version}:{''.join(LETTERS[letter] for letter in text)}", flush=True)


if __name__ == "__main__":
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start = get_context("spawn").Process
    sites = [start(target=generate, args=(site, "127.0.0.1", store.port)) for site in (1, 2)]
    for site in sites:
        site.start()
    train(store, len(sites))
    for site in sites:
        site.join()
