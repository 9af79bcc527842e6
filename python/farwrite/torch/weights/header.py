"""The header of a file of safetensors: what the values of a state dict are, and where they are.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

#: The longest header that safetensors reads, in bytes.
LONGEST = 100_000_000
_METADATA = "__metadata__"
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """A tensor of a state dict, without its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    #: The BLAKE2b digest of its values: 16 bytes, as hexadecimal digits.
    digest: str

    @property
    def nbytes(self) -> int:
        """The number of bytes of the values."""
        return prod(self.shape) * self.dtype.itemsize

    def describe(self) -> str:
        """Return the type and the shape in words."""
        return f"{self.dtype} of shape {list(self.shape)}"


def digest(values: NDArray[np.uint8]) -> str:
    """Return the digest of the values of a tensor."""
    return hashlib.blake2b(values.data, digest_size=16).hexdigest()


def check_type(name: str, tensor: torch.Tensor) -> None:
    """Raise TypeError if safetensors has no name for the type of a tensor, or for the tensor itself."""
    if tensor.dtype not in _NAMES:
        raise TypeError(
            f"tensor {name!r}: is of {tensor.dtype}: must be one of {', '.join(map(str, _NAMES))}"
        )
    if name == _METADATA:
        raise TypeError(f"tensor {name!r}: safetensors uses this name itself: rename the tensor")


def encode(version: int, entries: Mapping[str, Entry]) -> bytes:
    """Return the header of these tensors, whose values follow each other in this order."""
    digests = " ".join(entry.digest for entry in entries.values())
    header: dict[str, Any] = {_METADATA: {"version": str(version), "blake2b": digests}}
    end = 0
    for name, entry in entries.items():
        begin, end = end, end + entry.nbytes
        header[name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    # The values begin at a multiple of 8 bytes.
    return text + b" " * (-len(text) % 8)


def decode(text: bytes) -> tuple[int, dict[str, Entry]]:
    """Return the version and the tensors of a header, in the order of their values.

    Raises
    ------
    ValueError
        If the header is not one that `encode` has made.
    """
    try:
        header = json.loads(text)
        metadata = header.pop(_METADATA)
        version, digests = int(metadata["version"]), metadata["blake2b"].split()
        entries: dict[str, Entry] = {}
        end = 0
        for (name, fields), digest in zip(header.items(), digests, strict=True):
            entry = Entry(_DTYPES[fields["dtype"]], _shape(fields["shape"]), digest)
            begin, end = end, end + entry.nbytes
            if fields["data_offsets"] != [begin, end]:
                raise ValueError(f"{name[:80]!r} is not at {begin}")
            entries[name] = entry
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the header of a version of weights: {str(error)[:200]}") from None
    return version, entries


def _shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(size, int) and 0 <= size < 2**63 for size in sizes):
        raise ValueError(f"a shape of {str(sizes)[:80]}")
    return tuple(sizes)


def check_fit(
    tensors: Mapping[str, torch.Tensor],
    entries: Mapping[str, Entry],
    where: str,
    *,
    may_lack: bool = False,
    may_add: bool = False,
) -> None:
    """Check that tensors have the names, types and shapes of entries.

    Parameters
    ----------
    where
        Where the entries are, for the message.
    may_lack, may_add
        Whether names of entries may be missing, and whether there may be other names.

    Raises
    ------
    ValueError
        The message names the tensor, and says what it is here and there.
    """
    for name, entry in entries.items():
        tensor = tensors.get(name)
        if tensor is None:
            if may_lack:
                continue
            raise ValueError(f"tensor {name!r}: is {entry.describe()} {where}, and missing here")
        if (tensor.dtype, tuple(tensor.shape)) != (entry.dtype, entry.shape):
            here = f"{tensor.dtype} of shape {list(tensor.shape)}"
            raise ValueError(f"tensor {name!r}: is {here} here, and {entry.describe()} {where}")
    for name in tensors.keys() - entries.keys():
        if not may_add:
            raise ValueError(f"tensor {name!r}: is missing {where}")
