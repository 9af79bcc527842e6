"""Classes that `torch.compile` does not look into."""

from __future__ import annotations

from inspect import isfunction
from typing import TypeVar

import torch

Class = TypeVar("Class", bound=type)


def untraced(cls: Class) -> Class:
    """Make `torch.compile` call the methods of a class instead of tracing them.

    Operations run in native code, which the compiler cannot trace. It reaches them through the hooks of
    `DistributedDataParallel`.
    """
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("__"):
            setattr(cls, name, torch.compiler.disable(method))
    return cls
