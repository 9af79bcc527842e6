"""Simulation of one run or of all runs of a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path

from tqdm import tqdm

from farwrite import _native
from farwrite.sim.controller import Controller, Controllers, checked_controllers
from farwrite.sim.plan import Plan, text_of
from farwrite.sim.results import Ran, Results

#: A number in a list of Python takes up to this many times the bytes that it takes in a native outcome.
PYTHON_SIZE = 10
KEY = ("topology", "workload", "switch", "transport", "loss", "seed")
FLOW = (
    "src", "dst", "bytes", "start_ns", "fct_ns", "ideal_ns", "slowdown", "packets", "repeated", "timeouts",
    "missing_bytes", "endless_bps", "measured", "end", "ended_by",
)  # fmt: skip


def run(plan: Plan, number: int = 0, *, controllers: Controllers | None = None) -> Results:
    """Simulate one run of a plan. Other threads of Python can run during the simulation.

    Parameters
    ----------
    plan
        A dict, TOML text, or the `pathlib.Path` of a file. The files that a plan names are looked up in the
        folder of its file; for a dict or text, in the working directory.
    number
        The number of the run, from 0, in the order of ``runs.csv``: topologies, workloads, switches,
        transports, losses, and seeds, of which seeds vary fastest.
    controllers
        Subclasses of `Controller` by name. The transport ``"roce@mine"`` has the controller ``mine``. A
        controller with the name of a built-in one, such as ``dctcp``, takes its place.

    Returns
    -------
    Results
        The tables of this run.

    Raises
    ------
    ValueError
        The plan is invalid. The message names the key, its value and the valid values.
    IndexError
        The plan has no run with this number.
    MemoryError
        A run of the plan needs more memory than the machine has free.
    Exception
        What a controller raises, which ends the run. ValueError if its attributes are no limits.

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
    native = checked(_native.SimPlan(text, {}, directory, checked_controllers(controllers)))
    return Results.of([_ran(native, run_number(number))], text, native.notes())


def sweep(
    plan: Plan,
    executor: Executor | None = None,
    *,
    controllers: Controllers | None = None,
    progress: bool | None = None,
) -> Results:
    """Simulate all runs of a plan.

    Parameters
    ----------
    plan
        A plan, as in `run`.
    executor
        Any `concurrent.futures.Executor`: a thread or process pool, ``dask.distributed``'s
        ``Client.get_executor()``, and so on. Each run is a task. Farwrite must be installed for the workers.
        A task contains the files that the plan names. None: threads of this process, one for each core. A
        worker raises MemoryError if a run needs more memory than its machine has free. If a machine has
        several workers, choose their number so that their runs fit into its memory together.
    controllers
        As in `run`. Workers in other processes must be able to import them.
    progress
        Whether to show a progress bar. None: after one second, if standard error is a terminal.

    Returns
    -------
    Results
        The tables of all runs.

    Raises
    ------
    ValueError
        The plan is invalid. The message names the key, its value and the valid values.
    MemoryError
        The machine has too little free memory for the runs that are simulated at the same time, or for the
        results of all runs.
    """
    text, directory = text_of(plan)
    given = checked_controllers(controllers)
    native = _native.SimPlan(text, {}, directory, given)
    count = native.count()
    ran: dict[int, Ran] = {}
    disable = None if progress is None else not progress
    with tqdm(total=count, unit=" runs", disable=disable, delay=1 if progress is None else 0) as bar:
        for number, result in _run_all(native, text, count, executor, given):
            ran[number] = result
            bar.update()
    return Results.of([ran[number] for number in range(count)], text, native.notes())


def _run_all(
    native: _native.SimPlan, text: str, count: int, executor: Executor | None, given: Controllers
) -> Iterator[tuple[int, Ran]]:
    """Yield the number and the results of each run, in the order in which runs end."""
    run_bytes, results_bytes = native.memory_bytes()
    results_bytes *= PYTHON_SIZE
    if executor is None:
        threads = min(os.cpu_count() or 1, count)
        check_available(f"a sweep with {threads} threads", threads * run_bytes + results_bytes)
        # A simulation releases the interpreter's lock, so threads suffice.
        with ThreadPoolExecutor(threads) as pool:
            try:
                futures = {pool.submit(_ran, native, number): number for number in range(count)}
                yield from _as_they_come(futures)
            finally:
                # After Ctrl-C or an error, the pool waits for the runs in progress.
                native.stop()
        return
    check_available("a sweep", results_bytes)
    files = tuple(native.files().items())
    controllers = tuple(given.items())
    yield from _as_they_come(
        {executor.submit(evaluate, text, files, number, controllers): number for number in range(count)}
    )


def _as_they_come(futures: dict[Future[Ran], int]) -> Iterator[tuple[int, Ran]]:
    """Yield the number and the results of each run. An error cancels the runs that have not started."""
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def evaluate(
    text: str,
    files: tuple[tuple[str, str], ...],
    number: int,
    controllers: tuple[tuple[str, Callable[[int, int, int], Controller]], ...] = (),
) -> Ran:
    """Do one task: simulate a run of a plan whose files are given."""
    return _ran(_given(text, files, controllers), number)


# A worker does the tasks of one plan one after another, so it keeps one plan.
@lru_cache(maxsize=1)
def _given(
    text: str,
    files: tuple[tuple[str, str], ...],
    controllers: tuple[tuple[str, Callable[[int, int, int], Controller]], ...],
) -> _native.SimPlan:
    """Read a plan whose files are given. Raise MemoryError if a run of it does not fit into the memory."""
    return checked(_native.SimPlan(text, dict(files), ".", dict(controllers)))


def run_number(number: int) -> int:
    """Return the number of a run. Raise TypeError for a bool, which would be 0 or 1."""
    if isinstance(number, bool):
        raise TypeError(f"number = {number}: must be the whole number of a run")
    return number


def checked(native: _native.SimPlan) -> _native.SimPlan:
    """Return the plan. Raise MemoryError if one run of it needs more memory than is free."""
    run_bytes, _ = native.memory_bytes()
    check_available("a run", run_bytes)
    return native


def check_available(what: str, wanted: int) -> None:
    """Raise MemoryError if the machine has less than `wanted` bytes of memory free."""
    available = available_bytes()
    if available is not None and wanted > available:
        raise MemoryError(
            f"{what} needs {wanted / 2**20:,.0f} MiB of memory, and this machine has "
            f"{available / 2**20:,.0f} MiB free: use fewer workers, flows or seeds, or a smaller topology"
        )


def available_bytes() -> int | None:
    """Return the bytes that programs can still allocate (proc(5), MemAvailable); None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _ran(native: _native.SimPlan, number: int) -> Ran:
    counts, flows, (start_ns, interval_ns, samples) = native.run(number)
    row: dict[str, object] = {"run": number, **dict(zip(KEY, native.key(number), strict=True))}
    # The hash is text, because it can be too large for the integers of a column.
    row |= {name: f"{count:016x}" if name == "trace" else count for name, count in counts}
    columns: dict[str, list[object]] = {"run": [number] * len(flows), "flow": list(range(len(flows)))}
    columns |= {name: [] for name in FLOW}
    for src, dst, size, times, ideal, sent, endless_bps, measured, ends in flows:
        cells = (src, dst, size, *times, *ideal, *sent, endless_bps, measured, *ends)
        for name, value in zip(FLOW, cells, strict=True):
            columns[name].append(value)
    endless = [of[6] for of in flows if of[6] is not None]
    row["endless_bps"] = sum(endless) if endless else None
    row["queue_mean_bytes"] = sum(deepest for deepest, _ in samples) / max(len(samples), 1)
    queues: dict[str, list[object]] = {
        "run": [number] * len(samples),
        "time_ns": [start_ns + interval_ns * (place + 1) for place in range(len(samples))],
        "deepest_bytes": [deepest for deepest, _ in samples],
        "total_bytes": [total for _, total in samples],
    }
    return row, columns, queues
