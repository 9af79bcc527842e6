"""Environment variables that set the defaults of options, for launchers and trainers that pass no options.

An argument of `Options` or `Exact` has precedence over its variable. The variable has precedence over the
built-in default.
"""

from __future__ import annotations

import os
from pathlib import Path

from farwrite.torch.keys import parse_key, read_key
from farwrite.torch.problems import problem

TRUSTED_STORE = "FARWRITE_TORCH_TRUSTED_STORE"
KEY_FILE = "FARWRITE_TORCH_KEY_FILE"
KEY = "FARWRITE_TORCH_KEY"
JOB = "FARWRITE_TORCH_JOB"
SCHEME = "FARWRITE_TORCH_SCHEME"
BOUNDED = "FARWRITE_TORCH_BOUNDED"
MAX_BPS = "FARWRITE_TORCH_MAX_BPS"
ADDRESS = "FARWRITE_TORCH_ADDRESS"
PORTS = "FARWRITE_TORCH_PORTS"
DEAD_AFTER = "FARWRITE_TORCH_DEAD_AFTER_S"
SITES = "FARWRITE_TORCH_SITES"
BUFFER_GROWTH = "FARWRITE_TORCH_BUFFER_GROWTH_BYTES"
#: The prefix of all variables. A variable with this prefix and another name is an error.
PREFIX = "FARWRITE_TORCH_"
_KNOWN = {
    TRUSTED_STORE, KEY_FILE, KEY, JOB, SCHEME, BOUNDED, MAX_BPS, ADDRESS, PORTS, DEAD_AFTER, SITES,
    BUFFER_GROWTH,
}  # fmt: skip


def check_names() -> None:
    """Raise ValueError if a variable has the prefix of these variables and an unknown name."""
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in _KNOWN)
    if unknown:
        raise ValueError(
            problem(f"{unknown[0]}: no such variable: must be one of {', '.join(sorted(_KNOWN))}")
        )


def trusted_store() -> bool:
    """Return whether only the ranks can read the store. The variable is `1` or `0`."""
    value = _get(TRUSTED_STORE) or "0"
    if value not in ("0", "1"):
        raise ValueError(problem(f"{TRUSTED_STORE}={value}: must be 1 or 0"))
    return value == "1"


def key() -> bytes | None:
    """Return the key of the file that a variable names, or the key in another variable; None without both."""
    file, text = _get(KEY_FILE), _get(KEY)
    if file is not None and text is not None:
        raise ValueError(problem(f"{KEY_FILE}={file}, {KEY}: set only one of the two"))
    if file is not None:
        return read_key(Path(file), f"{KEY_FILE}={file}")
    return None if text is None else parse_key(text.encode(errors="replace"), KEY)


def job() -> str:
    """Return the name of the job. Without the variable, it is that of `torchrun --rdzv-id`."""
    return _get(JOB) or _get("TORCHELASTIC_RUN_ID") or ""


def is_one_host() -> bool:
    """Return whether all ranks are on this machine. torchrun sets variables that say so."""
    local = _get("LOCAL_WORLD_SIZE")
    return local is not None and local == _get("WORLD_SIZE")


def sites() -> tuple[int, ...] | None:
    """Return the site of each rank. The variable is such as `0,0,1,1`."""
    value = _get(SITES)
    if value is None:
        return None
    numbers = value.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise ValueError(
            problem(f"{SITES}={value}: must be the number of a site for each rank, such as 0,0,1,1")
        )
    return tuple(int(number) for number in numbers)


def buffer_growth_bytes() -> int:
    """Return the number of bytes by which the buffers of a group may grow."""
    value = _get(BUFFER_GROWTH)
    if value is None:
        return 2**28
    if not value.isdecimal():
        raise ValueError(problem(f"{BUFFER_GROWTH}={value}: must be a number of bytes"))
    return int(value)


def scheme() -> str:
    """Return the scheme of exact operations."""
    return _get(SCHEME) or "auto"


def loss_target() -> float | None:
    """Return the loss target of bounded groups; None if groups are exact."""
    value = _get(BOUNDED)
    if value is None:
        return None
    try:
        target = float(value)
    except ValueError:
        target = 0.0
    if not 1e-6 <= target < 1:
        raise ValueError(
            problem(f"{BOUNDED}={value}: must be a share of bytes from 1e-6 to below 1, such as 0.01")
        )
    return target


def max_bps() -> int | None:
    """Return the highest rate in bits per second; None for no limit."""
    value = _get(MAX_BPS)
    if value is None:
        return None
    if not value.isdecimal() or not 0 < int(value) <= 2**62:
        raise ValueError(problem(f"{MAX_BPS}={value}: must be a number of bits per second from 1 to 2**62"))
    return int(value)


def address() -> str | None:
    """Return the address that this rank announces to the other ranks; None if the variable is not set."""
    return _get(ADDRESS)


def ports() -> tuple[int, int] | None:
    """Return the first and the last port that this rank may bind. The variable is such as `5000-5100`."""
    value = _get(PORTS)
    if value is None:
        return None
    first, dash, last = value.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()):
        raise ValueError(problem(f"{PORTS}={value}: must be two ports such as 5000-5100"))
    return int(first), int(last)


def dead_after_s() -> float:
    """Return the number of seconds without an answer after which a rank counts as dead."""
    value = _get(DEAD_AFTER)
    if value is None:
        return 5.0
    try:
        return float(value)
    except ValueError:
        raise ValueError(problem(f"{DEAD_AFTER}={value}: must be a number of seconds such as 5")) from None


def _get(name: str) -> str | None:
    """Return the value of a variable; None if it is not set or empty."""
    return os.environ.get(name) or None
