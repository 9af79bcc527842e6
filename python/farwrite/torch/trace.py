"""A trace of the messages of this process."""

from __future__ import annotations

import atexit
import os
from os import PathLike

from farwrite import _native
from farwrite.torch.group import Group
from farwrite.torch.process_exit import open_groups


def trace(file: str | PathLike[str]) -> None:
    """Record in a new file what happens to each message of this process, and when.

    Call this function once in a process, while it has no group. ``farwrite trace FILE`` draws the trace and
    shows what messages waited for. `docs/trace.md` of the repository describes the file. The file is complete
    when the process has ended. If the process is killed, the file lacks the newest events.

    Parameters
    ----------
    file
        The path of the file. An existing file is replaced. Each rank needs its own file.

    Raises
    ------
    OSError
        If the file cannot be made, or if this process already writes a trace.
    RuntimeError
        If this process has a group, whose messages the trace would lack.
    """
    if any(isinstance(group, Group) for group in open_groups()):
        raise RuntimeError(f"trace({str(file)!r}): call it while the process has no group")
    recorded, process = _native.Trace(file), os.getpid()

    def flush() -> None:
        # A process that is forked from this one has copies of events that this one writes itself.
        if os.getpid() == process:
            recorded.flush()

    atexit.register(flush)
