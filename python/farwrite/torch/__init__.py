"""A backend of `torch.distributed` for ranks on networks that lose packets.

Importing this module registers the backend::

    import farwrite.torch

    dist.init_process_group("farwrite")

`docs/torch.md` in the repository describes the backend and its limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions

from farwrite._native import CollectiveError
from farwrite.torch.drift import resynchronise
from farwrite.torch.group import ProcessGroup
from farwrite.torch.hadamard import Hadamard
from farwrite.torch.missing_log import MissingLogError
from farwrite.torch.options import Bounded, Exact, Options, Policy
from farwrite.torch.rates import Adaptive, Dcqcn, Eqds, Fixed, RateControl, Swift
from farwrite.torch.rendezvous import Place, RendezvousError, refusing
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
    "resynchronise",
    "step_report",
    "trace",
]


def last_report(group: dist.ProcessGroup | None = None) -> Report | None:
    """Return a report on the last operation that this rank waited for; None if there is none.

    Parameters
    ----------
    group
        A group of this backend. None: the default group.

    Raises
    ------
    TypeError
        If the group has another backend.
    """
    return _farwrite_group(group).last_report()


def last_error(group: dist.ProcessGroup | None = None) -> CollectiveError | None:
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
        If the group has another backend.
    """
    return _farwrite_group(group).last_error()


def step_report(group: dist.ProcessGroup | None = None) -> StepReport:
    """Return a report on all operations that this rank waited for since the last call of this function.

    Call it once in each step of a training.

    Parameters
    ----------
    group
        A group of this backend. None: the default group.

    Raises
    ------
    TypeError
        If the group has another backend.
    """
    return _farwrite_group(group).step_report()


def _farwrite_group(group: dist.ProcessGroup | None) -> ProcessGroup:
    group = group or dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group = {group!r}: must be a group of the backend farwrite")
    return group


#: For a name and the ranks of a group: how many such groups this process has made.
_group_counts: Counter[tuple[str, tuple[int, ...]]] = Counter()


def _of_subgroup(options: Options, ranks: Sequence[int]) -> Options:
    """Return the options that a group of some ranks of the default group gets from the default group."""
    if options.sites is None:
        return options
    return replace(options, sites=tuple(options.sites[rank] for rank in ranks))


def _create(wanted: _DistributedBackendOptions, options: object) -> ProcessGroup:
    # torch uses the name of a destroyed group again, also for a group of other ranks. Groups are counted by
    # name and ranks, so the count is equal at all ranks of a group. For the default group, torch passes no
    # ranks.
    name, ranks = wanted.group_id, tuple(wanted.global_ranks_in_group)
    instance = Place.instance_of(ranks, before=_group_counts[name, ranks])
    _group_counts[name, ranks] += 1
    default = dist.group.WORLD
    place = Place(name, wanted.store, wanted.group_rank, wanted.group_size, instance)
    if not isinstance(default, ProcessGroup):
        return ProcessGroup(place, _checked(place, options), wanted.timeout)
    # The default group informs this rank if another rank fails before it joins the new group.
    place = replace(place, watch=lambda: default.watch(True))
    try:
        if options is None:
            options = _of_subgroup(default.options, wanted.global_ranks_in_group)
        return ProcessGroup(place, _checked(place, options), wanted.timeout)
    finally:
        default.watch(False)


def _checked(place: Place, options: object) -> Options:
    """Return the options of a group. If torch passes none, environment variables and defaults set them."""
    with refusing(place):
        if options is None:
            # Launchers and trainers pass no options.
            options = Options()
        if not isinstance(options, Options):
            raise TypeError(
                f"{place.describe()}: pg_options = {options!r}: must be farwrite.torch.Options(...)"
            )
        return options


dist.Backend.register_backend("farwrite", _create, extended_api=True, devices=["cpu", "cuda"])
