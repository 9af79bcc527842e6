"""Completion times beside those of another simulator."""

from __future__ import annotations

from importlib.metadata import version
from os import PathLike

import numpy as np

from farwrite import _native
from farwrite.model.table import Table
from farwrite.sim.plan import Plan, text_of
from farwrite.sim.results import column
from farwrite.sim.sweep import checked

NUMBERS = ("flow", "line", "src", "dst", "bytes", "planned_ns", "their_start_ns", "fct_ns", "their_fct_ns")


def compare(plan: Plan, file: str | PathLike[str], number: int = 0) -> Table:
    """Do one run of a plan, and put its completion times beside those of another simulator.

    This is what ``farwrite sim --compare`` does for each run.

    Parameters
    ----------
    plan
        As in `farwrite.sim.run`. Its workload is the other simulator's input.
    file
        Path of ``fct.txt`` of the RDMA trees of ns-3, or of a log of htsim.
    number
        Which run, from 0.

    Returns
    -------
    Table
        A row for each flow of the run, then a row for each flow that only the other simulator has. The
        columns are ``flow``, ``line`` of the file, ``src``, ``dst``, ``bytes``, the start in the input and in
        the file (``planned_ns``, ``their_start_ns``), the completion times (``fct_ns``,
        ``their_fct_ns``), their ``ratio`` (ours to theirs), and ``found``: ``both``, ``only_ours``,
        ``only_theirs``, ``not_done``, or ``no_start`` (the file has the end of the flow alone). A value that
        a row lacks is NaN.

    Raises
    ------
    ValueError
        The plan or the file is invalid, or the file has no flow of the plan's workload.
    IndexError
        The plan has no run of this number.
    """
    text, directory = text_of(plan)
    native = checked(_native.SimPlan(text, {}, directory))
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
