"""The forms in which torch declares the operations of a process group.

torch calls an operation with lists of tensors, which have an item for each device, and an object with its
options. Programs may also pass a single tensor, or the values of options::

    group.allreduce([tensor], opts)
    group.allreduce([tensor], ReduceOp.MAX)
    group.allreduce(tensor, timeout=timedelta(seconds=5))
    group.broadcast(tensor, root=1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch

Method = TypeVar("Method", bound=Callable[..., Any])

#: The attributes of options that arguments set.
_ATTRIBUTES = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def forms(
    options: type, values: Sequence[str] = (), *, lists: Sequence[str] = (), other: Sequence[str] = ()
) -> Callable[[Method], Method]:
    """Let a method that takes tensors and `opts` be called in all forms. The method always gets `opts`.

    Parameters
    ----------
    options
        The type of `opts`.
    values
        The names of arguments that set options, in their order.
    lists
        The first arguments of the method, if they are lists with an item for each device. If one of them is a
        tensor, the call has the form for a single tensor. Each argument then becomes a list of itself.
    other
        The arguments between the lists and the options.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            count = len(lists) + len(other)
            has_opts = len(arguments) > count and isinstance(arguments[count], options)
            names = [*lists, *other, *(["opts"] if has_opts else values)]
            if len(arguments) > len(names):
                raise TypeError(
                    f"{method.__name__}: got {len(arguments)} arguments: must be {', '.join(names)}"
                )
            for name in lists:
                # Some forms for a single tensor have other names: `tensor`, `output`, `input_tensor`.
                for short in (name.removesuffix("s"), name.removesuffix("_tensors")):
                    if short in named:
                        named[name] = named.pop(short)
            bound = dict(zip(names, arguments, strict=False))
            if twice := bound.keys() & named.keys():
                raise TypeError(f"{method.__name__}: got two values of {', '.join(sorted(twice))}")
            bound |= named
            if any(isinstance(bound.get(name), torch.Tensor) for name in lists):
                bound |= {name: [bound[name]] for name in lists if name in bound}
            given = {name: bound.pop(name) for name in values if name in bound}
            if bound.get("opts") is None:
                bound["opts"] = _options(options, given)
            elif given:
                raise TypeError(f"{method.__name__}: got opts and {', '.join(given)}: pass one of them")
            return method(self, **bound)

        return call  # type: ignore[return-value] # it takes what the method takes

    return decorate


def _options(options: type, values: dict[str, Any]) -> Any:
    made = options()
    for name, value in values.items():
        if value is not None:
            setattr(made, _ATTRIBUTES[name], value)
    return made
