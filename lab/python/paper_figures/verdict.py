"""Verdicts: whether a number of ours reproduces what a paper states.

A paper states a value, a range, or a bound. The rules are the same for all claims, and do not depend on our
number:

- *reproduced*: our number is within the tolerance of the value or of the range, or holds the bound. The
  tolerance is 10%, and none for a bound, unless the claim states another. If our number is an estimate with a
  known standard error, two of them count as its interval, and a part of the interval is enough.
- *partly*: a value or a range of two ends is missed by at most a factor of two.
- *not*: everything else. A bound is never partly held.

A claim is reproduced if all its numbers are, and not reproduced if none is. Everything between is partly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

#: The verdicts.
REPRODUCED, PARTLY, NOT = "reproduced", "partly", "not"
#: The share of the paper's value by which our number may differ.
TOLERANCE = 0.1
#: A value or range that is missed by at most this factor is partly reproduced.
FACTOR = 2.0
#: Standard errors on each side of an estimate that are its interval of 95%.
ERRORS = 2.0

#: What can be the reason for a verdict other than reproduced, as the page names it.
CAUSES = {
    "ours": "our baseline, setting or code",
    "open": "a setting that the paper leaves open",
    "paper": "the paper contradicts itself or its own formulas",
}


@dataclass(frozen=True)
class Statement:
    """What a paper states of a number: from `low` to `high`, which are equal for a value."""

    low: float
    high: float
    tolerance: float | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the paper states a bound: nothing below or nothing above."""
        return self.low == -inf or self.high == inf

    def verdict(self, ours: float, error: float = 0.0) -> str:
        """Return the verdict on our number, whose standard error is `error`."""
        room = ERRORS * error
        nearest = min(max(ours, self.low), self.high)
        usual = 0.0 if self.is_bound or not nearest else TOLERANCE
        tolerance = usual if self.tolerance is None else self.tolerance
        # A share of 0 is 0, so the tolerance of a 0 is in the unit of the number.
        room += tolerance * (abs(nearest) or 1.0)
        if abs(ours - nearest) <= room * (1 + 1e-9):
            return REPRODUCED
        if not self.is_bound and nearest and 1 / FACTOR <= ours / nearest <= FACTOR:
            return PARTLY
        return NOT


def overall(verdicts: Iterable[str]) -> str:
    """Return the verdict on a claim from those on its numbers; empty if the paper states none of them."""
    found = set(verdicts)
    if not found:
        return ""
    return found.pop() if len(found) == 1 else PARTLY
