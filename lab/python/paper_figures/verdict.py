"""Verdicts: whether a number of ours reproduces what a paper states.

A paper states a value, a range, or a bound. The rules are the same for all claims, and do not depend on our
number:

- *reproduced*: our number is within the tolerance of the value or of the range, or holds the bound. The
  tolerance is 10%, unless the claim states another. A bound has no tolerance: if our number is an estimate
  with a known standard error, two of them are its interval, and a part of the interval is enough. If the
  claim states a tolerance for a bound, it stands in place of the interval. The two never add up.
- *partly*: a value or a range of two ends is missed by at most a factor of two.
- *not*: everything else. A bound is never partly held.
- *by arithmetic*: a number that would be reproduced, and has the role `ARITHMETIC`.

A claim is reproduced if all its numbers are, and not reproduced if none is. Everything between is partly. One
statement of a paper is one number: numbers with a role do not decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

#: The verdicts.
REPRODUCED, PARTLY, NOT, BY_ARITHMETIC = "reproduced", "partly", "not", "by arithmetic"
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

#: The roles of numbers that do not decide the verdict on their claim, as the pages explain them.
ARITHMETIC, BASELINE, VARIANT = "arithmetic", "baseline", "variant"
ROLES = {
    ARITHMETIC: "compares a paper with itself or with its own formula, or is a bound that cannot fail",
    BASELINE: "is a bound about a baseline, and not about what the paper proposes",
    VARIANT: "is another setting or series of ours for a statement that another number has",
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
        nearest = min(max(ours, self.low), self.high)
        if self.is_bound and self.tolerance is None:
            room = ERRORS * error
        else:
            usual = TOLERANCE if nearest else 0.0
            # A share of 0 is 0, so the tolerance of a 0 is in the unit of the number.
            room = (usual if self.tolerance is None else self.tolerance) * (abs(nearest) or 1.0)
        if abs(ours - nearest) <= room * (1 + 1e-9):
            return REPRODUCED
        if not self.is_bound and nearest and 1 / FACTOR <= ours / nearest <= FACTOR:
            return PARTLY
        return NOT


def overall(verdicts: Iterable[str]) -> str:
    """Return the verdict on a claim from those on the numbers that decide; empty if none does."""
    found = set(verdicts)
    if not found:
        return ""
    if REPRODUCED not in found:
        return NOT
    return REPRODUCED if found == {REPRODUCED} else PARTLY
