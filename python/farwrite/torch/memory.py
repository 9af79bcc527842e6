"""Memory of the host that operations read and write, for tensors of the host or of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray


def octets(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor as a flat tensor on the same memory."""
    return tensor.detach().view(-1).view(torch.uint8)


class Memory:
    """The bytes of the values of tensors, one tensor after the other, in memory of the host.

    If there is one tensor, contiguous and on the host, an operation uses its memory. Otherwise, `load` copies
    the tensors into other memory before the operation, and `store` copies them back after it. Values are in
    the order of their indices, also if the tensor's memory has another order.
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
        """Return the memory as an array, which keeps the memory alive."""
        return np.asarray(_HostArray(self._flat))

    def load(self) -> None:
        """Copy the values of the tensors into the memory that the operation reads, if it is other memory."""
        if not self._in_place:
            for host, tensor in self._pairs():
                host.copy_(octets(tensor.contiguous()))

    def store(self) -> None:
        """Copy the memory that the operation has written into the tensors, if it is other memory."""
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


class _HostArray:
    """The memory of a flat tensor of bytes, in a form that NumPy accepts.

    `Tensor.numpy` is not used, because the storage of a tensor cannot be resized after a call of it.
    """

    def __init__(self, flat: torch.Tensor) -> None:
        # The array refers to this object, and this object refers to the tensor, so the memory stays valid.
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
    """Return the address of the first byte of a tensor, and the address after its last byte."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    # torch has no negative strides.
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()
