"""Simulations of flows in networks in virtual time, as ``farwrite sim`` runs them.

A plan is the TOML text that ``farwrite sim`` takes, the `pathlib.Path` of a file with this text, or a dict
with the keys of this text. ``docs/sim.md`` in the repository lists the keys. `run` simulates one run of a
plan. `sweep` simulates all runs, in this process or with any `concurrent.futures.Executor`. `compare`
compares the completion times of a run with those of another simulator. A subclass of `Controller` sets the
rate of flows. A plan has the same results on every machine.
"""

from farwrite.sim.compare import compare
from farwrite.sim.controller import Controller
from farwrite.sim.plan import Plan, to_toml
from farwrite.sim.results import Results
from farwrite.sim.sweep import run, sweep

__all__ = ["Controller", "Plan", "Results", "compare", "run", "sweep", "to_toml"]
