"""Keys of groups: 32 secret bytes, in memory, in a file or behind a descriptor."""

from __future__ import annotations

import os

from farwrite.torch.problems import problem

KEY_BYTES = 32
#: More than any form of a key has.
_MOST_BYTES = 128


def read_key(source: object, name: str) -> bytes:
    """Return the key in a file or behind an open descriptor, or the bytes themselves.

    A file or descriptor has 32 bytes, or 64 hexadecimal digits. A descriptor is read and stays open.

    Parameters
    ----------
    source
        Bytes, a path or the number of a descriptor. Text is refused, because it may be the key, and messages
        show paths.
    name
        What messages call the source.

    Raises
    ------
    TypeError, ValueError
        If there is no key; the message does not contain any part of it.
    """
    if isinstance(source, bytes):
        if len(source) != KEY_BYTES:
            raise ValueError(problem(f"{name} has {len(source)} bytes: must have {KEY_BYTES}"))
        return source
    if isinstance(source, bool) or not isinstance(source, int | os.PathLike):
        raise TypeError(
            problem(f"{name} is of {type(source).__name__}: must be bytes, a pathlib.Path or a descriptor")
        )
    try:
        with open(source, "rb", closefd=not isinstance(source, int)) as file:
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise ValueError(problem(f"{name}: {error.strerror}")) from error
    return parse_key(content, name)


def parse_key(content: bytes, name: str) -> bytes:
    """Return the key that a file has, or the text of a variable."""
    if len(content) == KEY_BYTES:
        return content
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(
            problem(f"{name}: must have {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal digits")
        )
    return key
