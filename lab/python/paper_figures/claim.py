"""Claims: what a paper says, and the numbers that this repository computes or measures for it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from paper_figures.digits import estimate_text
from paper_figures.rows import Rows
from paper_figures.rows import load as load_rows
from paper_figures.shipped import FOLDER, Estimates, Times
from paper_figures.shipped import load as load_times
from paper_figures.verdict import ARITHMETIC, BY_ARITHMETIC, ERRORS, REPRODUCED, Statement, overall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings: TypeAlias = dict[str, Any]
# Numbers that are compared with those of a paper, by name.
Numbers: TypeAlias = dict[str, float]

#: For a folder of rows: the start of the conditions of all its claims.
COMMON = {
    "boxes": "NICs and boxes in virtual time; ",
    "collectives": "NICs and endpoints in virtual time; ",
    "vm": "Soft-RoCE of Linux in an emulated machine, whose rates say nothing beside ratios; ",
}


class Maker(Protocol):
    """The functions of the module of a claim: `numbers` returns numbers to compare, `draw` draws a plot."""

    def numbers(self, settings: Settings) -> Numbers:
        """Return the numbers that are compared with the paper's numbers."""

    def draw(self, settings: Settings) -> Figure:
        """Draw the paper's plot with our numbers."""


@runtime_checkable
class ShippedMaker(Maker, Protocol):
    """A maker that also compares simulations of the shipped protocols."""

    def shipped(self, settings: Settings, times: Times) -> Estimates:
        """Return the numbers that the simulated messages of the shipped protocols give."""

    def points(self, figure: Figure, settings: Settings, times: Times) -> None:
        """Add the simulated messages to the plot."""


@runtime_checkable
class ConditionedMaker(Maker, Protocol):
    """A maker that knows where and how its numbers were measured."""

    def conditions(self, settings: Settings) -> str:
        """Return the conditions as a sentence without a full stop."""


@runtime_checkable
class EstimatedMaker(Protocol):
    """A module of a claim that knows the standard errors of some of its numbers."""

    def errors(self, settings: Settings, rows: Rows) -> Numbers:
        """Return standard errors, by the names of the numbers."""


class RowsMaker(Protocol):
    """The functions of the module of a claim whose numbers come from rows."""

    def numbers(self, settings: Settings, rows: Rows) -> Numbers:
        """Return the numbers that are compared with the paper's numbers."""

    def draw(self, settings: Settings, rows: Rows) -> Figure:
        """Draw the paper's plot with our numbers."""


@dataclass(frozen=True)
class FromRows:
    """A maker whose numbers come from rows."""

    module: RowsMaker
    rows: Rows
    #: The conditions that all numbers of the folder have in common.
    common: str

    def numbers(self, settings: Settings) -> Numbers:
        """Return the numbers that are compared with the paper's numbers."""
        return self.module.numbers(settings, self.rows)

    def draw(self, settings: Settings) -> Figure:
        """Draw the paper's plot with our numbers."""
        return self.module.draw(settings, self.rows)

    def conditions(self, settings: Settings) -> str:
        """Return the conditions of the numbers."""
        return self.common + self.rows.conditions

    def errors(self, settings: Settings) -> Numbers:
        """Return the standard errors that are known."""
        module = self.module
        return module.errors(settings, self.rows) if isinstance(module, EstimatedMaker) else {}


@dataclass(frozen=True)
class Place:
    """The place of a paper's number in a plot, if the number is a position of the plot."""

    #: The number of the panel, from 1.
    panel: int
    #: The x of the number. None: the number holds all over the panel.
    x: float | None = None
    #: The axis of the number: y or x.
    axis: str = "y"


@dataclass(frozen=True)
class Number:
    """One number of the paper, and the bounds of our number."""

    name: str
    #: Description of the number.
    says: str
    #: The section or figure of the paper.
    source: str
    #: The bounds of our number, for the test that it stays as it is; 0 and infinite for speeds of a machine.
    low: float
    high: float
    #: The paper's number. If the paper states a range or a bound, its ends are below.
    paper: float | None = None
    paper_low: float | None = None
    paper_high: float | None = None
    #: The share of the paper's number by which ours may differ; None: the usual one (`verdict.TOLERANCE`).
    tolerance: float | None = None
    #: Whose the difference is: one of `verdict.CAUSES`. Empty if there is none.
    cause: str = ""
    #: The reason if our number differs.
    why: str = ""
    #: Why the number does not decide the verdict on its claim: one of `verdict.ROLES`. Empty if it decides.
    role: str = ""
    #: What our baseline is, where it is of another kind than the paper's.
    baseline: str = ""
    #: The place of the paper's number in the plot. None: it has none, as a ratio of two curves.
    at: Place | None = None

    @property
    def statement(self) -> Statement | None:
        """What the paper states of the number; None for an addition of ours."""
        if self.paper is not None:
            return Statement(self.paper, self.paper, self.tolerance)
        if self.paper_low is None and self.paper_high is None:
            return None
        low = -inf if self.paper_low is None else self.paper_low
        return Statement(low, inf if self.paper_high is None else self.paper_high, self.tolerance)

    @property
    def decides(self) -> bool:
        """Whether the verdict on the claim depends on the number."""
        return self.statement is not None and not self.role

    def holds(self, ours: float) -> bool:
        """Return whether our number is within the bounds."""
        return self.low <= ours <= self.high

    def verdict(self, ours: float, error: float = 0.0) -> str:
        """Return the verdict on our number; empty for an addition of ours."""
        found = self.statement.verdict(ours, error) if self.statement else ""
        return BY_ARITHMETIC if found == REPRODUCED and self.role == ARITHMETIC else found

    def deviation(self, ours: float) -> float | None:
        """Return our number divided by the paper's, minus one; None if the paper's number is 0 or unknown."""
        return ours / self.paper - 1 if self.paper else None


@dataclass(frozen=True)
class Claim:
    """A claim, which has a folder."""

    folder: Path
    title: str
    source: str
    claim: str
    settings: Settings
    expected: tuple[Number, ...]
    #: Whether the numbers are speeds of this machine. Otherwise they are computed or simulated.
    measured: bool = False
    #: Name of the folder with results as rows, beside the folders of the claims. Empty if the module of the
    #: claim computes or measures its numbers.
    rows: str = ""
    #: The figures whose rows the claim reads. Empty: that with the name of the claim.
    figures: Sequence[str] = ()
    #: The command that measures the numbers again. `make -C lab figures` draws them.
    command: str = "make -C lab figures"
    #: Assumptions, and parts of the claim that are not shown.
    note: str = ""

    @property
    def name(self) -> str:
        """The name of the folder, such as S9."""
        return self.folder.name

    @property
    def basis(self) -> str:
        """The kind of the claim's numbers, as the page names it."""
        return "measured" if self.measured else "simulated" if self.rows else "model"

    @property
    def maker(self) -> Maker:
        """The maker of the claim: the module with its name, and the rows if it has any."""
        module = import_module(f"paper_figures.{self.name.lower()}")
        if not self.rows:
            return module
        rows = load_rows(self.folder.parent / self.rows, *(self.figures or [self.name]))
        return FromRows(module, rows, COMMON.get(self.rows, ""))

    def errors(self) -> Numbers:
        """Return the standard errors of our numbers that are known."""
        maker = self.maker
        return maker.errors(self.settings) if isinstance(maker, FromRows) else {}

    def verdicts(self, ours: Numbers) -> dict[str, str]:
        """Return the verdicts on our numbers, without those of additions."""
        errors = self.errors()
        found = {
            number.name: number.verdict(ours[number.name], errors.get(number.name, 0.0))
            for number in self.expected
        }
        return {name: verdict for name, verdict in found.items() if verdict}

    def shown(self, ours: Numbers) -> dict[str, str]:
        """Return our numbers as text, with two standard errors where they are known."""
        errors = self.errors()
        return {name: estimate_text(value, ERRORS * errors.get(name, 0.0)) for name, value in ours.items()}

    def verdict(self, verdicts: dict[str, str]) -> str:
        """Return the verdict on the whole claim; by arithmetic if it states nothing else."""
        found = overall(verdicts[number.name] for number in self.expected if number.decides)
        return found or (BY_ARITHMETIC if BY_ARITHMETIC in verdicts.values() else "")

    @property
    def times(self) -> Times:
        """The simulated times of the shipped protocols: times of rings if the claim is about sites."""
        return load_times(self.folder.parent / FOLDER, rings="sites" in self.settings)


def load(folder: Path) -> Claim:
    """Read the claim of a folder."""
    with (folder / "claim.toml").open("rb") as file:
        content = tomllib.load(file)
    numbers = tuple(_number(**number) for number in content.pop("numbers"))
    return Claim(folder, expected=numbers, **content)


def _number(at: dict[str, Any] | None = None, **fields: Any) -> Number:
    return Number(**fields, at=Place(**at) if at else None)


def load_all(folder: Path) -> list[Claim]:
    """Read all claims below a folder, by paper and number."""
    folders = [file.parent for file in folder.glob("*/claim.toml")]
    if not folders:
        raise FileNotFoundError(f"{folder} has no folder with a claim.toml")
    return [load(folder) for folder in sorted(folders, key=_place)]


def _place(folder: Path) -> list[str | int]:
    """Return a key that sorts S9 before S10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", folder.name)]
