"""Comparison of completion times with those of another simulator."""

from __future__ import annotations

from importlib.metadata import version
from os import PathLike

import numpy as np

from farwrite import _native
from farwrite.model.table import Table
from farwrite.sim.plan import Plan, text_of
from farwrite.sim.results import column
from farwrite.sim.sweep import checked, run_number

NUMBERS = ("flow", "line", "src", "dst", "bytes", "planned_ns", "their_start_ns", "fct_ns", "their_fct_ns")


def compare(plan: Plan, file: str | PathLike[str], number: int = 0) -> Table:
    """Simulate one run of a plan, and compare its completion times with those of another simulator.

    ``farwrite sim --compare`` does this for each run.

    Parameters
    ----------
    plan
        A plan, as in `farwrite.sim.run`. Its workload must be the input of the other simulator.
    file
        Path of the other simulator's results: ``fct.txt`` of the RDMA versions of ns-3, or a log of htsim.
    number
        The number of the run, from 0.

    Returns
    -------
    Table
        A row for each flow of the run, then a row for each flow that only the other simulator has. The
        columns are ``flow``, ``line`` of the file, ``src``, ``dst``, ``bytes``, the start in the input and in
        the file (``planned_ns``, ``their_start_ns``), the completion times (``fct_ns``, ``their_fct_ns``),
        ``ratio``, which is ``fct_ns`` divided by ``their_fct_ns``, and ``found``. ``found`` is ``both``,
        ``only_ours``, ``only_theirs``, ``not_done``, or ``no_start`` if the file has the end of the flow but
        not its start. Missing values are NaN.

    Raises
    ------
    ValueError
        The plan or the file is invalid, or the file has no flow of the plan's workload.
    IndexError
        The plan has no run with this number.
    """
    number = run_number(number)
    text, directory = text_of(plan)
    native = checked(_native.SimPlan(text, {}, directory, {}))
    name = str(file)
    rows = native.compare(number, name)
    if all(row[-1] in ("only_ours", "only_theirs") for row in rows):
        raise ValueError(
            f"{name}: none of its flows is in the workload of the plan: hosts, sizes and starts must agree"
        )
    values = [(*numbers, src, dst, size, *times) for numbers, src, dst, size, times, _ in rows]
    columns = {name: column([row[at] for row in values]) for at, name in enumerate(NUMBERS)}
    found = np.array([row[-1] for row in rows])
    ratio = np.asarray(columns["fct_ns"] / columns["their_fct_ns"], dtype=np.float64)
    columns["ratio"] = np.where(found == "both", ratio, np.nan)
    columns["found"] = found
    key = native.key(number)
    settings = {"plan": text, "file": name, "run": number, "seed": key[-1], "farwrite": version("farwrite")}
    return Table(columns, settings)
