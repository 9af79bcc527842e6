"""How torch makes a group of this backend."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import torch.distributed as dist
from torch._C._distributed_c10d import Backend as TorchBackend
from torch._C._distributed_c10d import _DistributedBackendOptions

from farwrite.torch import faces
from farwrite.torch.options import Options
from farwrite.torch.rendezvous import Place, refusing

#: For a name and the ranks of a group: how many such groups this process has made.
_group_counts: Counter[tuple[str, tuple[int, ...]]] = Counter()


def register() -> None:
    """Register the backend. torch calls this function when a program first names the backend."""
    if "FARWRITE" not in dist.Backend._plugins:
        dist.Backend.register_backend("farwrite", create, extended_api=True, devices=["cpu", "cuda"])


def create(wanted: _DistributedBackendOptions, options: object) -> faces.ProcessGroup | faces.Backend:
    """Make a group, or the backend of one device of a mixed group. torch calls this function."""
    # torch uses the name of a destroyed group again, also for a group of other ranks. Groups are counted by
    # name and ranks, so the count is equal at all ranks of a group. For the default group, torch passes no
    # ranks.
    name, ranks = wanted.group_id, tuple(wanted.global_ranks_in_group)
    instance = Place.instance_of(ranks, before=_group_counts[name, ranks])
    _group_counts[name, ranks] += 1
    default = dist.group.WORLD and faces.find(dist.group.WORLD)
    place = Place(name, wanted.store, wanted.group_rank, wanted.group_size, instance)
    others = _others()
    if others and isinstance(options, TorchBackend.Options):
        # They are those of the other backend.
        options = None
    if not default:
        return _make(place, options, wanted, others)

    def watch() -> str | None:
        """Learn from the default group if another rank fails before it joins the new group."""
        failure = default.watch(True)
        return failure and f"the default group has ended: {failure}"

    place = replace(place, watch=watch)
    try:
        if options is None:
            options = default.own_options.of_ranks(wanted.global_ranks_in_group)
        return _make(place, options, wanted, others)
    finally:
        default.watch(False)


def _make(
    place: Place, options: object, wanted: _DistributedBackendOptions, others: list[str]
) -> faces.ProcessGroup | faces.Backend:
    is_elastic = getattr(wanted, "enable_reconfigure", False)
    with refusing(place):
        if others and not faces.HAS_BACKEND:
            raise RuntimeError(
                f"{place.describe()}: this version of torch cannot mix farwrite with {', '.join(others)}: "
                "make two groups, or use torch 2.15"
            )
        checked = _checked(place, options)
    if others:
        return faces.Backend(place, checked, wanted.timeout)
    return faces.ProcessGroup(place, checked, wanted.timeout, is_elastic=is_elastic)


def _checked(place: Place, options: object) -> Options:
    """Return the options of a group. If torch passes none, environment variables and defaults set them."""
    if options is None:
        # Launchers and trainers pass no options.
        options = Options()
    if not isinstance(options, Options):
        raise TypeError(f"{place.describe()}: pg_options = {options!r}: must be farwrite.torch.Options(...)")
    return options


def _others() -> list[str]:
    """Return the names of the other backends of the group that torch makes now."""
    # torch passes nothing that says it, so this function reads a variable of the function of torch.
    frame = sys._getframe()
    while frame.f_code.co_name != "_new_process_group_helper":
        if frame.f_back is None:
            return []
        frame = frame.f_back
    config = frame.f_locals.get("backend_config")
    names = config.get_device_backend_map().values() if isinstance(config, dist.BackendConfig) else []
    return sorted(set(names) - {"farwrite"})
