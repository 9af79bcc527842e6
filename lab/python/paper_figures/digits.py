"""Numbers as text, with no more digits than their intervals carry."""

from __future__ import annotations

from math import floor, inf, log10

#: Digits of a number whose interval is not known.
USUAL = 3
#: Below this, numbers are written with a power of ten.
SMALL = 1e-3


def number_text(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.{USUAL}g}"


def estimate_text(value: float, half: float, *, has_interval: bool = True) -> str:
    """Return a number whose interval of 95% reaches `half` to each side, and the interval.

    The last digit is that of the first digit of the interval, or the next one if that is a 1. A number with
    an interval of 0, NaN or infinity, one below its third digit, and a number below `SMALL` have three digits
    and no interval.
    """
    if not 0 < half < inf or abs(value) < SMALL:
        return number_text(value)
    place = floor(log10(half))
    decimals = -place + (half < 2 * 10**place)
    third = USUAL - 1 - floor(log10(abs(value)))
    if decimals > third:
        return number_text(value)
    shown = max(decimals, 0)
    text = f"{round(value, decimals):.{shown}f}"
    return f"{text} ± {round(half, decimals):.{shown}f}" if has_interval else text
