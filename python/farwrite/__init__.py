"""Reliable transfers over networks that lose packets: models, simulations and a PyTorch backend.

- `farwrite.model` computes distributions of the completion times of messages.
- `farwrite.plan` chooses the fastest scheme for a message on a path.
- `farwrite.sim` simulates flows in networks of switches.
- `farwrite.torch` is a backend of `torch.distributed`.
"""
