"""The memory of tensors, as operations read and write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray


def octets(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor as a flat tensor that shares its memory."""
    return tensor.detach().view(-1).view(torch.uint8)


class Memory:
    """The bytes of the values of tensors, one after the other, in memory of the host.

    One contiguous tensor of the host is used where it is. Others are copied: before the operation (`load`)
    and after it (`store`). Values have the order of their indices, whatever the order in the tensor's memory.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = [tensor.detach() for tensor in tensors]
        first = self._tensors[0] if len(tensors) == 1 else None
        self._in_place = first is not None and first.device.type == "cpu" and first.is_contiguous()
        if self._in_place:
            self._flat = octets(self._tensors[0])
        else:
            total = sum(tensor.nbytes for tensor in tensors)
            pinned = bool(tensors) and tensors[0].device.type == "cuda"
            self._flat = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)

    def buffer(self) -> NDArray[np.uint8]:
        """Return the memory as an array, which keeps it."""
        return np.asarray(_Lent(self._flat))

    def load(self) -> None:
        """Copy the tensors' values into the memory of the host."""
        if not self._in_place:
            for host, tensor in self._pairs():
                host.copy_(octets(tensor.contiguous()))

    def store(self) -> None:
        """Copy the memory of the host into the tensors."""
        if not self._in_place:
            for host, tensor in self._pairs():
                if tensor.is_contiguous():
                    octets(tensor).copy_(host, non_blocking=True)
                else:
                    values = torch.empty_like(tensor, memory_format=torch.contiguous_format)
                    octets(values).copy_(host, non_blocking=True)
                    tensor.copy_(values)

    def _pairs(self) -> zip[tuple[torch.Tensor, torch.Tensor]]:
        sizes = [tensor.nbytes for tensor in self._tensors]
        return zip(self._flat.split(sizes), self._tensors, strict=True)


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
    """Return whether the memory of two tensors may overlap."""
    begin, end = _extent(one)
    other_begin, other_end = _extent(other)
    return begin < other_end and other_begin < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte of a tensor, and of the one after its last."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    # torch has no negative strides.
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()
