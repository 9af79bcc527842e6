"""The process group: torch's operations, on those of `farwrite-collectives`."""

# ProcessGroup's type hints declare more forms of these methods than torch calls on a subclass.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from farwrite import _native
from farwrite.torch.arguments import DEVICES, FLOATS, Call
from farwrite.torch.endings import forget, leave_at_end
from farwrite.torch.memory import Memory, overlap
from farwrite.torch.missing_log import Entry, Reader, open_logs
from farwrite.torch.options import Bounded, Options
from farwrite.torch.rendezvous import (
    Place,
    RendezvousError,
    bound_address,
    join,
    local_address,
    refusing,
)
from farwrite.torch.reports import Report, StepReport, Tally
from farwrite.torch.trust import check_trust
from farwrite.torch.untraced import untraced
from farwrite.torch.work import Started, Work


@untraced
class ProcessGroup(dist.ProcessGroup):
    """A group of ranks. `torch.distributed` makes it, and calls its methods.

    The methods have the names and arguments that torch wants.
    """

    #: torch asks for it when a group gets a `device_id`. Groups are not split: see `dist.new_group`.
    supports_splitting = False

    def __init__(self, place: Place, options: Options, timeout: timedelta) -> None:
        try:
            super().__init__(place.store, place.rank, place.size)
        except TypeError:
            # In torch 2.7, only this constructor makes groups whose methods are those of a subclass.
            super().__init__(place.rank, place.size)
        self.options = options
        self._place = place
        self._description = "undefined"
        self._tally = Tally(place.describe(), place.size)
        bounded = options.policy if isinstance(options.policy, Bounded) else None
        self._bounded = bounded
        with refusing(place):
            address, self._communicator = _communicator(place, options, timeout)
        packet_bytes = join(place, self._communicator, address, options, timeout)
        self._log, self._replayed = open_logs(place, options, packet_bytes)
        leave_at_end(self)

    # What the group is.

    def getBackendName(self) -> str:
        """Return the name that the backend is registered by."""
        return "farwrite"

    def getGroupName(self) -> str:
        """Return the name that torch gave to the group."""
        return self._place.group

    def setGroupName(self, name: str) -> None:
        """Take the name that torch gives to the group: the one it was made with."""

    def getGroupDesc(self) -> str:
        """Return the description that torch gave to the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Keep the description that torch gives to the group."""
        self._description = description

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        """The types of devices whose tensors operations take. torch asks for them."""
        # While torch makes the group, it would attach a recorder to each group that has a device, and the
        # recorder needs a group that is implemented in C++.
        if self not in dist.distributed_c10d._world.pg_map:
            return []
        return [torch.device(name) for name in DEVICES if name == "cpu" or torch.cuda.is_available()]

    def last_report(self) -> Report | None:
        """Return how the last operation that was waited for went."""
        return self._tally.last

    def step_report(self) -> StepReport:
        """Return how the operations since the last call went."""
        return self._tally.step()

    # Its life.

    def abort(self) -> None:
        """End all operations, here and on the other ranks, with an error."""
        self._communicator.abort(f"rank {self._place.rank} aborted group {self._place.group!r}")

    def watch(self, watches: bool) -> str | None:
        """Ask the other ranks for signs of life while no operation runs, or stop that.

        Return why the group cannot continue; None while it can.
        """
        return self._communicator.watch(watches)

    def announce_end(self, reason: str | None) -> None:
        """Leave the group because this process ends, and do not wait."""
        if reason is not None:
            self._communicator.abort(reason)
        self._communicator.leave()

    def shutdown(self) -> None:
        """Leave the group. What the other ranks still need of ended operations reaches them first."""
        forget(self)
        self._communicator.close()

    # Operations.

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None, *, is_exact: bool = False) -> Work:
        """Give every rank the reduction of a tensor of all ranks, in place.

        With `is_exact`, which torch does not pass, the policy of the group does not apply.
        """
        call = self._call("all_reduce")
        tensor = call.check("tensor", call.only("tensors", tensors))
        how = call.reduction("tensor", tensor, opts)
        return self._start(call, "all-reduce", output=[tensor], load_output=True, is_exact=is_exact, **how)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        """Reduce several tensors of one type as if they were one."""
        call = self._call("all_reduce_coalesced")
        checked = call.list_of_any("tensors", tensors)
        for index, tensor in enumerate(checked):
            call.same_type(f"tensors[{index}]", tensor, checked[0])
        how = call.reduction("tensors[0]", checked[0], opts)
        return self._start(call, "all-reduce", output=checked, load_output=True, **how)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Give every rank the root's tensor, in place."""
        call = self._call("broadcast")
        tensor = call.check("tensor", call.only("tensors", tensors))
        root = call.peer("root", opts.rootRank)
        return self._start(call, "broadcast", output=[tensor], load_output=True, peer=root)

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Give the root the reduction of a tensor of all ranks, in place."""
        call = self._call("reduce")
        tensor = call.check("tensor", call.only("tensors", tensors))
        root = call.peer("root", opts.rootRank)
        how = call.reduction("tensor", tensor, opts)
        if root == self.rank():
            return self._start(call, "reduce", output=[tensor], load_output=True, peer=root, **how)
        return self._start(call, "reduce", input=[tensor], peer=root, **how)

    def allgather(
        self,
        output_tensors: Sequence[Sequence[torch.Tensor]],
        input_tensors: Sequence[torch.Tensor],
        opts: Any = None,
    ) -> Work:
        """Give every rank the tensors of all ranks, in a list."""
        call = self._call("all_gather")
        tensor = call.check("tensor", call.only("input_tensors", input_tensors))
        outputs = call.list_for_ranks("tensor_list", call.only("output_tensors", output_tensors), tensor)
        return self._start(call, "all-gather", input=[tensor], output=outputs)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Give every rank the tensors of all ranks, one after the other in one tensor."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Do what `all_gather_single` does for several pairs of tensors."""
        call = self._call("all_gather_into_tensor")
        pairs = call.pairs(outputs, inputs)
        for output, input in pairs:
            call.times_larger("output", output, "input", input)
        return self._start_all(call, "all-gather", pairs)

    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[torch.Tensor]],
        input_list: Sequence[torch.Tensor],
        opts: Any = None,
    ) -> Work:
        """Give every rank several tensors of all ranks, in a list for each rank."""
        call = self._call("all_gather_coalesced")
        inputs = call.list_of_any("input_list", input_list)
        if len(output_lists) != self.size():
            raise call.value_error(
                "output_lists",
                f"has {len(output_lists)} lists: must have one for each of the {self.size()} ranks",
            )
        for outputs in output_lists:
            for index, (output, input) in enumerate(call.pairs(outputs, inputs)):
                call.check(f"output_lists[..][{index}]", output)
                call.alike(f"output_lists[..][{index}]", [output], input)
        flat = [output for outputs in output_lists for output in outputs]
        return self._start(call, "all-gather", input=inputs, output=flat)

    def reduce_scatter(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[Sequence[torch.Tensor]],
        opts: Any = None,
    ) -> Work:
        """Give each rank the reduction of the tensor for it in every rank's list."""
        call = self._call("reduce_scatter")
        output = call.check("output", call.only("output_tensors", output_tensors))
        inputs = call.list_for_ranks("input_list", call.only("input_tensors", input_tensors), output)
        how = call.reduction("output", output, opts)
        return self._start(call, "reduce-scatter", input=inputs, output=[output], **how)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Give each rank the reduction of its part of every rank's tensor."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Do what `reduce_scatter_single` does for several pairs of tensors."""
        call = self._call("reduce_scatter_tensor")
        pairs = call.pairs(outputs, inputs)
        for output, input in pairs:
            call.times_larger("input", input, "output", output)
        how = [call.reduction("output", output, opts) for output, _ in pairs]
        return self._start_all(call, "reduce-scatter", pairs, how)

    def alltoall(
        self, output_tensors: Sequence[torch.Tensor], input_tensors: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Give each rank the tensor for it in every rank's list. Sizes may differ."""
        call = self._call("all_to_all")
        lists = {"output_tensor_list": output_tensors, "input_tensor_list": input_tensors}
        for name, tensors in lists.items():
            call.one_each(name, tensors)
        for name, tensors in lists.items():
            for index, tensor in enumerate(tensors):
                call.check(f"{name}[{index}]", tensor)
                call.same_type(f"{name}[{index}]", tensor, input_tensors[0])
        sizes = [[tensor.nbytes for tensor in tensors] for tensors in (input_tensors, output_tensors)]
        own = self.rank()
        call.same_own_part("output_tensor_list", sizes[0][own], sizes[1][own])
        return self._start(
            call,
            "all-to-all",
            input=input_tensors,
            output=output_tensors,
            send_bytes=sizes[0],
            receive_bytes=sizes[1],
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Give each rank its part of every rank's tensor. Parts are rows; all have one size by default."""
        call = self._call("all_to_all_single")
        call.check("output", output)
        call.check("input", input)
        call.same_type("output", output, input)
        sends = call.split("input", input, input_split_sizes)
        receives = call.split("output", output, output_split_sizes)
        own, equal = self.rank(), [tensor.nbytes // self.size() for tensor in (input, output)]
        call.same_own_part(
            "output", sends[own] if sends else equal[0], receives[own] if receives else equal[1]
        )
        return self._start(
            call,
            "all-to-all",
            input=[input],
            output=[output],
            send_bytes=sends,
            receive_bytes=receives,
        )

    def gather(
        self,
        output_tensors: Sequence[Sequence[torch.Tensor]],
        input_tensors: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Give the root the tensors of all ranks, in a list."""
        call = self._call("gather")
        tensor = call.check("tensor", call.only("input_tensors", input_tensors))
        root = call.peer("root", opts.rootRank)
        if root != self.rank():
            return self._start(call, "gather", input=[tensor], peer=root)
        outputs = call.list_for_ranks("gather_list", call.only("output_tensors", output_tensors), tensor)
        return self._start(call, "gather", input=[tensor], output=outputs, peer=root)

    def gather_single(self, output: torch.Tensor | None, input: torch.Tensor, opts: Any) -> Work:
        """Give the root the tensors of all ranks, one after the other in one tensor."""
        call = self._call("gather_into_tensor")
        call.check("input", input)
        root = call.peer("root", opts.rootRank)
        if root != self.rank():
            return self._start(call, "gather", input=[input], peer=root)
        output = call.check("output", output)
        call.times_larger("output", output, "input", input)
        return self._start(call, "gather", input=[input], output=[output], peer=root)

    def scatter(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[Sequence[torch.Tensor]],
        opts: Any,
    ) -> Work:
        """Give each rank the tensor for it in the root's list."""
        call = self._call("scatter")
        tensor = call.check("tensor", call.only("output_tensors", output_tensors))
        root = call.peer("root", opts.rootRank)
        if root != self.rank():
            return self._start(call, "scatter", output=[tensor], peer=root)
        inputs = call.list_for_ranks("scatter_list", call.only("input_tensors", input_tensors), tensor)
        return self._start(call, "scatter", input=inputs, output=[tensor], peer=root)

    def barrier(self, opts: Any = None) -> Work:
        """Every rank waits until all ranks have started it."""
        timeout = timedelta(0) if opts is None else opts.timeout
        # torch has no timeout where it is 0, or -1 ms.
        timeout_s = timeout.total_seconds() if timeout > timedelta(0) else None
        return self._start(self._call("barrier"), "barrier", timeout_s=timeout_s)

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        """Every rank waits until all ranks have started it, at most for a time.

        After the timeout, the group ends, and the error names a rank that has not started it. To name all
        of them, as gloo does with `wait_all_ranks`, is not supported: that argument changes nothing.
        """
        opts = dist.BarrierOptions()
        opts.timeout = timeout
        self.barrier(opts).wait()

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int) -> Work:
        """Send a tensor to one rank. Those of one tag arrive in the order in which they are sent."""
        call = self._call("send")
        tensor = call.check("tensor", call.only("tensors", tensors))
        return self._start(call, "send", input=[tensor], peer=call.peer("dst", dst), tag=call.tag(tag))

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int) -> Work:
        """Receive a tensor from one rank."""
        call = self._call("recv")
        tensor = call.check("tensor", call.only("tensors", tensors))
        return self._start(call, "receive", output=[tensor], peer=call.peer("src", src), tag=call.tag(tag))

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Work:
        """Refuse: a receive names its sender."""
        raise self._call("recv").value_error("src", "= None: must be the rank of the sender")

    # Older names. Those of the base class return a `Work` that cannot be polled.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # How operations start.

    def _call(self, operation: str) -> Call:
        # Sends and receives are not in the order of operations: no rank waits for the next one.
        is_collective = operation not in ("send", "recv")
        refuse = self._communicator.refuse if is_collective else lambda reason: None
        return Call(self.rank(), self.size(), operation, refuse)

    def _start(
        self,
        call: Call,
        operation: str,
        *,
        input: Sequence[torch.Tensor] = (),
        output: Sequence[torch.Tensor] = (),
        load_output: bool = False,
        is_exact: bool = False,
        **how: Any,
    ) -> Work:
        started = self._submit(operation, input, output, load_output, how, is_exact=is_exact)
        return Work(call.operation, [started], output, self._tally)

    def _submit(
        self,
        operation: str,
        input: Sequence[torch.Tensor],
        output: Sequence[torch.Tensor],
        load_output: bool,
        how: dict[str, Any],
        *,
        is_exact: bool = False,
    ) -> Started:
        """Start an operation; also return what copies its result to where it belongs."""
        if any(overlap(one, other) for one in input for other in output):
            # As when every rank gathers into a tensor of which its own input is a part.
            input = [tensor.clone() for tensor in input]
        read = Memory(input) if input else None
        written = Memory(output) if output else None
        if read:
            read.load()
        if written and load_output:
            written.load()
        is_bounded = not is_exact and self._is_bounded(operation, output, how)
        if is_bounded and written and self._replayed:
            return self._replay(self._replayed, operation, read or written, written, how)
        ticket = self._communicator.submit(
            operation,
            input=read.buffer() if read else None,
            output=written.buffer() if written else None,
            bounded=is_bounded,
            **how,
        )

        def store(ended: _native.Ended) -> None:
            if written:
                written.store()
            if is_bounded and self._log:
                self._log.add(_entry(operation, how, ended, ended.result_bytes))

        return ticket, store

    def _replay(
        self, log: Reader, operation: str, source: Memory, written: Memory, how: dict[str, Any]
    ) -> Started:
        """Start an exact exchange of all inputs, and compute the result that a bounded operation had."""
        mine, result = source.buffer(), written.buffer()
        everyone = np.empty(self.size() * mine.size, dtype=np.uint8)
        ticket = self._communicator.submit("all-gather", input=mine, output=everyone)

        def store(ended: _native.Ended) -> None:
            inputs = np.split(everyone, self.size())
            result[:] = log.result(_entry(operation, how, ended, result.size), inputs)
            written.store()

        return ticket, store

    def _is_bounded(self, operation: str, output: Sequence[torch.Tensor], how: dict[str, Any]) -> bool:
        # All ranks must decide the same, so only by what is the same at all ranks: parts of different sizes
        # are not.
        return (
            self._bounded is not None
            and operation in self._bounded.operations
            and all(tensor.dtype in FLOATS for tensor in output)
            and not how.get("send_bytes")
            and not how.get("receive_bytes")
            and sum(tensor.nbytes for tensor in output) >= self._bounded.min_bytes
        )

    def _start_all(
        self,
        call: Call,
        operation: str,
        pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
        how: Sequence[dict[str, Any]] = (),
    ) -> Work:
        """Start one operation for each pair of an output and an input."""
        hows = how or [{}] * len(pairs)
        started = [
            self._submit(operation, [input], [output], False, one)
            for (output, input), one in zip(pairs, hows, strict=True)
        ]
        return Work(call.operation, started, [output for output, _ in pairs], self._tally)


def _communicator(place: Place, options: Options, timeout: timedelta) -> tuple[str, _native.Communicator]:
    """Return the address that this rank announces, and its native half."""
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
    """Return the site of each rank of a group; none where all are near each other."""
    sites = options.sites or ()
    if options.sites is not None and len(sites) != place.size:
        raise ValueError(
            f"{place.describe()}: sites = {options.sites!r}: has {len(sites)} sites: must have one for "
            f"each of the {place.size} ranks"
        )
    return sites


def _entry(operation: str, how: dict[str, Any], ended: _native.Ended, result_bytes: int) -> Entry:
    """Return what a log says of an operation."""
    element, reduction = how.get("element"), how.get("reduction")
    return Entry(ended.operation, operation, element, reduction, result_bytes, ended.missing)
