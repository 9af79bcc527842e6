"""Ways to split the transformer over ranks, and the operations of a group that they need.

All ways have the methods `own`, `step` and `following`. `own` returns the prompts with which a rank begins.
`step` returns the hidden values of bytes after the last layer, or None if another rank has them. `following`
returns the most likely next byte of each prompt.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from transformer import EXPERTS, LAYERS, WIDTH, Experts, Past, Transformer

import farwrite.torch


class CountedGroup:
    """The operations of a group, and counts of its bounded operations and their missing bytes."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.is_counting = False
        #: Number of bounded operations, number of those that were cut, bytes that were missing from their
        #: results, and bytes of their results.
        self.bounded = self.cut = self.missing_bytes = self.result_bytes = 0

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of the values of all ranks."""
        values = values.contiguous()
        dist.all_reduce(values, group=self.group)
        self._count()
        return values

    def sum_parts(self, values: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the sum, whose first dimension is split over the ranks."""
        part = values.new_empty(len(values) // self.size, *values.shape[1:])
        dist.reduce_scatter_tensor(part, values.contiguous(), group=self.group)
        self._count()
        return part

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the parts of all ranks, joined along the first dimension."""
        whole = part.new_empty(len(part) * self.size, *part.shape[1:])
        dist.all_gather_into_tensor(whole, part.contiguous(), group=self.group)
        self._count()
        return whole

    def exchange(self, parts: torch.Tensor) -> torch.Tensor:
        """Send each rank its part of the first dimension, and return the parts that this rank receives."""
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts, group=self.group)
        self._count()
        return received

    def send(self, values: torch.Tensor, rank: int) -> None:
        """Send values to a rank. This operation is exact in every group."""
        dist.send(values.contiguous(), group=self.group, group_dst=rank)

    def receive(self, values: torch.Tensor, rank: int) -> torch.Tensor:
        """Fill a tensor with the values that a rank sends."""
        dist.recv(values, group=self.group, group_src=rank)
        return values

    def _count(self) -> None:
        if self.is_counting and isinstance(self.group, farwrite.torch.ProcessGroup):
            report = farwrite.torch.last_report(self.group)
            if report is not None and report.scheme is not None:
                self.bounded += 1
                self.cut += report.was_cut
                self.missing_bytes += report.missing_bytes
                self.result_bytes += report.result_bytes


class Tensor:
    """Each rank has some heads and some hidden values of each layer.

    There is an all-reduce after each half of a layer.
    """

    def __init__(self, model: Transformer, group: CountedGroup) -> None:
        self._group = group
        self.model = Transformer()
        self.model.load_state_dict(model.state_dict())
        for layer in self.model.layers:
            layer.attention = layer.attention.part(group.rank, group.size)
            layer.feed = layer.feed.part(group.rank, group.size)

    def own(self, prompts: torch.Tensor) -> torch.Tensor:
        """Return all prompts, which every rank has."""
        return prompts

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute the bytes of `text`, which begin at the place `start`, and add their keys to `past`."""
        hidden = self.model.embed(text, start)
        for number, layer in enumerate(self.model.layers):
            hidden = layer(hidden, past, number, leave=self._group.sum)
        return hidden

    def following(self, hidden: torch.Tensor | None, prompts: int) -> torch.Tensor:
        """Return the most likely next byte of each prompt."""
        assert hidden is not None
        return self.model.predict(hidden[:, -1:]).argmax(dim=2)


class Sequence(Tensor):
    """As `Tensor`, but between the halves of layers, a rank has only the values of its own prompts.

    An all-gather before each half and a reduce-scatter after it move as many bytes together as an all-reduce.
    """

    def own(self, prompts: torch.Tensor) -> torch.Tensor:
        """Return the prompts of this rank."""
        return prompts.chunk(self._group.size)[self._group.rank]

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute the bytes of `text`, which begin at the place `start`, and add their keys to `past`."""
        hidden = self.model.embed(text, start)
        for number, layer in enumerate(self.model.layers):
            hidden = layer(hidden, past, number, self._group.gather, self._group.sum_parts)
        return hidden


class Pipeline:
    """Each rank has some layers, and sends hidden values to the next rank.

    The last rank sends the predicted bytes to rank 0. Sends are exact in every group.
    """

    def __init__(self, model: Transformer, group: CountedGroup) -> None:
        self._group = group
        self.model = model
        self._numbers = range(LAYERS * group.rank // group.size, LAYERS * (group.rank + 1) // group.size)

    def own(self, prompts: torch.Tensor) -> torch.Tensor:
        """Return all prompts, of which rank 0 uses the bytes, and other ranks only the shape."""
        return prompts

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute the bytes of `text`, which begin at the place `start`, and add their keys to `past`."""
        group = self._group
        if group.rank == 0:
            hidden = self.model.embed(text, start)
        else:
            hidden = group.receive(torch.empty(*text.shape, WIDTH), group.rank - 1)
        for number in self._numbers:
            hidden = self.model.layers[number](hidden, past, number)
        if group.rank + 1 == group.size:
            return hidden
        group.send(hidden, group.rank + 1)
        return None

    def following(self, hidden: torch.Tensor | None, prompts: int) -> torch.Tensor:
        """Return the most likely next byte of each prompt at rank 0, and zeros at other ranks."""
        group = self._group
        following = torch.zeros(prompts, 1, dtype=torch.int64)
        if hidden is not None:
            group.send(self.model.predict(hidden[:, -1:]).argmax(dim=2), 0)
        elif group.rank == 0:
            following = group.receive(following, group.size - 1)
        return following


class Mixture(Sequence):
    """Each rank has some experts, the whole attention, and its own prompts.

    There are two all-to-alls in each layer.
    """

    def __init__(self, model: Transformer, group: CountedGroup) -> None:
        self._group = group
        self.model = Transformer(has_experts=True)
        self.model.load_state_dict(model.state_dict())
        for layer in self.model.layers:
            layer.feed = SplitExperts(layer.feed, group)

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute the bytes of `text`, which begin at the place `start`, and add their keys to `past`."""
        return self.model(text, past, start)


class SplitExperts(nn.Module):
    """Experts on several ranks. The rank of its expert gets each row of values, and sends the result back.

    A rank sends all of its rows to each rank, but a row that is not for an expert of the receiver is 0. If a
    row is missing, its expert adds nothing.
    """

    def __init__(self, experts: Experts, group: CountedGroup) -> None:
        super().__init__()
        self._experts = experts
        self._group = group
        self._each = EXPERTS // group.size

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the experts add to the values."""
        group = self._group
        rows = values.flatten(0, 1)
        chosen, weights = self._experts.route(rows)
        places = chosen // self._each, torch.arange(len(rows))
        parts = rows.new_zeros(group.size, len(rows), WIDTH)
        parts[places] = rows
        received = group.exchange(parts).flatten(0, 1)
        # This rank computes from each received row which of its experts the row is for.
        first = group.rank * self._each
        mine = self._experts.router(received)[:, first : first + self._each].argmax(dim=1) + first
        mine[(received == 0).all(dim=1)] = -1
        added = group.exchange(self._experts.apply_some(received, mine).view(parts.shape))
        return (added[places] * weights[:, None]).view(values.shape)


#: Ways to split the model, by the value of `--way`.
WAYS = {"tensor": Tensor, "sequence": Sequence, "pipeline": Pipeline, "experts": Mixture}
