"""Results of sweeps: columns, and the settings that all rows have in common."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# The key of the settings in the metadata of a Parquet file.
METADATA = b"farwrite"
# The key of the types of the columns in the first line of a CSV file, which has the settings too.
TYPES = "column_types"
# The type of columns of texts, of any length.
TEXT = "text"
# The longest first line of a CSV file that is read; it has the settings.
MAX_SETTINGS_BYTES = 64 << 20


@dataclass(frozen=True)
class Table:
    """A table with one row for each point: the arguments that vary, and the results."""

    #: Columns by name. All columns have the same length.
    columns: dict[str, NDArray[Any]]
    #: The arguments that all points have in common, and the version of farwrite, as values that JSON can
    #: represent.
    settings: dict[str, Any]

    def __len__(self) -> int:
        """Return the number of rows."""
        return min((len(column) for column in self.columns.values()), default=0)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the column with this name."""
        return self.columns[name]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row, as values by column. ``pandas.DataFrame(table)`` takes them too."""
        for row in zip(*(column.tolist() for column in self.columns.values()), strict=True):
            yield dict(zip(self.columns, row, strict=True))

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame, with the settings as its ``attrs`` (needs pandas)."""
        import pandas as pd

        frame = pd.DataFrame(self.columns)
        frame.attrs.update(self.settings)
        return frame

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write a CSV file. Its first line has settings and types of columns as JSON, after ``# ``.

        Raises
        ------
        ValueError
            A setting has the name ``column_types``, which the first line has for the types.
        """
        if TYPES in self.settings:
            raise ValueError(f"settings has {TYPES}, which is the key of the types of columns: rename it")
        types = {name: kind for name, column in self.columns.items() if (kind := _kind(column.dtype))}
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {json.dumps({**self.settings, TYPES: types})}\n")
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(zip(*(column.tolist() for column in self.columns.values()), strict=True))

    def write_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file, with the settings as JSON in its metadata (needs pyarrow)."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(self.columns)
        table = table.replace_schema_metadata({METADATA: json.dumps(self.settings).encode()})
        pq.write_table(table, path)

    @classmethod
    def read_csv(cls, path: str | PathLike[str]) -> Table:
        """Read a file that `write_csv` wrote.

        Columns of booleans, numbers and texts have these types again. A column of other values has numbers
        (float64) if all its cells are numbers, and texts if not.

        Raises
        ------
        ValueError
            The file has no settings in its first line, or a cell does not have the type of its column.
        """
        with Path(path).open(newline="", encoding="utf-8") as file:
            # The limit is for other files, whose first line can have any length.
            first = file.readline(MAX_SETTINGS_BYTES)
            if not first.startswith("# {"):
                raise ValueError(
                    f"{path} has no settings in its first line, so it is not a sweep of farwrite"
                )
            rows: Iterator[list[str]] = csv.reader(file)
            names = next(rows)
            cells = list(rows)
        settings = json.loads(first[2:])
        types = settings.pop(TYPES, {})
        columns = {name: _column([row[i] for row in cells], types.get(name)) for i, name in enumerate(names)}
        return cls(columns, settings)

    @classmethod
    def read_parquet(cls, path: str | PathLike[str]) -> Table:
        """Read a file that `write_parquet` wrote (needs pyarrow).

        Raises
        ------
        ValueError
            The metadata of the file has no settings.
        """
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        metadata = table.schema.metadata or {}
        if METADATA not in metadata:
            raise ValueError(f"{path} has no settings in its metadata, so it is not a sweep of farwrite")
        columns = {name: np.asarray(table[name].to_pylist()) for name in table.column_names}
        return cls(columns, json.loads(metadata[METADATA]))


def _kind(dtype: np.dtype[Any]) -> str | None:
    """Return the type of a column for the first line of a CSV file. None: it is left out."""
    if dtype.kind in "UT":
        return TEXT
    return dtype.str if dtype.kind in "biuf" else None


def _column(texts: list[str], kind: str | None) -> NDArray[Any]:
    """Return a column of this type. None: float64 if all texts are numbers."""
    if kind is None:
        try:
            return np.array([float(text) for text in texts])
        except ValueError:
            return np.array(texts)
    if kind == TEXT:
        return np.array(texts, np.str_)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        wrong = [text for text in texts if text not in ("True", "False")]
        if wrong:
            raise ValueError(f"{wrong[0]!r} in a column of booleans: must be True or False")
        return np.array([text == "True" for text in texts], dtype)
    if dtype.kind in "iu":
        return np.array([int(text) for text in texts], dtype)
    return np.array([float(text) for text in texts], dtype)
