"""Messages of exceptions that are raised before a group exists."""

from __future__ import annotations

import os


def problem(text: str) -> str:
    """Return the text, after the rank if the launcher has set `RANK`, as torchrun does."""
    rank = os.environ.get("RANK")
    return text if rank is None else f"rank {rank}: {text}"
