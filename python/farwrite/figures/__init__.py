"""The figures of SDR-RDMA that rest on the model, made anew and held against the paper's numbers.

A figure is a folder with a ``claim.toml``: what the paper claims and where, the settings, and the paper's
numbers, each with the bounds that ours must keep. To ask something else, copy a folder and change its
settings.

``python -m farwrite.figures figures --page out/figures.html`` makes them all (needs matplotlib): in each
folder ``plot.svg`` and ``results.json``, and a page that shows each beside its claim.
"""

from farwrite.figures.claim import Claim, Number, load

__all__ = ["Claim", "Number", "load"]
