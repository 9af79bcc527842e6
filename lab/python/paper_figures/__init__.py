"""Figures of five papers, drawn with our numbers, and compared with the papers' numbers.

The first letter of a figure's name is its paper. S is SDR-RDMA: its figures that follow from the model. L is
LoWAR and N is NetRT: boxes and NICs in virtual time, whose results ``make -C lab figures-boxes`` writes as
CSV files. C is Celeris and O is OptiNIC. C2, O5, O6 and OL are NICs and endpoints in virtual time (``make -C
lab figures-collectives``). O2 is training and inference with drops (``make -C lab figures-training``). O3 is
training and O4 is inference over a path (``make -C lab bench-train``, ``make -C lab bench-inference``). OT4
and OT5 are tables of NICs from `farwrite.model.nic`. O7, OA and OT3 are the Hadamard transform and the
timeouts, and OT4 has the bytes of queue pairs (``make -C lab figures-optinic``). LV and SV are RDMA devices
of the kernel in a virtual machine (``make -C lab figures-vm``). S2 is the loss of an emulated path (``make -C
lab figures-paths``).

A figure is a folder with a ``claim.toml``: the claim of the paper and its place, the settings, and the
paper's numbers, each with bounds for our number. A number with ``at`` is a position of the plot, where it is
drawn, and one with a ``role`` does not decide the verdict (`verdict.ROLES`). To examine other settings, copy
a folder and change its settings.

``make -C lab figures`` runs ``make_figures.py``, which makes all figures. It writes ``plot.svg`` and
``results.json`` into each folder, and a page that shows each figure with its claim.
"""

from paper_figures.claim import Claim, Number, load

__all__ = ["Claim", "Number", "load"]
