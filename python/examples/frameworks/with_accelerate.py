"""Accelerate: it uses a group that exists already.

Start it with `torchrun --nproc-per-node 2 with_accelerate.py`.
"""

import accelerate
import torch
import torch.distributed as dist
from data import loss_of, model, pictures, show

dist.init_process_group("farwrite")
accelerator = accelerate.Accelerator(cpu=True)
network = model()
batches = torch.utils.data.DataLoader(pictures(), batch_size=32, shuffle=True)
network, optimizer, batches = accelerator.prepare(
    network, torch.optim.SGD(network.parameters(), lr=0.1), batches
)
for images, labels in batches:
    loss = loss_of(network(images), labels)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
show(loss.item())
dist.destroy_process_group()
