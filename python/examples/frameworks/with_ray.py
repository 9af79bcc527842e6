"""Ray Train: `TorchConfig` takes the name of the backend. Start it with `python with_ray.py`."""

import sys
from pathlib import Path

import ray
import ray.train.torch
import torch


def train() -> None:
    """Train in one of the workers."""
    from data import loss_of, model, pictures, show

    network = ray.train.torch.prepare_model(model())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    batches = torch.utils.data.DataLoader(pictures(), batch_size=32, shuffle=True)
    for images, labels in ray.train.torch.prepare_data_loader(batches):
        loss = loss_of(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    show(loss.item())


# The workers import what this folder has, and farwrite from where this process has it.
paths = ":".join([str(Path(__file__).parent), *filter(None, sys.path)])
ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {
    "PYTHONPATH": paths, "FARWRITE_TORCH_TRUSTED_STORE": "1"}})  # fmt: skip
ray.train.torch.TorchTrainer(
    train,
    torch_config=ray.train.torch.TorchConfig(backend="farwrite"),
    scaling_config=ray.train.ScalingConfig(num_workers=2),
).fit()
