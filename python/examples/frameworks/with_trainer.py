"""The Trainer of transformers: it uses a group that exists already.

Start it with `torchrun --nproc-per-node 2 with_trainer.py`.
"""

import tempfile

import torch
import torch.distributed as dist
import transformers
from data import loss_of, model, pictures, show
from torch import nn


class Network(nn.Module):
    """The network of all examples, which returns its loss as the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss and the scores of a batch."""
        scores = self.model(images)
        return {"loss": loss_of(scores, labels), "logits": scores}


dist.init_process_group("farwrite")
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(
        folder, use_cpu=True, max_steps=25, per_device_train_batch_size=32, optim="sgd", learning_rate=0.1,
        report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    rows = [{"images": images, "labels": labels} for images, labels in pictures()]
    result = transformers.Trainer(Network(), arguments, train_dataset=rows).train()
show(result.training_loss)
dist.destroy_process_group()
