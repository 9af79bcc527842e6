"""Leaves the groups of a process when it ends, so that the other ranks do not wait for this process."""

from __future__ import annotations

import atexit
import os
import sys
from multiprocessing import util
from typing import Protocol
from weakref import WeakSet


class OpenGroup(Protocol):
    """A group that this process has not left."""

    def announce_end(self, reason: str | None) -> None:
        """Inform the other ranks that this process ends, without waiting for them.

        `reason` says what has failed; it is None if nothing has failed.
        """

    def shutdown(self) -> None:
        """Leave the group. Wait until the other ranks have the data that they still need from this rank."""


_open: WeakSet[OpenGroup] = WeakSet()
#: The process that made the groups. A child process that is forked from it has no threads of these groups, so
#: it must not use the groups.
_process: int | None = None


def leave_at_exit(group: OpenGroup) -> None:
    """Leave a group when this process ends at its last line, by `sys.exit` or by an exception."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _open.clear()
        atexit.register(_leave)
        # In some versions of Python, a process of `multiprocessing` does not run the functions of `atexit`.
        util.Finalize(None, _leave, exitpriority=100)
    _open.add(group)


def forget(group: OpenGroup) -> None:
    """Do not leave a group at the end of the process, because the process has left it."""
    _open.discard(group)


def open_groups() -> list[OpenGroup]:
    """Return what this process has to leave when it ends."""
    return list(_open) if _process == os.getpid() else []


def _leave() -> None:
    reason, groups = _reason(), open_groups()
    # This rank informs the other ranks of all groups before it waits for the ranks of one group.
    for group in groups:
        group.announce_end(reason)
    for group in groups:
        group.shutdown()


def _reason() -> str | None:
    """Return the error that ends the process; None if no error is known."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):
        return None if error.code in (None, 0) else f"its process exits with {error.code!r}"
    if error is None:
        return None
    text = str(error).partition("\n")[0]
    return f"its process ends: {type(error).__name__}{': ' if text else ''}{text}"
