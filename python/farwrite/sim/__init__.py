"""Flows in networks in virtual time: what ``farwrite sim`` does.

A plan is the TOML text that ``farwrite sim`` takes, the path of such a file, or a dict of the same keys.
``docs/sim.md`` of the repository lists them. `run` does one run of a plan, and `sweep` all of them, here or
by any `concurrent.futures.Executor`. `compare` puts the completion times of a run beside those of another
simulator. The same plan gives the same results on every machine.
"""

from farwrite.sim.compare import compare
from farwrite.sim.plan import Plan, to_toml
from farwrite.sim.results import Results
from farwrite.sim.sweep import run, sweep

__all__ = ["Plan", "Results", "compare", "run", "sweep", "to_toml"]
