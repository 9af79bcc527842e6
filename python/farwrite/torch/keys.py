"""Keys of groups: 32 secret bytes, in memory, in a file or in an open descriptor."""

from __future__ import annotations

import os

from farwrite.torch.problems import problem

KEY_BYTES = 32
#: The most bytes that are read from a file: more than any form of a key has.
_MOST_BYTES = 128


def read_key(source: object, name: str) -> bytes:
    """Return the key that a file or an open descriptor contains, or that is passed as bytes.

    A file or a descriptor contains 32 bytes, or 64 hexadecimal digits. A descriptor stays open.

    Parameters
    ----------
    source
        The key as bytes, the path of a file, or the number of a descriptor. Text is refused: it may be the
        key, and error messages contain the path.
    name
        The name of the source in error messages.

    Raises
    ------
    TypeError, ValueError
        If the source has no valid key. The message contains no part of the key.
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
    """Return the key from the content of a file, or from the text of a variable."""
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
