"""Excludes classes from tracing by `torch.compile`."""

from __future__ import annotations

from inspect import isfunction
from typing import TypeVar

import torch

Class = TypeVar("Class", bound=type)


def untraced(cls: Class) -> Class:
    """Make `torch.compile` call the methods of a class instead of tracing them.

    Operations run in native code, which the compiler cannot trace. The compiler finds calls of these methods
    in the hooks of `DistributedDataParallel`.
    """
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("__"):
            setattr(cls, name, torch.compiler.disable(method))
    return cls
