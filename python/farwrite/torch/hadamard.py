"""The Hadamard transform with stride, on tensors of the host and of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from farwrite import _native
from farwrite.torch.memory import octets

#: The types whose values can be transformed, and their names in the native module.
ELEMENTS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@dataclass(frozen=True)
class Part:
    """Consecutive groups of blocks of one size. The blocks of a group share packets."""

    #: Index of the first value of the part in the tensor.
    start: int
    #: Number of values of a block.
    block: int
    #: The number of blocks of a group, and the number of groups.
    blocks: int
    groups: int
    #: How many coefficients of a block are next to each other in a packet. If `run` equals `block`, the order
    #: of the coefficients does not change.
    run: int


@dataclass(frozen=True)
class Hadamard:
    """A block Walsh-Hadamard transform with stride: a lost packet becomes a small error of many values.

    The transform is that of the crate ``farwrite-codes``. The documentation of this crate says in which
    packet each coefficient is, and which error a loss causes (OptiNIC, section 3.2). A tensor of a GPU is
    transformed on the GPU, by a kernel in Triton. The results of a GPU and of the host are equal bit for bit,
    except for the payload of a NaN. Sums are computed in float32. A result is rounded once, to the nearest
    value, with ties to even.

    A group with ``Bounded(hadamard_block=...)`` does not need this class: the group transforms contributions
    in memory of the host. This class is for programs that send tensors in another way.

    Raises
    ------
    ValueError
        If a number is not a power of two, or is out of its range.
    """

    #: Number of values of a block: a power of two from 1 to 2**25, on a GPU to 2**14.
    block: int = 1024
    #: Number of values of a packet: a power of two from 1 to 2**15.
    packet: int = 256
    #: Number of blocks that share a packet: a power of two from 1 to `packet`. None: `packet`.
    stride: int | None = None

    def __post_init__(self) -> None:  # noqa: D105
        most = {"block": 2**25, "packet": 2**15, "stride": self.packet}
        for name, largest in most.items():
            value = getattr(self, name)
            if name == "stride" and value is None:
                continue
            if not isinstance(value, int) or not 1 <= value <= largest or value & (value - 1):
                raise ValueError(f"{name} = {value!r}: must be a power of two from 1 to {largest}")

    def encode(self, tensor: torch.Tensor, segment_ends: Sequence[int] | None = None) -> torch.Tensor:
        """Return the coefficients of a tensor, in the order in which packets carry them.

        Parameters
        ----------
        tensor
            A contiguous tensor of float32, float16 or bfloat16. It has any shape, and the result has this
            shape.
        segment_ends
            The ends of segments, as numbers of values from the start of the tensor. The first packet of a
            segment begins at the start of the segment. None: the tensor is one segment.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid. The message names the argument and its value.
        """
        return self._transform(tensor, segment_ends, inverse=False)

    def decode(self, tensor: torch.Tensor, segment_ends: Sequence[int] | None = None) -> torch.Tensor:
        """Return the values that belong to coefficients. The arguments are those of `encode`.

        Before the call, set the coefficients of lost packets to 0. In each block that lacks coefficients,
        multiply the other coefficients by the reciprocal of the share of the block's packets that arrived.
        """
        return self._transform(tensor, segment_ends, inverse=True)

    def parts(self, segment_ends: Sequence[int]) -> Iterator[Part]:
        """Yield the parts of all segments, in order and without gaps.

        The last values of a segment, which do not fill a block, form blocks whose sizes are descending powers
        of two.
        """
        stride = self.stride or self.packet
        run = min(self.block, self.packet // stride)
        start = 0
        for end in segment_ends:
            blocks = (end - start) // self.block
            if stride == 1 or run == self.block:
                groups, rest, order = 0, blocks, self.block
            else:
                (groups, rest), order = divmod(blocks, stride), run
            for size, count in [(stride, groups), (rest, min(rest, 1))]:
                if count:
                    yield Part(start, self.block, size, count, order if size > 1 else self.block)
                    start += self.block * size * count
            while start < end:
                block = 1 << ((end - start).bit_length() - 1)
                yield Part(start, block, 1, 1, block)
                start += block

    def _transform(
        self, tensor: torch.Tensor, segment_ends: Sequence[int] | None, *, inverse: bool
    ) -> torch.Tensor:
        if tensor.dtype not in ELEMENTS:
            raise TypeError(f"tensor is of {tensor.dtype}: must be of float32, float16 or bfloat16")
        if not tensor.is_contiguous():
            raise ValueError(
                f"tensor is not contiguous: shape {tuple(tensor.shape)}, strides {tensor.stride()}; pass "
                "tensor.contiguous()"
            )
        ends = [tensor.numel()] if segment_ends is None else list(segment_ends)
        starts = [0, *ends[:-1]]
        if not ends or ends[-1] != tensor.numel() or any(a > b for a, b in zip(starts, ends, strict=True)):
            raise ValueError(f"segment_ends = {ends}: must be ascending and end with {tensor.numel()}")
        if tensor.device.type == "cpu":
            return self._on_host(tensor, ends, inverse=inverse)
        # The import takes a second, and Triton is installed only with versions of torch for GPUs.
        from farwrite.torch import hadamard_kernel

        return hadamard_kernel.transform(self, tensor.detach(), ends, inverse=inverse)

    def _on_host(self, tensor: torch.Tensor, ends: list[int], *, inverse: bool) -> torch.Tensor:
        transformed = _native.hadamard(
            np.asarray(octets(tensor)),
            element=ELEMENTS[tensor.dtype],
            block=self.block,
            packet=self.packet,
            stride=self.stride or self.packet,
            segment_ends=ends,
            inverse=inverse,
        )
        return torch.from_numpy(transformed).view(tensor.dtype).view(tensor.shape)
