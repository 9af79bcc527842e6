"""Ratios of the times of backends: how many times sooner one ends than another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

#: The backends that others are compared with: TCP, Go-Back-N, and exact operations with parity.
BASES = ("gloo", "gbn", "exact-ec")


def ratios(what: str, times: Mapping[str, float]) -> Iterator[str]:
    """Yield a table: the time of each base that ran, divided by the time of each backend.

    `what` names the time. A time that is infinite or 0 is not known, and neither are its ratios.
    """
    bases = [base for base in BASES if base in times]
    if not bases or len(times) < 2:
        return
    yield f"{'':>12}  {what} of " + "".join(f"{base:>10}" for base in bases) + ", over that of the row"
    for backend, own in times.items():
        yield f"{backend:>12}  {'':>{len(what) + 4}}" + "".join(
            f"{_ratio(times[base], own):>10}" for base in bases
        )


def _ratio(base: float, own: float) -> str:
    known = all(isfinite(time) and time > 0 for time in (base, own))
    return f"{base / own:.2f}" if known else "unknown"
