"""Runs of plans: one, or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, as_completed

from tqdm import tqdm

from farwrite import _native
from farwrite.sim.plan import Plan, text_of
from farwrite.sim.results import Ran, Results

KEY = ("topology", "workload", "switch", "transport", "loss", "seed")


def run(plan: Plan, number: int = 0) -> Results:
    """Do one run of a plan. Other threads of Python go on meanwhile.

    Parameters
    ----------
    plan
        A dict, TOML text, or the path of a file; files that it names lie beside it, or else in the working
        directory.
    number
        Which run, from 0, in the order of ``runs.csv``: topologies, workloads, switches, transports,
        losses, and seeds, the last varying fastest.

    Raises
    ------
    ValueError
        The plan is impossible; the text names the key, the value and what would do.

    Examples
    --------
    >>> cable = {"rate": "100Gbit", "delay": "1us"}
    >>> plan = {
    ...     "transport": ["roce-nocc", "farwrite-sr-nack"],
    ...     "topology": {"rack": {"shape": "star", "hosts": 16, "cable": cable}},
    ...     "workload": {"incast": {"pattern": "incast", "senders": 15, "size": "500kB"}},
    ... }
    >>> results = run(plan)
    >>> results.runs["transport"].tolist(), results.runs["done"].tolist()
    (['roce-nocc'], [15])
    >>> f"{results.flows['fct_ns'].mean() / 1e3:.1f} us"
    '606.9 us'
    """
    text, directory = text_of(plan)
    native = _native.SimPlan(text, {}, directory)
    return Results.of([_ran(native, number)], text, native.notes())


def sweep(plan: Plan, executor: Executor | None = None, *, progress: bool | None = None) -> Results:
    """Do all runs of a plan.

    Parameters
    ----------
    plan
        As in `run`.
    executor
        Any `concurrent.futures.Executor`: a thread or process pool, ``dask.distributed``'s
        ``Client.get_executor()``, ``mpi4py.futures.MPIPoolExecutor``, and so on. A run is a task; its worker
        needs farwrite installed, and gets the files that the plan names. None: one run after another here.
    progress
        Whether to show a bar. None: if standard error is a terminal, after a second.
    """
    text, directory = text_of(plan)
    native = _native.SimPlan(text, {}, directory)
    count = len(native.runs())
    ran: dict[int, Ran] = {}
    disable = None if progress is None else not progress
    with tqdm(total=count, unit=" runs", disable=disable, delay=1 if progress is None else 0) as bar:
        for number, result in _run_all(native, text, count, executor):
            ran[number] = result
            bar.update()
    return Results.of([ran[number] for number in range(count)], text, native.notes())


def _run_all(
    native: _native.SimPlan, text: str, count: int, executor: Executor | None
) -> Iterator[tuple[int, Ran]]:
    """Results with the number of their run, as they come."""
    if executor is None:
        for number in range(count):
            yield number, _ran(native, number)
        return
    files = native.files()
    futures: dict[Future[Ran], int] = {
        executor.submit(evaluate, text, files, number): number for number in range(count)
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def evaluate(text: str, files: Mapping[str, str], number: int) -> Ran:
    """One task: a run of a plan whose files are given."""
    return _ran(_native.SimPlan(text, files, "."), number)


def _ran(native: _native.SimPlan, number: int) -> Ran:
    counts, flows = native.run(number)
    row: dict[str, object] = {"run": number, **dict(zip(KEY, native.runs()[number], strict=True))}
    # The hash is text, since it may not fit the integers of a column.
    row |= {name: f"{count:016x}" if name == "trace" else count for name, count in counts}
    columns: dict[str, list[object]] = {"run": [number] * len(flows), "flow": list(range(len(flows)))}
    ends = [(src, dst, size, start, time) for src, dst, size, start, time, *_ in flows]
    for place, name in enumerate(("src", "dst", "bytes", "start_ns", "fct_ns")):
        columns[name] = [end[place] for end in ends]
    columns["ideal_ns"] = [flow[5] for flow in flows]
    columns["slowdown"] = [None if None in (flow[4], flow[5]) else _ratio(flow[4], flow[5]) for flow in flows]
    for place, name in enumerate(("packets", "repeated", "timeouts")):
        columns[name] = [flow[6][place] for flow in flows]
    columns["end"] = [flow[7] for flow in flows]
    return row, columns


def _ratio(time_ns: int | None, ideal_ns: float | None) -> float:
    assert time_ns is not None
    assert ideal_ns is not None
    return time_ns / ideal_ns
