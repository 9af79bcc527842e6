"""The operations of torch, implemented with those of `farwrite-collectives`."""

# The type hints of torch's ProcessGroup declare more forms of these methods than torch calls on a subclass.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions

from farwrite import _native
from farwrite.torch.arguments import FLOATS, Call
from farwrite.torch.forms import forms
from farwrite.torch.memory import Memory, overlap
from farwrite.torch.missing_log import Entry, Reader, Writer
from farwrite.torch.options import Bounded
from farwrite.torch.profile import profiled
from farwrite.torch.reports import Totals
from farwrite.torch.untraced import untraced
from farwrite.torch.work import Started, Work


@untraced
class Operations:
    """The operations of a rank in a group.

    torch prescribes the names and the arguments of the methods. Each operation returns a `Work`. An invalid
    argument of an operation raises TypeError or ValueError, whose message names the rank, the operation and
    the argument.
    """

    _totals: Totals
    _bounded: Bounded | None
    #: The timeout of operations, after `set_timeout`.
    _timeout_s: float | None
    _log: Writer | None
    _replayed: Reader | None

    @property
    def _communicator(self) -> _native.Communicator:
        raise NotImplementedError

    def rank(self) -> int:
        """Return the number of this rank in the group."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the number of ranks of the group."""
        raise NotImplementedError

    @forms(dist.AllreduceOptions, ["op", "timeout"], lists=["tensors"])
    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any, *, is_exact: bool = False) -> Work:
        """Reduce the tensors of all ranks to one, which replaces the tensor of every rank.

        With `is_exact`, which torch does not pass, the operation is exact in a bounded group too.
        """
        call = self._call("all_reduce", opts)
        only = call.only("tensors", tensors)
        if isinstance(only, torch.Tensor) and only.layout == torch.sparse_coo:
            return self._sum_sparse(call, only, opts)
        tensor = call.check("tensor", only)
        how = call.reduction("tensor", tensor, opts)
        return self._start(call, "all-reduce", output=[tensor], load_output=True, is_exact=is_exact, **how)

    allreduce_sparse = allreduce

    def _sum_sparse(self, call: Call, tensor: torch.Tensor, opts: Any) -> Work:
        """Sum the sparse tensors of all ranks. All ranks first exchange how many values each one has."""
        if opts.reduceOp != dist.ReduceOp.SUM:
            wanted = f"ReduceOp.{opts.reduceOp.op.name}"
            raise call.value_error("op", f"= {wanted}: tensor is sparse: must be ReduceOp.SUM")
        mine = tensor.detach().coalesce()
        indices, values = mine.indices().contiguous(), mine.values().contiguous()
        call.check("tensor", values)
        ranks, dense = self.size(), values.shape[1:]
        counts = indices.new_empty(ranks)
        count = indices.new_tensor([values.shape[0]])
        self._start(call, "all-gather", input=[count], output=[counts], is_exact=True).wait()
        most = int(counts.max())
        # All parts of a gathered tensor have one size, so each rank fills its part up.
        own_indices = indices.new_zeros(indices.shape[0], most)
        own_values = values.new_zeros(most, *dense)
        own_indices[:, : indices.shape[1]] = indices
        own_values[: values.shape[0]] = values
        all_indices = indices.new_empty(ranks, *own_indices.shape)
        all_values = values.new_empty(ranks, *own_values.shape)
        gathered = self._start(call, "all-gather", input=[own_indices], output=[all_indices], is_exact=True)

        def store() -> None:
            gathered.wait()
            lengths = counts.tolist()
            found = [all_indices[rank, :, :length] for rank, length in enumerate(lengths)]
            parts = [all_values[rank, :length] for rank, length in enumerate(lengths)]
            total = torch.sparse_coo_tensor(torch.cat(found, 1), torch.cat(parts), tensor.shape)
            tensor.copy_(total.coalesce())

        return self._start(
            call,
            "all-gather",
            input=[own_values],
            output=[all_values],
            results=[tensor],
            after=store,
            is_exact=True,
        )

    @forms(dist.AllreduceCoalescedOptions, lists=["tensors"])
    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Do what `allreduce` does for several tensors of one type, in one operation."""
        call = self._call("all_reduce_coalesced", opts)
        checked = call.list_of_any("tensors", tensors)
        for index, tensor in enumerate(checked):
            call.same_type(f"tensors[{index}]", tensor, checked[0])
        how = call.reduction("tensors[0]", checked[0], opts)
        return self._start(call, "all-reduce", output=checked, load_output=True, **how)

    @forms(dist.BroadcastOptions, ["root", "timeout"], lists=["tensors"])
    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Copy the root's tensor into the tensor of every other rank."""
        call = self._call("broadcast", opts)
        tensor = call.check("tensor", call.only("tensors", tensors))
        root = call.peer("root", opts.rootRank)
        return self._start(call, "broadcast", output=[tensor], load_output=True, peer=root)

    @forms(dist.ReduceOptions, ["root", "op", "timeout"], lists=["tensors"])
    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Reduce the tensors of all ranks to one, which replaces the tensor of the root."""
        call = self._call("reduce", opts)
        tensor = call.check("tensor", call.only("tensors", tensors))
        root = call.peer("root", opts.rootRank)
        how = call.reduction("tensor", tensor, opts)
        if root == self.rank():
            return self._start(call, "reduce", output=[tensor], load_output=True, peer=root, **how)
        return self._start(call, "reduce", input=[tensor], peer=root, **how)

    @forms(AllgatherOptions, ["timeout"], lists=["output_tensors", "input_tensors"])
    def allgather(
        self,
        output_tensors: Sequence[Sequence[torch.Tensor]],
        input_tensors: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Give every rank the tensors of all ranks, as a list in the order of ranks."""
        call = self._call("all_gather", opts)
        tensor = call.check("tensor", call.only("input_tensors", input_tensors))
        outputs = call.list_for_ranks("tensor_list", call.only("output_tensors", output_tensors), tensor)
        return self._start(call, "all-gather", input=[tensor], output=outputs)

    @forms(AllgatherOptions, ["timeout"], other=["output", "input"])
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """Give every rank the tensors of all ranks, as one tensor in the order of ranks."""
        return self.all_gather_single_coalesced([output], [input], opts)

    @forms(AllgatherOptions, ["timeout"], other=["outputs", "inputs"])
    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any
    ) -> Work:
        """Do what `all_gather_single` does for several pairs of tensors."""
        call = self._call("all_gather_into_tensor", opts)
        pairs = call.pairs(outputs, inputs)
        for output, input in pairs:
            call.times_larger("output", output, "input", input)
        return self._start_all(call, "all-gather", pairs)

    @forms(AllgatherOptions, ["timeout"], other=["output_lists", "input_list"])
    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[torch.Tensor]],
        input_list: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Give every rank several tensors of all ranks, as a list for each rank."""
        call = self._call("all_gather_coalesced", opts)
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

    @forms(dist.ReduceScatterOptions, ["op", "timeout"], lists=["output_tensors", "input_tensors"])
    def reduce_scatter(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[Sequence[torch.Tensor]],
        opts: Any,
    ) -> Work:
        """Give rank r the reduction of tensor r of every rank's list. The sizes of tensors may differ."""
        call = self._call("reduce_scatter", opts)
        output = call.check("output", call.only("output_tensors", output_tensors))
        inputs = call.only("input_tensors", input_tensors)
        call.one_each("input_list", inputs)
        for index, input in enumerate(inputs):
            call.check(f"input_list[{index}]", input)
            call.same_type(f"input_list[{index}]", input, output)
        call.alike("output", [output], inputs[self.rank()])
        how = call.reduction("output", output, opts)
        longest = max(input.numel() for input in inputs)
        if all(input.numel() == longest for input in inputs):
            return self._start(call, "reduce-scatter", input=inputs, output=[output], **how)
        # All parts of the operation have one size, so each rank fills them up.
        whole = output.new_zeros(len(inputs), longest)
        for part, input in zip(whole, inputs, strict=True):
            part[: input.numel()] = input.reshape(-1)
        mine = output.new_empty(longest)

        def store() -> None:
            output.copy_(mine[: output.numel()].view_as(output))

        return self._start(
            call, "reduce-scatter", input=[whole], output=[mine], results=[output], after=store, **how
        )

    @forms(dist.ReduceScatterOptions, ["op", "timeout"], other=["output", "input"])
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """Give rank r the reduction of part r of every rank's tensor."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    @forms(dist.ReduceScatterOptions, ["op", "timeout"], other=["outputs", "inputs"])
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any
    ) -> Work:
        """Do what `reduce_scatter_single` does for several pairs of tensors."""
        call = self._call("reduce_scatter_tensor", opts)
        pairs = call.pairs(outputs, inputs)
        for output, input in pairs:
            call.times_larger("input", input, "output", output)
        how = [call.reduction("output", output, opts) for output, _ in pairs]
        return self._start_all(call, "reduce-scatter", pairs, how)

    @forms(dist.AllToAllOptions, ["timeout"], other=["output_tensors", "input_tensors"])
    def alltoall(
        self, output_tensors: Sequence[torch.Tensor], input_tensors: Sequence[torch.Tensor], opts: Any
    ) -> Work:
        """Give rank r tensor r of every rank's list. The sizes of tensors may differ."""
        call = self._call("all_to_all", opts)
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

    @forms(
        dist.AllToAllOptions,
        ["timeout"],
        other=["output", "input", "output_split_sizes", "input_split_sizes"],
    )
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any,
    ) -> Work:
        """Give rank r part r of every rank's tensor.

        A part has a number of rows. Without split sizes, all parts have equally many rows.
        """
        call = self._call("all_to_all_single", opts)
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

    @forms(dist.GatherOptions, ["root", "timeout"], lists=["output_tensors", "input_tensors"])
    def gather(
        self,
        output_tensors: Sequence[Sequence[torch.Tensor]],
        input_tensors: Sequence[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Give the root the tensors of all ranks, as a list in the order of ranks."""
        call = self._call("gather", opts)
        tensor = call.check("tensor", call.only("input_tensors", input_tensors))
        root = call.peer("root", opts.rootRank)
        if root != self.rank():
            return self._start(call, "gather", input=[tensor], peer=root)
        outputs = call.list_for_ranks("gather_list", call.only("output_tensors", output_tensors), tensor)
        return self._start(call, "gather", input=[tensor], output=outputs, peer=root)

    @forms(dist.GatherOptions, ["root", "timeout"], other=["output", "input"])
    def gather_single(self, output: torch.Tensor | None, input: torch.Tensor, opts: Any) -> Work:
        """Give the root the tensors of all ranks, as one tensor in the order of ranks."""
        call = self._call("gather_into_tensor", opts)
        call.check("input", input)
        root = call.peer("root", opts.rootRank)
        if root != self.rank():
            return self._start(call, "gather", input=[input], peer=root)
        output = call.check("output", output)
        call.times_larger("output", output, "input", input)
        return self._start(call, "gather", input=[input], output=[output], peer=root)

    @forms(dist.ScatterOptions, ["root", "timeout"], lists=["output_tensors", "input_tensors"])
    def scatter(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[Sequence[torch.Tensor]],
        opts: Any,
    ) -> Work:
        """Give rank r tensor r of the root's list."""
        call = self._call("scatter", opts)
        tensor = call.check("tensor", call.only("output_tensors", output_tensors))
        root = call.peer("root", opts.rootRank)
        if root != self.rank():
            return self._start(call, "scatter", output=[tensor], peer=root)
        inputs = call.list_for_ranks("scatter_list", call.only("input_tensors", input_tensors), tensor)
        return self._start(call, "scatter", input=inputs, output=[tensor], peer=root)

    @forms(dist.BarrierOptions, ["timeout"])
    def barrier(self, opts: Any) -> Work:
        """Wait on every rank until all ranks have started the barrier."""
        return self._start(self._call("barrier", opts), "barrier")

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait on every rank until all ranks have started the barrier, for at most `timeout`.

        After the timeout, the group ends, and the error names all ranks that have not started the barrier, or
        do not answer. `wait_all_ranks` has no effect; gloo names all only with `wait_all_ranks=True`.
        """
        opts = dist.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        self.barrier(opts).wait()

    def send(self, tensors: Sequence[torch.Tensor], dstRank: int, tag: int) -> Work:
        """Send a tensor to one rank. Tensors with the same tag arrive in the order in which they are sent."""
        call = self._call("send")
        tensor = call.check("tensor", call.only("tensors", tensors))
        return self._start(call, "send", input=[tensor], peer=call.peer("dst", dstRank), tag=call.tag(tag))

    def recv(self, tensors: Sequence[torch.Tensor], srcRank: int, tag: int) -> Work:
        """Receive a tensor from one rank."""
        call = self._call("recv")
        tensor = call.check("tensor", call.only("tensors", tensors))
        peer = call.peer("src", srcRank)
        return self._start(call, "receive", output=[tensor], peer=peer, tag=call.tag(tag))

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Work:
        """Receive a tensor from the rank whose send is known here first. Sends of others stay for later."""
        call = self._call("recv")
        tensor = call.check("tensor", call.only("tensors", tensors))
        return self._start(call, "receive-any", output=[tensor], tag=call.tag(tag))

    # Older names of methods. The methods of the base class with these names return a `Work` that cannot be
    # polled.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # The start of operations.

    def _call(self, operation: str, opts: Any = None) -> Call:
        # Only collective operations have an order, in which another rank can wait for the next operation of
        # this rank.
        is_collective = operation not in ("send", "recv")
        refuse = self._communicator.refuse if is_collective else lambda reason: None
        # With 0 or -1 ms, torch means that the call has no timeout of its own.
        has_timeout = opts is not None and opts.timeout > timedelta(0)
        timeout_s = opts.timeout.total_seconds() if has_timeout else self._timeout_s
        return Call(self.rank(), self.size(), operation, refuse, timeout_s)

    def _start(
        self,
        call: Call,
        operation: str,
        *,
        input: Sequence[torch.Tensor] = (),
        output: Sequence[torch.Tensor] = (),
        load_output: bool = False,
        is_exact: bool = False,
        results: Sequence[torch.Tensor] | None = None,
        after: Callable[[], None] = lambda: None,
        **how: Any,
    ) -> Work:
        """Start an operation. If its output is not that of the call, `after` makes `results` of it."""

        def start() -> Work:
            ticket, store = self._submit(call, operation, input, output, load_output, how, is_exact=is_exact)

            def store_results(ended: _native.Ended) -> None:
                store(ended)
                after()

            of_call = output if results is None else results
            return Work(call.operation, [(ticket, store_results)], of_call, self._totals)

        return profiled(call.operation, start)

    def _submit(
        self,
        call: Call,
        operation: str,
        input: Sequence[torch.Tensor],
        output: Sequence[torch.Tensor],
        load_output: bool,
        how: dict[str, Any],
        *,
        is_exact: bool = False,
    ) -> Started:
        """Start an operation. Return its ticket, and a function that copies its result into the tensors."""
        if any(overlap(one, other) for one in input for other in output):
            # This happens if a rank gathers into a tensor of which its own input is a part.
            input = [tensor.clone() for tensor in input]
        read = Memory(input) if input else None
        written = Memory(output) if output else None
        if read:
            read.load()
        if written and load_output:
            written.load()
        is_bounded = not is_exact and self._is_bounded(operation, output, how)
        if is_bounded and written and self._replayed:
            return self._replay(self._replayed, call, operation, read or written, written, how)
        ticket = self._communicator.submit(
            operation,
            input=read.buffer() if read else None,
            output=written.buffer() if written else None,
            bounded=is_bounded,
            timeout_s=call.timeout_s,
            **how,
        )

        def store(ended: _native.Ended) -> None:
            if written:
                written.store()
            if is_bounded and self._log:
                self._log.add(_entry(operation, how, ended, ended.result_bytes))

        return ticket, store

    def _replay(
        self,
        log: Reader,
        call: Call,
        operation: str,
        source: Memory,
        written: Memory,
        how: dict[str, Any],
    ) -> Started:
        """Start an exact exchange of all inputs, from which the result of a bounded operation is computed."""
        mine, result = source.buffer(), written.buffer()
        everyone = np.empty(self.size() * mine.size, dtype=np.uint8)
        ticket = self._communicator.submit(
            "all-gather", input=mine, output=everyone, timeout_s=call.timeout_s
        )

        def store(ended: _native.Ended) -> None:
            inputs = np.split(everyone, self.size())
            result[:] = log.result(_entry(operation, how, ended, result.size), inputs)
            written.store()

        return ticket, store

    def _is_bounded(self, operation: str, output: Sequence[torch.Tensor], how: dict[str, Any]) -> bool:
        # All ranks must make the same decision, so it depends only on values that all ranks have in common.
        # The sizes of parts can differ between ranks, so operations with such sizes are exact.
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

        def start() -> Work:
            started = [
                self._submit(call, operation, [input], [output], False, one)
                for (output, input), one in zip(pairs, hows, strict=True)
            ]
            return Work(call.operation, started, [output for output, _ in pairs], self._totals)

        return profiled(call.operation, start)


def _entry(operation: str, how: dict[str, Any], ended: _native.Ended, result_bytes: int) -> Entry:
    """Return the entry of a log for an operation."""
    element, reduction = how.get("element"), how.get("reduction")
    return Entry(ended.operation, operation, element, reduction, result_bytes, ended.missing)
