"""Lightning: the strategy takes the name of the backend.

Start it with `torchrun --nproc-per-node 2 with_lightning.py`.
"""

import lightning
import torch
from data import loss_of, model, pictures, show
from lightning.pytorch.strategies import DDPStrategy


class Network(lightning.LightningModule):
    """The network of all examples, with the loss that Lightning asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model()

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return loss_of(self.model(images), labels)

    def on_train_batch_end(self, outputs: dict[str, torch.Tensor], *_: object) -> None:
        """Keep the loss of the last batch."""
        self.last = outputs["loss"].item()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


network = Network()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, max_epochs=1, strategy=DDPStrategy(process_group_backend="farwrite"),
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(network, torch.utils.data.DataLoader(pictures(), batch_size=32, shuffle=True))
show(network.last)
