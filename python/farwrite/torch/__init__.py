"""A backend of `torch.distributed` for ranks on networks that lose packets.

torch 2.15 finds the backend by its name. With earlier versions, importing this module registers it::

    import farwrite.torch

    dist.init_process_group("farwrite")

`docs/torch.md` in the repository describes the backend and its limits.
"""

from __future__ import annotations

import torch.distributed as dist

from farwrite._native import CollectiveError
from farwrite.torch.creation import register
from farwrite.torch.drift import resynchronise
from farwrite.torch.faces import ProcessGroup, farwrite_group
from farwrite.torch.hadamard import Hadamard
from farwrite.torch.missing_log import MissingLogError
from farwrite.torch.options import Bounded, Exact, Options, Policy
from farwrite.torch.rates import Adaptive, Dcqcn, Eqds, Fixed, RateControl, Swift
from farwrite.torch.rendezvous import RendezvousError
from farwrite.torch.reports import Arrival, Peer, Report, StepReport
from farwrite.torch.sites import Sites, average_between_sites
from farwrite.torch.trace import trace

__all__ = [
    "Adaptive",
    "Arrival",
    "Bounded",
    "CollectiveError",
    "Dcqcn",
    "Eqds",
    "Exact",
    "Fixed",
    "Hadamard",
    "MissingLogError",
    "Options",
    "Peer",
    "Policy",
    "ProcessGroup",
    "RateControl",
    "RendezvousError",
    "Report",
    "Sites",
    "StepReport",
    "Swift",
    "average_between_sites",
    "last_error",
    "last_report",
    "register",
    "resynchronise",
    "step_report",
    "trace",
]


def last_report(group: dist.ProcessGroup | int | None = None) -> Report | None:
    """Return a report on the last operation that this rank waited for; None if there is none.

    Parameters
    ----------
    group
        A group of this backend. None: the default group.

    Raises
    ------
    TypeError
        If the group has another backend or lacks this rank, or if there is no default group.
    """
    return farwrite_group(group).last_report()


def last_error(group: dist.ProcessGroup | int | None = None) -> CollectiveError | None:
    """Return the error of the last failed operation that this rank waited for; None if there is none.

    `DistributedDataParallel` waits in C++, so that its backward pass raises a RuntimeError with the text of
    the error. This function returns the error itself.

    Parameters
    ----------
    group
        A group of this backend. None: the default group.

    Raises
    ------
    TypeError
        If the group has another backend or lacks this rank, or if there is no default group.
    """
    return farwrite_group(group).last_error()


def step_report(group: dist.ProcessGroup | int | None = None) -> StepReport:
    """Return a report on all operations that this rank waited for since the last call of this function.

    Call it once in each step of a training.

    Parameters
    ----------
    group
        A group of this backend. None: the default group.

    Raises
    ------
    TypeError
        If the group has another backend or lacks this rank, or if there is no default group.
    """
    return farwrite_group(group).step_report()


for _error in (MissingLogError, RendezvousError):
    # A traceback shows the name that a program imports.
    _error.__module__ = __name__
register()
