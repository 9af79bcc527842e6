"""Figures of five papers, made again and compared with the papers' numbers.

S is SDR-RDMA: its figures that rest on the model. L is LoWAR and N is NetRT: boxes and NICs in virtual time,
whose results ``make figures-boxes`` writes as CSV files. C is Celeris and O is OptiNIC. C2, O5 and O6 are
NICs and endpoints in virtual time (``make figures-collectives``). O2 is training and inference with drops
(``make figures-training``). O3 is training and O4 inference over a path (``make bench-train``,
``make bench-inference``). The others are tables of NICs from `farwrite.model.nic`, and the transform and
the timeouts (``make figures-optinic``).

A figure is a folder with a ``claim.toml``: what the paper claims and where, the settings, and the paper's
numbers, each with the bounds that ours must keep. To ask something else, copy a folder and change its
settings.

``make figures`` runs ``make_figures.py``, which makes them all: in each folder ``plot.svg`` and
``results.json``, and a page that shows each beside its claim.
"""

from paper_figures.claim import Claim, Number, load

__all__ = ["Claim", "Number", "load"]
