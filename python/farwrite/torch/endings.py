"""The end of a process: its groups inform the other ranks, so that these do not wait for it."""

from __future__ import annotations

import atexit
import os
import sys
from multiprocessing import util
from typing import Protocol
from weakref import WeakSet


class Open(Protocol):
    """A group that this process has not left."""

    def announce_end(self, reason: str | None) -> None:
        """Inform the other ranks, and do not wait. ``reason`` is None if nothing has failed."""

    def shutdown(self) -> None:
        """Wait until the other ranks have what they still need of this one."""


_open: WeakSet[Open] = WeakSet()
#: The process that made the groups. A child process that is forked from it has no threads, so it must not
#: touch them.
_process: int | None = None


def leave_at_end(group: Open) -> None:
    """Leave a group when this process ends by itself: at its last line, by `sys.exit` or by an exception."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _open.clear()
        atexit.register(_leave)
        # Processes of `multiprocessing` do not run the functions of `atexit` in all versions of Python.
        util.Finalize(None, _leave, exitpriority=100)
    _open.add(group)


def forget(group: Open) -> None:
    """Forget a group that this process has left."""
    _open.discard(group)


def _leave() -> None:
    if _process != os.getpid():
        return
    reason, groups = _reason(), list(_open)
    # The other ranks of all groups are informed before this rank waits for those of one group.
    for group in groups:
        group.announce_end(reason)
    for group in groups:
        group.shutdown()


def _reason() -> str | None:
    """Return what ended the process; None if nothing has failed as far as is known."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):
        return None if error.code in (None, 0) else f"its process exits with {error.code!r}"
    if error is None:
        return None
    text = str(error).partition("\n")[0]
    return f"its process ends: {type(error).__name__}{': ' if text else ''}{text}"
