"""Checks arguments, and broadcasts them against each other to columns with one entry for each point."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from farwrite import _native

# What callers may pass: one number or name, or an array of any shape. NumPy's ArrayLike would also accept
# strings for numbers.
Numbers: TypeAlias = float | Sequence[Any] | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]
Words: TypeAlias = str | Sequence[Any] | NDArray[np.str_]

Column: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Argument:
    """One argument as an array, with its name and its unit for error messages."""

    name: str
    unit: str
    values: NDArray[Any]


def numbers(name: str, unit: str, value: object) -> Argument:
    """Return `value` as an array of float64. Raise TypeError if a value is not a real number."""
    array = _array(name, unit, value)
    if array.dtype.kind == "O" and all(_is_real(item) for item in array.flat):
        # The array has fractions, or whole numbers of more than 64 bits.
        try:
            array = array.astype(np.float64)
        except OverflowError:
            raise ValueError(f"{name} ({unit}) has a number that is too large for a float64") from None
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} ({unit}) must be a number or an array of numbers, not {value!r}")
    return Argument(name, unit, array.astype(np.float64))


def counts(name: str, unit: str, value: object) -> Argument:
    """Return `value` as an array of whole numbers. Raise TypeError if a value is not a whole number."""
    array = _array(name, unit, value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} ({unit}) must be a whole number or an array of them, not {value!r}")
    if np.any(array < 0) or np.any(array >= 2**32):
        raise ValueError(f"{name} = {value} {unit}: must be from 0 up to 2^32 - 1")
    return Argument(name, unit, array)


def words(name: str, value: object) -> Argument:
    """Return `value` as an array of strings. Raise TypeError if a value is not a string."""
    array = _array(name, "a name", value)
    if array.size == 0:
        array = array.astype(np.str_)
    if array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat):
        array = array.astype(np.str_)
    if array.dtype.kind not in "UT":
        raise TypeError(f"{name} must be a string or an array of strings, not {value!r}")
    return Argument(name, "a name", array)


def whole(name: str, unit: str, value: object, low: int, high: int) -> int:
    """Return `value` as one whole number. Raise ValueError if it is not from `low` to `high`."""
    try:
        number = operator.index(cast(Any, value))
    except TypeError:
        raise TypeError(f"{name} ({unit}) must be one whole number, not {value!r}") from None
    if isinstance(value, bool | np.bool_) or not low <= number <= high:
        raise ValueError(f"{name} = {value} {unit}: must be from {low} to {high}")
    return number


def broadcast(arguments: Sequence[Argument | None]) -> tuple[tuple[int, ...], list[NDArray[Any]]]:
    """Return the shape to which the arguments broadcast, and a flat column for each of them.

    An argument that is None is ignored, and has no column.
    """
    given = [argument for argument in arguments if argument is not None]
    try:
        shape = np.broadcast_shapes(*(argument.values.shape for argument in given))
    except ValueError:
        shapes = ", ".join(
            f"{argument.name} ({argument.unit}) has shape {argument.values.shape}"
            for argument in given
            if argument.values.ndim > 0
        )
        raise ValueError(f"shapes do not broadcast against each other: {shapes}") from None
    return shape, [np.broadcast_to(argument.values, shape).ravel() for argument in given]


def shaped(column: Column, shape: tuple[int, ...]) -> Any:
    """Return the column as an array of this shape, or as a number if the shape is ()."""
    return column.reshape(shape)[()]


@contextmanager
def places(shape: tuple[int, ...]) -> Iterator[None]:
    """Add the index of a point, in an array of this shape, to the error of the point."""
    try:
        yield
    except _native.PointError as error:
        message, point = error.args
        if point is not None and shape != ():
            index = tuple(int(axis) for axis in np.unravel_index(point, shape))
            message = f"{message} (at index {index})"
        raise ValueError(message) from None


Evaluate: TypeAlias = Callable[[list[int], Column], Column]
EvaluateTwo: TypeAlias = Callable[[list[int], Column], tuple[Column, Column]]


def against(shape: tuple[int, ...], argument: Argument) -> tuple[tuple[int, ...], list[int], Column]:
    """Broadcast an argument against an array of points that has this shape.

    Return the broadcast shape, and two columns: the number of the point and the value of the argument.
    """
    points = Argument("the distribution", "points", np.arange(np.prod(shape, dtype=int)))
    points = Argument(points.name, points.unit, points.values.reshape(shape))
    joint, (which, column) = broadcast([points, argument])
    return joint, which.tolist(), column


def _array(name: str, unit: str, value: object) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} ({unit}) must not be a masked array: fill or drop the masked values")
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} ({unit}) has rows of different lengths") from None


def _is_real(item: object) -> bool:
    return isinstance(item, Real) and not isinstance(item, bool)
