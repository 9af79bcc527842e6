"""One rank of a group: how it joins the other ranks, what it reports, and how it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from threading import Thread
from typing import Any

import torch

from farwrite import _native
from farwrite.torch.membership import Handle, Members
from farwrite.torch.missing_log import open_logs
from farwrite.torch.operations import Operations
from farwrite.torch.options import Bounded, Options
from farwrite.torch.process_exit import forget, leave_at_exit
from farwrite.torch.rendezvous import (
    Place,
    RendezvousError,
    bound_address,
    join,
    local_address,
    refusing,
)
from farwrite.torch.reports import Report, StepReport, Totals
from farwrite.torch.trust import check_trust
from farwrite.torch.untraced import untraced
from farwrite.torch.work import Done


@untraced
class Group(Operations):
    """A rank of a group. `faces.py` has the classes that torch gets, which add what torch expects of each."""

    def __init__(self, place: Place, options: Options, timeout: timedelta, *, is_elastic: bool) -> None:
        #: The place where this rank joined its first group, whose name the group keeps.
        self._first = place
        self._place = place
        self._options = options
        self._timeout = timeout
        self._timeout_s = None
        self._bounded = options.policy if isinstance(options.policy, Bounded) else None
        self._totals = Totals(place.describe(), place.size)
        self._log = self._replayed = None
        #: Whether the group has no ranks until `reconfigure` gives it some, also after `abort`.
        self._is_elastic = is_elastic
        self._members = Members(place, options)
        self._joined: _native.Communicator | None = None
        if not is_elastic:
            self._join(place, options, timeout)

    def _join(self, place: Place, options: Options, timeout: timedelta) -> None:
        """Join the other ranks at a place."""
        with refusing(place):
            address, communicator = _communicator(place, options, timeout)
        packet_bytes = join(place, communicator, address, options, timeout)
        self._log, self._replayed = open_logs(place, options, packet_bytes)
        self._place, self._options = place, options
        self._joined = communicator
        self._totals = Totals(place.describe(), place.size)
        leave_at_exit(self)

    @property
    def _communicator(self) -> _native.Communicator:
        if self._joined is None:
            raise RuntimeError(
                f"{self._place.describe()}: the group has no ranks: call torch.distributed._reconfigure first"
            )
        return self._joined

    # Name, description and reports.

    def rank(self) -> int:
        """Return the number of this rank in the group."""
        return self._place.rank

    def size(self) -> int:
        """Return the number of ranks of the group."""
        return self._place.size

    def getBackendName(self) -> str:
        """Return the name with which the backend is registered."""
        return "farwrite"

    def name(self) -> str:
        """Return the name with which the backend is registered."""
        return "farwrite"

    def last_report(self) -> Report | None:
        """Return a report on the last operation that this rank waited for; None if there is none."""
        return self._totals.last

    def last_error(self) -> _native.CollectiveError | None:
        """Return the error of the last failed operation that this rank waited for; None if there is none."""
        return self._totals.last_error

    def step_report(self) -> StepReport:
        """Return a report on the operations that this rank waited for since the last call of this method."""
        return self._totals.step()

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Do nothing: the ranks are connected already. torch calls it for a group with a `device_id`."""

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Do nothing: ranks that a new group lacks take no part in making it."""

    @property
    def own_options(self) -> Options:
        """The options of the group. Those of a `Backend` are torch's."""
        return self._options

    # Failures and the end of the group.

    def abort(self) -> None:
        """End the group: its operations that run, at all ranks, fail. Return at once.

        What this rank owes to other ranks for operations that have ended here is sent in the background, for
        at most one second. A process that ends waits for it. `reconfigure` makes the group work again.
        """
        ended = self._joined
        if ended is None:
            return
        forget(self)
        ended.abort(f"it aborted group {self._first.group!r}")
        Thread(target=ended.close, name="farwrite-abort").start()
        if self._is_elastic:
            self._joined = None

    def get_error(self) -> Any:
        """Return why the group cannot continue, as torch's `ErrorType`; SUCCESS while it can.

        TIMEOUT means that an operation of this rank had its timeout, and REMOTE_ERROR that another rank has
        ended the group. All other reasons are COMM_ERROR, also `abort` and `shutdown`. SUCCESS also means
        that the group waits for `reconfigure`, as it does after the `abort` of a group that torch made with
        `enable_reconfigure=True`.
        """
        # Old versions of torch do not have this type.
        from torch._C._distributed_c10d import ErrorType

        kinds = {
            None: ErrorType.SUCCESS,
            "timeout": ErrorType.TIMEOUT,
            "remote": ErrorType.REMOTE_ERROR,
            "local": ErrorType.COMM_ERROR,
        }
        return kinds[None if self._joined is None else self._joined.failure()]

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of operations that start later, at this rank."""
        if timeout <= timedelta(0):
            raise ValueError(f"{self._place.describe()}: timeout = {timeout}: must be longer than 0")
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def watch(self, watches: bool) -> str | None:
        """Set whether this rank asks the other ranks for signs of life while no operation runs.

        Return the reason why the group cannot continue; None while it can.
        """
        return None if self._joined is None else self._joined.watch(watches)

    def announce_end(self, reason: str | None) -> None:
        """Leave the group because this process ends, without waiting for the other ranks."""
        if self._joined is None:
            return
        if reason is not None:
            self._joined.abort(reason)
        self._joined.leave()

    def shutdown(self) -> None:
        """Leave the group, after the other ranks have the data of ended operations that they need."""
        forget(self)
        if self._joined is not None:
            self._joined.close()

    # Other ranks for the same group.

    def get_reconfigure_handle(self) -> str:
        """Return the text by which `reconfigure` knows this rank, at all ranks."""
        return self._members.handle

    def reconfigure(self, opts: Any) -> Done:
        """Leave the ranks of the group, and join those whose handles `opts` has. Return when all have joined.

        Raises
        ------
        RuntimeError
            If the group had this `uuid` before. If a rank does not join: RendezvousError.
        ValueError
            If a handle is not one of farwrite, or if this rank's own handle is missing or is there twice.
        """
        timeout = opts.timeout or self._timeout
        handles = self._members.next(opts.uuid, opts.handles)
        self.abort()
        self._joined = None
        place = self._members.place(opts.uuid, handles, timeout)
        self._join(place, self._with_sites(handles), timeout)
        return Done()

    def _with_sites(self, handles: Sequence[Handle]) -> Options:
        if self._options.sites is None:
            return self._options
        return replace(self._options, sites=tuple(handle.site for handle in handles))


def _communicator(place: Place, options: Options, timeout: timedelta) -> tuple[str, _native.Communicator]:
    """Return the address that this rank announces, and the native communicator."""
    try:
        address = local_address(place, options)
        bound = bound_address(address)
    except OSError as error:
        wanted = f"address = {options.address!r}: " if options.address else "no address: "
        raise RendezvousError(f"{place.describe()}: {wanted}{error}") from error
    check_trust(place, options, address)
    return address, _native.Communicator(
        place.rank,
        place.size,
        address=ip_address(bound),
        advertised=None if bound == address else ip_address(address),
        packet_bytes=options.packet_bytes,
        ports=options.ports,
        key=options.key if isinstance(options.key, bytes) else None,
        context=place.context(),
        settings=options.native(timeout.total_seconds(), _sites(place, options)),
    )


def _sites(place: Place, options: Options) -> Sequence[int]:
    """Return the site of each rank of a group; an empty list if the options have no sites."""
    sites = options.sites or ()
    if options.sites is not None and len(sites) != place.size:
        raise ValueError(
            f"{place.describe()}: sites = {options.sites!r}: has {len(sites)} sites: must have one for "
            f"each of the {place.size} ranks"
        )
    return sites
