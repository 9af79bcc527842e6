"""The memory of tensors, as operations read and write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray


def octets(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor as a flat tensor that shares its memory."""
    return tensor.detach().view(-1).view(torch.uint8)


class Memory:
    """The bytes of tensors, one after the other, in memory of the host.

    One tensor of the host is used where it is. Several, or those of a GPU, are copied: before the operation
    (`load`) and after it (`store`).
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._parts = [octets(tensor) for tensor in tensors]
        self._in_place = len(tensors) == 1 and tensors[0].device.type == "cpu"
        if self._in_place:
            self._flat = self._parts[0]
        else:
            total = sum(part.numel() for part in self._parts)
            pinned = bool(tensors) and tensors[0].device.type == "cuda"
            self._flat = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)

    def buffer(self) -> NDArray[np.uint8]:
        """Return the memory as an array, which keeps it."""
        return np.asarray(_Lent(self._flat))

    def load(self) -> None:
        """Copy the tensors' bytes into the memory of the host."""
        if not self._in_place:
            for host, part in self._pairs():
                host.copy_(part)

    def store(self) -> None:
        """Copy the memory of the host into the tensors."""
        if not self._in_place:
            for host, part in self._pairs():
                part.copy_(host, non_blocking=True)

    def _pairs(self) -> zip[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self._flat.split([part.numel() for part in self._parts]), self._parts, strict=True)


class _Lent:
    """The memory of a flat tensor of bytes, for NumPy.

    `Tensor.numpy` would do, but after it the tensor's storage could never be resized again.
    """

    def __init__(self, flat: torch.Tensor) -> None:
        # The array refers to this object, and this object to the tensor.
        self._flat = flat
        self.__array_interface__ = {
            "version": 3,
            "shape": (flat.numel(),),
            "typestr": "|u1",
            "data": (flat.data_ptr(), False),
        }


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share memory."""
    begin, end = one.data_ptr(), one.data_ptr() + one.nbytes
    return begin < other.data_ptr() + other.nbytes and other.data_ptr() < end
