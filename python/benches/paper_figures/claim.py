"""Claims: what the paper says, and what we get."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from paper_figures.rows import Rows
from paper_figures.rows import load as load_rows
from paper_figures.shipped import FOLDER, Times
from paper_figures.shipped import load as load_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings: TypeAlias = dict[str, Any]
# What is compared, by name.
Numbers: TypeAlias = dict[str, float]

#: Begins the conditions of all claims with rows of a folder.
COMMON = {
    "boxes": "NICs and boxes in virtual time; ",
    "collectives": "NICs and endpoints in virtual time; ",
}


class Maker(Protocol):
    """What the module of a claim has: `numbers` to be compared, and `draw` for the eye."""

    def numbers(self, settings: Settings) -> Numbers:
        """What is compared with the paper."""

    def draw(self, settings: Settings) -> Figure:
        """Make a plot like the paper's."""


@runtime_checkable
class ShippedMaker(Maker, Protocol):
    """A maker that also compares the shipped protocols, as simulated."""

    def shipped(self, settings: Settings, times: Times) -> Numbers:
        """Those of the numbers that the simulated messages give."""

    def points(self, figure: Figure, settings: Settings, times: Times) -> None:
        """Add the simulated messages to the plot."""


@runtime_checkable
class ConditionedMaker(Maker, Protocol):
    """A maker that can say where and how its numbers were measured."""

    def conditions(self, settings: Settings) -> str:
        """Say it in a sentence without a full stop."""


class RowsMaker(Protocol):
    """What the module of a claim has whose numbers come from rows."""

    def numbers(self, settings: Settings, rows: Rows) -> Numbers:
        """What is compared with the paper."""

    def draw(self, settings: Settings, rows: Rows) -> Figure:
        """Make a plot like the paper's."""


@dataclass(frozen=True)
class FromRows:
    """A maker over rows."""

    module: RowsMaker
    rows: Rows
    #: What all numbers of the folder have in common.
    common: str

    def numbers(self, settings: Settings) -> Numbers:
        """What is compared with the paper."""
        return self.module.numbers(settings, self.rows)

    def draw(self, settings: Settings) -> Figure:
        """Make a plot like the paper's."""
        return self.module.draw(settings, self.rows)

    def conditions(self, settings: Settings) -> str:
        """Say how the numbers came about."""
        return self.common + self.rows.conditions


@dataclass(frozen=True)
class Number:
    """One number of the paper, and the bounds that ours must keep."""

    name: str
    #: What it is, in words.
    says: str
    #: The paper's; None where it gives a trend.
    paper: float | None
    #: Section or figure.
    source: str
    #: 0 and infinite for speeds of a machine.
    low: float
    high: float
    #: Why ours differs, where it does.
    why: str = ""

    def holds(self, ours: float) -> bool:
        """Whether ours keeps the bounds."""
        return self.low <= ours <= self.high

    def deviation(self, ours: float) -> float | None:
        """Ours over the paper's, less one; None where the paper's is zero."""
        return ours / self.paper - 1 if self.paper else None


@dataclass(frozen=True)
class Claim:
    """A folder."""

    folder: Path
    title: str
    source: str
    claim: str
    settings: Settings
    expected: tuple[Number, ...]
    #: Whether numbers are speeds of this machine, rather than the model's.
    measured: bool = False
    #: Name of the folder with results as rows, beside the folders of the claims. Empty if the numbers come
    #: from elsewhere.
    rows: str = ""
    #: What was assumed, or is not shown.
    note: str = ""

    @property
    def name(self) -> str:
        """As in the folder's name, such as S9."""
        return self.folder.name

    @property
    def basis(self) -> str:
        """Return the kind of its numbers, as the page names it."""
        return "measured" if self.measured else "simulated" if self.rows else "model"

    @property
    def maker(self) -> Maker:
        """Return what makes it: the module of its name, with its rows if it has any."""
        module = import_module(f"paper_figures.{self.name.lower()}")
        if not self.rows:
            return module
        rows = load_rows(self.folder.parent / self.rows, self.name)
        return FromRows(module, rows, COMMON.get(self.rows, ""))

    @property
    def times(self) -> Times:
        """Return the times of the shipped protocols: of rings where the claim is about sites."""
        return load_times(self.folder.parent / FOLDER, rings="sites" in self.settings)


def load(folder: Path) -> Claim:
    """Read one folder's claim."""
    with (folder / "claim.toml").open("rb") as file:
        content = tomllib.load(file)
    numbers = tuple(Number(**{"paper": None, **number}) for number in content.pop("numbers"))
    return Claim(folder, expected=numbers, **content)


def load_all(folder: Path) -> list[Claim]:
    """Read all claims below a folder, by paper and number."""
    folders = [file.parent for file in folder.glob("*/claim.toml")]
    if not folders:
        raise FileNotFoundError(f"{folder} has no folder with a claim.toml")
    return [load(folder) for folder in sorted(folders, key=_place)]


def _place(folder: Path) -> list[str | int]:
    """S9 comes before S10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", folder.name)]
