"""Reliable transfers over networks that lose packets: models, simulations and a PyTorch backend.

- `farwrite.model` computes distributions of completion times.
- `farwrite.plan` chooses the scheme that is fastest for a message on a path.
- `farwrite.sim` simulates flows in networks.
- `farwrite.torch` is a backend of `torch.distributed`.
"""
