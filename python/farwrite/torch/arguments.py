"""Checks of the arguments that torch passes to operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

#: Types whose values can be reduced, and their names in the native module.
ELEMENTS = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
#: Types for which a bounded operation may leave out values.
FLOATS = tuple(dtype for dtype in ELEMENTS if dtype.is_floating_point)
_REDUCTIONS = (
    (ReduceOp.SUM, "sum"),
    (ReduceOp.AVG, "mean"),
    (ReduceOp.MIN, "min"),
    (ReduceOp.MAX, "max"),
    (ReduceOp.PRODUCT, "product"),
    (ReduceOp.BAND, "and"),
    (ReduceOp.BOR, "or"),
    (ReduceOp.BXOR, "xor"),
)
#: Reductions of integers only.
_OF_BITS = ("and", "or", "xor")
#: Types of devices whose tensors operations accept.
DEVICES = ("cpu", "cuda")


class Call:
    """One call of an operation at a rank. Its methods check the arguments of the call.

    If an argument is invalid, `refuse` gets the message of the exception, and informs the ranks that wait for
    the operation.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        operation: str,
        refuse: Callable[[str], None],
        timeout_s: float | None,
    ) -> None:
        #: The timeout of the operation; None: that of the group.
        self.timeout_s = timeout_s
        self._rank = rank
        self._ranks = ranks
        self.operation = operation
        self._refuse = refuse

    def _problem(self, argument: str, problem: str) -> str:
        text = f"rank {self._rank}: {self.operation}: {argument} {problem}"
        self._refuse(text)
        return text

    def value_error(self, argument: str, problem: str) -> ValueError:
        """Return the exception for an argument whose value is invalid."""
        return ValueError(self._problem(argument, problem))

    def type_error(self, argument: str, problem: str) -> TypeError:
        """Return the exception for an argument whose type is invalid."""
        return TypeError(self._problem(argument, problem))

    def check(self, argument: str, tensor: object) -> torch.Tensor:
        """Return the tensor if its values can be sent and received, or raise an exception."""
        if not isinstance(tensor, torch.Tensor):
            raise self.type_error(argument, f"is {tensor!r}, not a tensor")
        if tensor.is_quantized or tensor.is_nested:
            kind = "quantized" if tensor.is_quantized else "nested"
            raise self.type_error(argument, f"is {kind}: must be a plain dense tensor")
        if tensor.layout != torch.strided:
            raise self.type_error(argument, f"has layout {tensor.layout}: it must be dense")
        if tensor.device.type not in DEVICES:
            raise self.type_error(argument, f"is on {tensor.device}: it must be on {' or '.join(DEVICES)}")
        if tensor.is_conj() or tensor.is_neg():
            raise self.value_error(
                argument, "is a view that conjugates or negates: pass tensor.resolve_conj().resolve_neg()"
            )
        if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise self.value_error(
                argument,
                f"has one value at several indices: shape {tuple(tensor.shape)}, strides {tensor.stride()}; "
                "pass a copy made by tensor.contiguous(), and read the result from that copy",
            )
        return tensor

    def check_names(self, argument: str, tensors: object) -> None:
        """Check that an argument is a mapping whose keys are names."""
        if not isinstance(tensors, Mapping):
            raise self.type_error(argument, f"is of {type(tensors).__name__}: must be tensors by name")
        for name in tensors:
            if not isinstance(name, str):
                raise self.type_error(argument, f"has the name {name!r}: names must be of str")

    def only(self, argument: str, tensors: Sequence[Any]) -> Any:
        """Return the only item of a list. torch passes lists, with an item for each device."""
        if len(tensors) != 1:
            raise self.value_error(argument, f"has {len(tensors)} tensors: must have exactly one")
        return tensors[0]

    def element(self, argument: str, tensor: torch.Tensor) -> str:
        """Return the native module's name of the type of the values that are reduced."""
        try:
            return ELEMENTS[tensor.dtype]
        except KeyError:
            supported = ", ".join(ELEMENTS.values())
            raise self.type_error(
                argument, f"is of {tensor.dtype}, which cannot be reduced: only {supported}"
            ) from None

    def alike(self, argument: str, tensors: Sequence[torch.Tensor], like: torch.Tensor) -> None:
        """Check that tensors have the type, the device and the number of values of `like`."""
        for index, tensor in enumerate(tensors):
            name = f"{argument}[{index}]"
            self.same_type(name, tensor, like)
            if tensor.numel() != like.numel():
                raise self.value_error(
                    name, f"has {tensor.numel()} values, and other tensors of the call have {like.numel()}"
                )

    def same_type(self, argument: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
        """Check that a tensor has the type and the device of `like`."""
        mine, other = (tensor.dtype, tensor.device), (like.dtype, like.device)
        if mine != other:
            raise self.type_error(
                argument,
                f"is of {mine[0]} on {mine[1]}, and other tensors of the call are of {other[0]} on "
                f"{other[1]}",
            )

    def reduction(self, argument: str, tensor: torch.Tensor, opts: Any) -> dict[str, Any]:
        """Return the names of the reduction and of the type of values, as arguments of the native module."""
        names = [name for reduction, name in _REDUCTIONS if opts.reduceOp == reduction]
        # torch passes an object that does not show its name.
        wanted = f"ReduceOp.{opts.reduceOp.op.name}"
        if not names:
            supported = ", ".join(f"ReduceOp.{reduction.name}" for reduction, _ in _REDUCTIONS)
            raise self.value_error("op", f"= {wanted}: must be one of {supported}")
        element = self.element(argument, tensor)
        if (names[0], element) == ("mean", "bool"):
            raise self.value_error("op", f"= {wanted}: {argument} is of bool, which has no mean")
        if names[0] in _OF_BITS and tensor.is_floating_point():
            raise self.value_error("op", f"= {wanted}: {argument} is of {tensor.dtype}: must be of integers")
        return {"reduction": names[0], "element": element}

    def peer(self, argument: str, rank: int) -> int:
        """Return the rank if the group has it, or raise an exception."""
        if not 0 <= rank < self._ranks:
            raise self.value_error(argument, f"= {rank}: the group has ranks 0 to {self._ranks - 1}")
        return rank

    def tag(self, tag: int) -> int:
        """Return the tag if it is valid. Tags distinguish sends to one rank."""
        if not 0 <= tag < 2**32:
            raise self.value_error("tag", f"= {tag}: must be from 0 to {2**32 - 1}")
        return tag

    def one_each(self, argument: str, tensors: Sequence[Any]) -> None:
        """Check that a list has one item for each rank."""
        if len(tensors) != self._ranks:
            raise self.value_error(
                argument, f"has {len(tensors)} tensors: must have one for each of the {self._ranks} ranks"
            )

    def same_own_part(self, argument: str, sent: int, received: int) -> None:
        """Check that this rank receives from itself as many bytes as it sends to itself."""
        if sent != received:
            raise self.value_error(
                argument,
                f"has {received} bytes for what rank {self._rank} sends to itself, which is {sent} bytes",
            )

    def list_for_ranks(
        self, argument: str, tensors: Sequence[torch.Tensor], like: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        """Return a list with one tensor for each rank, which all have the type and the size of `like`."""
        self.one_each(argument, tensors)
        for index, tensor in enumerate(tensors):
            self.check(f"{argument}[{index}]", tensor)
        self.alike(argument, tensors, like)
        return tensors

    def list_of_any(self, argument: str, tensors: Sequence[Any]) -> list[torch.Tensor]:
        """Return a list of tensors. Raise ValueError if it is empty."""
        if not tensors:
            raise self.value_error(argument, "has no tensors")
        return [self.check(f"{argument}[{index}]", tensor) for index, tensor in enumerate(tensors)]

    def pairs(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return pairs of an output and an input."""
        if len(outputs) != len(inputs) or not inputs:
            raise self.value_error(
                "outputs",
                f"has {len(outputs)} items, and inputs has {len(inputs)}: each input needs one output",
            )
        return list(zip(outputs, inputs, strict=True))

    def times_larger(self, large: str, larger: torch.Tensor, small: str, smaller: torch.Tensor) -> None:
        """Check that `larger` has the type of `smaller`, and as many values as `smaller` for each rank."""
        self.check(large, larger)
        self.check(small, smaller)
        self.same_type(large, larger, smaller)
        if larger.numel() != self._ranks * smaller.numel():
            raise self.value_error(
                large,
                f"has {larger.numel()} values, and {small} has {smaller.numel()}: "
                f"with {self._ranks} ranks it must have {self._ranks * smaller.numel()}",
            )

    def split(self, argument: str, tensor: torch.Tensor, sizes: Sequence[int]) -> list[int]:
        """Return the bytes of each rank's rows; an empty list if all ranks have equally many rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not sizes:
            if rows % self._ranks:
                raise self.value_error(
                    argument, f"has {rows} rows: must have a multiple of {self._ranks}, the number of ranks"
                )
            return []
        if len(sizes) != self._ranks or sum(sizes) != rows or min(sizes) < 0:
            raise self.value_error(
                f"{argument}_split_sizes",
                f"= {list(sizes)}: must be {self._ranks} numbers with the sum {rows}",
            )
        return [size * (tensor.nbytes // rows) if rows else 0 for size in sizes]
