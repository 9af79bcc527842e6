"""The two classes that torch gets for a rank of a group.

A group whose tensors all go over Farwrite is a `ProcessGroup`, with each version of torch. One device of a
mixed group, such as `"cpu:farwrite,cuda:nccl"`, has a `Backend`, which torch 2.15 calls from C++.

A `Backend` could serve each group. But the `Work` that torch 2.15 makes in C++ of a `Work` in Python forwards
only `wait` and `get_future`: its `is_completed` is never true, and its `is_success` always. It has no rank of
a sender. And a `Backend` in Python cannot change its number of ranks, which `reconfigure` must do.
"""

# The type hints of torch declare more forms of these methods than torch calls on a subclass.
# mypy: disable-error-code="override, assignment, misc"

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as TorchBackend

from farwrite.torch.arguments import DEVICES
from farwrite.torch.group import Group
from farwrite.torch.options import Options
from farwrite.torch.rendezvous import Place
from farwrite.torch.untraced import untraced
from farwrite.torch.work import Work


def _has_trampoline() -> bool:
    """Return whether this version of torch calls the methods of a subclass of its `Backend` in Python."""

    class Probe(TorchBackend):
        pass

    try:
        Probe(0, 1)
    except TypeError:
        return False
    return True


#: Whether a device of a mixed group can have this backend.
HAS_BACKEND = _has_trampoline()


class _Name(TorchBackend):
    """What a `ProcessGroup` registers as its backend. Torch's C++ code calls only its name."""

    def getBackendName(self) -> str:
        return "farwrite"


@untraced
class ProcessGroup(Group, dist.ProcessGroup):
    """A group of ranks. `torch.distributed` makes it, and calls its methods."""

    def __init__(
        self, place: Place, options: Options, timeout: timedelta, *, is_elastic: bool = False
    ) -> None:
        try:
            dist.ProcessGroup.__init__(self, place.store, place.rank, place.size)
        except TypeError:
            # torch 2.7 calls the methods of a subclass only if this constructor has made the group.
            dist.ProcessGroup.__init__(self, place.rank, place.size)
        self._description = "undefined"
        #: Whether torch may see the devices before it has registered the group.
        self._shows_devices = False
        Group.__init__(self, place, options, timeout, is_elastic=is_elastic)

    # torch's C++ calls these two.

    def getRank(self) -> int:
        """Return the number of this rank in the group."""
        return self.rank()

    def getSize(self) -> int:
        """Return the number of ranks of the group."""
        return self.size()

    @property
    def options(self) -> Options:
        """The options of the group."""
        return self._options

    #: torch reads these attributes.
    supports_splitting = True
    supports_coalescing = False
    supports_shrinking = False
    supports_reconfigure = True

    def getGroupName(self) -> str:
        """Return the name that torch has given to the group."""
        return self._first.group

    def setGroupName(self, name: str) -> None:
        """Ignore the name: torch has passed it when it made the group."""

    def getGroupDesc(self) -> str:
        """Return the description that torch has given to the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Set the description of the group."""
        self._description = description

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    get_backend = _get_backend

    @property
    def _device_types(self) -> list[torch.device]:
        """The types of devices whose tensors operations accept. torch reads this attribute."""
        # While torch makes a group that has a device, it attaches a recorder of operations that pass through
        # C++. The recorder takes time, and sees no operation of this group.
        if not self._shows_devices and self not in dist.distributed_c10d._world.pg_map:
            return []
        return [torch.device(name) for name in DEVICES if name == "cpu" or torch.cuda.is_available()]

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Options | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> ProcessGroup | None:
        """Return a group of some ranks of this one, with its options or `opts`; None at all other ranks."""
        if self.rank() not in ranks:
            return None
        name = group_name or f"{self._place.group}:split:{','.join(map(str, ranks))}"
        store = dist.PrefixStore(f"{name}/", self._place.store)
        place = Place(name, store, list(ranks).index(self.rank()), len(ranks))
        split = ProcessGroup(place, opts or self._options.of_ranks(ranks), timeout or self._timeout)
        split.setGroupDesc(group_desc or f"{self._description}:split")
        if HAS_BACKEND:
            # torch asks a group that it splits for its devices. Then the recorder needs a backend in C++.
            kind, named = dist.ProcessGroup.BackendType.CUSTOM, _Name(place.rank, place.size)
            split._set_default_backend(kind)
            split._register_backend(torch.device("cpu"), kind, named)
            split._shows_devices = True
        return split


if TYPE_CHECKING or HAS_BACKEND:

    @untraced
    class Backend(Group, TorchBackend):
        """The rank of one device of a mixed group."""

        def __init__(self, place: Place, options: Options, timeout: timedelta) -> None:
            TorchBackend.__init__(self, place.rank, place.size)
            self._torch_options = TorchBackend.Options("farwrite", timeout)
            self._torch_options.group_name = place.group
            Group.__init__(self, place, options, timeout, is_elastic=False)

        # If one of these properties is missing, its default in C++ calls itself without end.

        @property
        def options(self) -> TorchBackend.Options:
            """The options that torch knows: the name and the timeout."""
            return self._torch_options

        @property
        def supports_splitting(self) -> bool:
            """True: `dist.split_group` calls `split`."""
            return True

        @property
        def supports_coalescing(self) -> bool:
            """False."""
            return False

        @property
        def supports_shrinking(self) -> bool:
            """False."""
            return False

        @property
        def supports_reconfigure(self) -> bool:
            """False: torch refuses it for mixed groups."""
            return False

        @property
        def supports_window(self) -> bool:
            """False."""
            return False

        @property
        def _supports_time_estimate(self) -> bool:
            """False."""
            return False

        def split(self, store: dist.Store, ranks: Sequence[int], opts: TorchBackend.Options) -> Backend:
            """Return the backend of a group of some ranks of this one, with its options."""
            place = Place(opts.group_name, store, list(ranks).index(self.rank()), len(ranks))
            return Backend(place, self._options.of_ranks(ranks), opts._timeout)

        def monitored_barrier(
            self,
            timeout: timedelta | dist.BarrierOptions | None = None,
            wait_all_ranks: bool = False,
        ) -> None:
            """Do what that of a group does. From C++, torch passes options in place of the timeout."""
            if isinstance(timeout, dist.BarrierOptions):
                timeout = timeout.timeout
            super().monitored_barrier(timeout, wait_all_ranks)

        def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Work:
            """Raise ValueError: torch does not pass the rank of the sender on."""
            raise self._call("recv").value_error(
                "src", "= None: in a mixed group, a receive must name its sender: torch does not pass it on"
            )


def find(group: object) -> Group | None:
    """Return the rank of this process in a group of this backend, also in a mixed one; None in others."""
    if isinstance(group, Group):
        return group
    if not HAS_BACKEND or not isinstance(group, dist.ProcessGroup):
        return None
    for device in group._device_types:
        backend: Any = group._get_backend(device)
        # In a debug mode, torch wraps backends.
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, Group):
            return backend
    return None


def farwrite_group(group: dist.ProcessGroup | int | None = None) -> Group:
    """Return the rank of this process in a group of this backend. None: the default group.

    Raises
    ------
    TypeError
        If the group has another backend, or is no group. For a group that lacks this rank, torch has a
        number.
    """
    if group is None:
        group = dist.group.WORLD
        if group is None:
            raise TypeError("there is no default group: call torch.distributed.init_process_group first")
    found = find(group)
    if found is None:
        raise TypeError(f"group = {group!r}: must be a group of the backend farwrite that has this rank")
    return found
