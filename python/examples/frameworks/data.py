"""What the examples of frameworks share: pictures, a network, and a line that says what farwrite carried."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy as loss_of

import farwrite.torch

__all__ = ["loss_of", "model", "pictures", "show"]


def pictures() -> torch.utils.data.TensorDataset:
    """Return the 1797 pictures of digits of scikit-learn, of 8 x 8 points, with their digits."""
    from sklearn.datasets import load_digits

    images, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    return torch.utils.data.TensorDataset((images / 16).float(), labels)


def model() -> nn.Module:
    """Make the network. Its gradients have 76 KB."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def show(loss: float) -> None:
    """Print the loss, and what farwrite carried. Raise `TypeError` if the group has another backend."""
    report = farwrite.torch.step_report(dist.group.WORLD)
    carried = f"{report.operations} operations, {report.result_bytes / 1e6:.1f} MB"
    print(f"rank {dist.get_rank()}: loss {loss:.3f}; farwrite carried {carried}", flush=True)
