"""How long reliable writes over long, fast, lossy links take.

`farwrite.model` has distributions of completion times, `farwrite.plan` the planner that chooses a scheme
by them, `farwrite.sim` simulations of flows in networks. `farwrite.torch` is a backend of
`torch.distributed`.
"""
