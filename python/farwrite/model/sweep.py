"""Sweeps: all combinations of lists of arguments, evaluated in this process or by an executor's workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, as_completed
from dataclasses import asdict
from importlib.metadata import version
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from farwrite.model.arguments import numbers, whole, words
from farwrite.model.completion import completion_time
from farwrite.model.loss import PROBABILITY, Markov
from farwrite.model.table import Table

Columns: TypeAlias = dict[str, NDArray[Any]]


def sweep(
    arguments: Mapping[str, object],
    quantiles: Iterable[float] = (0.5, 0.99, 0.999),
    executor: Executor | None = None,
    *,
    points_per_task: int = 256,
    progress: bool | None = None,
) -> Table:
    """Evaluate `completion_time` at all combinations of arguments.

    Parameters
    ----------
    arguments
        Arguments of `completion_time` by name. A list or array of one dimension is an axis. The points are
        the combinations of all axes, and the last axis varies fastest. Any other value applies to all points.
        A `Markov` whose fields are arrays is refused.
    quantiles
        The quantiles to evaluate in addition to the mean, as probabilities.
    executor
        Any `concurrent.futures.Executor`: a thread or process pool, ``dask.distributed``'s
        ``Client.get_executor()``, ``mpi4py.futures.MPIPoolExecutor``, and so on. Farwrite must be installed
        for its workers. None: this process evaluates all points.
    points_per_task
        Number of points of one task of a worker.
    progress
        Whether to show a progress bar. None: after one second, if standard error is a terminal.

    Returns
    -------
    Table
        One row for each point. The columns are the axes, ``mean_s``, and one column for each quantile, such
        as ``p99.9_s`` for 0.999. Times are in seconds.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, or is out of its range. The message names the argument, and the point
        whose evaluation failed.

    Examples
    --------
    >>> table = sweep({"scheme": ["sr-rto", "sr-nack"], "message_bytes": 2**27, "bandwidth_bps": 400e9,
    ...                "rtt_s": 25e-3, "loss_chunk": [1e-6, 1e-5]})
    >>> [f"{mean:.4f}" for mean in table["mean_s"]]
    ['0.0301', '0.0483', '0.0284', '0.0343']
    """
    known = signature(completion_time).parameters
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise TypeError(
            f"{unknown[0]} is no argument of completion_time: its arguments are {', '.join(known)}"
        )
    not_a_list = f"quantiles ({PROBABILITY}) must be a list of numbers, not {quantiles!r}"
    try:
        quantiles = list(quantiles)
    except TypeError:
        raise ValueError(not_a_list) from None
    levels = numbers("quantiles", PROBABILITY, quantiles).values
    if levels.ndim != 1:
        raise ValueError(not_a_list)
    points_per_task = whole("points_per_task", "points", points_per_task, 1, 2**31)
    given = levels.tolist()
    twice = [level for level in given if sum(_column(level) == _column(other) for other in given) > 1]
    if twice:
        name = _column(twice[0])
        same = [level for level in given if _column(level) == name]
        raise ValueError(f"quantiles has {same[0]!r} and {same[1]!r}, whose columns would both be {name}")
    for name, value in arguments.items():
        if isinstance(value, Markov) and any(np.ndim(of) > 0 for of in asdict(value).values()):
            raise ValueError(
                f"{name} has fields that are arrays: in a sweep, one Markov applies to all points"
            )
    axes = {name: _axis(name, value) for name, value in arguments.items() if _is_axis(value)}
    fixed = {name: value for name, value in arguments.items() if name not in axes}
    points: Columns = {}
    if axes:
        grid = np.meshgrid(*axes.values(), indexing="ij")
        points = {name: column.ravel() for name, column in zip(axes, grid, strict=True)}
    count = len(next(iter(points.values()))) if points else 1

    starts = range(0, count, points_per_task)
    tasks = [{name: column[at : at + points_per_task] for name, column in points.items()} for at in starts]
    results: list[Columns] = [{} for _ in tasks]
    disable = None if progress is None else not progress
    with tqdm(total=count, unit=" points", disable=disable, delay=1 if progress is None else 0) as bar:
        for number, result in _run(executor, tasks, fixed, levels.tolist()):
            results[number] = result
            bar.update(len(result["mean_s"]))
    columns = {name: np.concatenate([result[name] for result in results]) for name in results[0]}
    settings = {name: _plain(value) for name, value in fixed.items()}
    return Table(points | columns, {**settings, "farwrite": version("farwrite")})


def _run(
    executor: Executor | None, tasks: list[Columns], fixed: dict[str, Any], levels: list[float]
) -> Iterator[tuple[int, Columns]]:
    """Yield the number and the result of each task, in the order in which tasks end."""
    if executor is None:
        for number, points in enumerate(tasks):
            yield number, evaluate(points, fixed, levels)
        return
    futures: dict[Future[Columns], int] = {
        executor.submit(evaluate, points, fixed, levels): number for number, points in enumerate(tasks)
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def evaluate(points: Columns, fixed: dict[str, Any], levels: list[float]) -> Columns:
    """Do one task: return the mean and the quantiles of points, which are given by columns."""
    try:
        time = completion_time(**{**fixed, **points})
    except ValueError:
        # The error contains the arguments of the point, because its index in the task means nothing to a
        # user.
        for values in zip(*(column.tolist() for column in points.values()), strict=True):
            point = dict(zip(points, values, strict=True))
            try:
                completion_time(**{**fixed, **point})
            except ValueError as error:
                raise ValueError(f"{error} (at {point})") from None
        raise
    columns = {"mean_s": np.atleast_1d(time.mean)}
    for level in levels:
        columns[_column(level)] = np.atleast_1d(time.quantile(level))
    return columns


def _column(level: float) -> str:
    """Return the name of the column of a quantile. `level` can have up to twelve nines."""
    return f"p{round(level * 100, 10):.12g}_s"


def _plain(value: object) -> object:
    """Return the value of a setting in a type that JSON can represent."""
    if isinstance(value, Markov):
        return {name: _plain(of) for name, of in asdict(value).items()}
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _is_axis(value: object) -> bool:
    return not isinstance(value, str | Markov) and np.ndim(value) > 0  # type: ignore[arg-type]


def _axis(name: str, value: object) -> NDArray[Any]:
    axis = words(name, value) if name == "scheme" else numbers(name, "an axis of numbers", value)
    if axis.values.ndim != 1 or axis.values.size == 0:
        raise ValueError(
            f"{name} has shape {axis.values.shape}: an axis of a sweep must have one dimension, not empty"
        )
    return axis.values
