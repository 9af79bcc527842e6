"""A trace of what the groups of this process do."""

from __future__ import annotations

import atexit
from os import PathLike

from farwrite import _native


def trace(file: str | PathLike[str]) -> None:
    """Record in a new file what happens to each message of this process, and when.

    Call this once in a process, before the first group is made. ``farwrite trace FILE`` draws the file and
    shows what messages waited for; `docs/trace.md` of the repository describes it. It is complete when the
    process ends; a process that is killed leaves all but the newest events.

    Parameters
    ----------
    file
        The file. An existing one is replaced. Ranks need different files.

    Raises
    ------
    OSError
        If the file cannot be made, or if this process already has a trace.
    """
    atexit.register(_native.Trace(file).flush)
