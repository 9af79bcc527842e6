"""Ways to split the transformer over ranks, and the operations that each of them needs.

Each way has the same methods. `own` says which prompts a rank begins with. `step` returns the hidden values
of bytes after the last layer, where this rank has them. `following` returns the bytes that come next.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from transformer import EXPERTS, LAYERS, WIDTH, Experts, Past, Transformer

import farwrite.torch


class Wire:
    """The operations of a group, and what was missing from the bounded ones."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.is_counting = False
        #: Bounded operations, how many of them were cut, bytes that were missing, and bytes of all results.
        self.bounded = self.cut = self.missing_bytes = self.result_bytes = 0

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of the values of all ranks."""
        values = values.contiguous()
        dist.all_reduce(values, group=self.group)
        self._count()
        return values

    def sum_parts(self, values: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the sum: the first dimension is split."""
        part = values.new_empty(len(values) // self.size, *values.shape[1:])
        dist.reduce_scatter_tensor(part, values.contiguous(), group=self.group)
        self._count()
        return part

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the parts of all ranks, along the first dimension."""
        whole = part.new_empty(len(part) * self.size, *part.shape[1:])
        dist.all_gather_into_tensor(whole, part.contiguous(), group=self.group)
        self._count()
        return whole

    def exchange(self, parts: torch.Tensor) -> torch.Tensor:
        """Give each rank its part of the first dimension, and return those for this rank."""
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts, group=self.group)
        self._count()
        return received

    def send(self, values: torch.Tensor, rank: int) -> None:
        """Send values to a rank: exact in every group."""
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
    """Each rank has some heads and hidden values of all layers: an all-reduce after each half of a layer."""

    def __init__(self, model: Transformer, wire: Wire) -> None:
        self._wire = wire
        self.model = Transformer()
        self.model.load_state_dict(model.state_dict())
        for layer in self.model.layers:
            layer.attention = layer.attention.part(wire.rank, wire.size)
            layer.feed = layer.feed.part(wire.rank, wire.size)

    def own(self, prompts: torch.Tensor) -> torch.Tensor:
        """All ranks have all prompts."""
        return prompts

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute bytes that begin at a place, and add them to the past."""
        hidden = self.model.embed(text, start)
        for number, layer in enumerate(self.model.layers):
            hidden = layer(hidden, past, number, leave=self._wire.sum)
        return hidden

    def following(self, hidden: torch.Tensor | None, prompts: int) -> torch.Tensor:
        """Return the most likely next byte of each prompt."""
        assert hidden is not None
        return self.model.predict(hidden[:, -1:]).argmax(dim=2)


class Sequence(Tensor):
    """As `Tensor`, but between the halves of layers each rank has only the values of its own prompts.

    An all-gather before each half and a reduce-scatter after it move as many bytes as an all-reduce.
    """

    def own(self, prompts: torch.Tensor) -> torch.Tensor:
        """Each rank has some of the prompts."""
        return prompts.chunk(self._wire.size)[self._wire.rank]

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute bytes that begin at a place, and add them to the past."""
        hidden = self.model.embed(text, start)
        for number, layer in enumerate(self.model.layers):
            hidden = layer(hidden, past, number, self._wire.gather, self._wire.sum_parts)
        return hidden


class Pipeline:
    """Each rank has some layers, and sends hidden values to the next one.

    The last rank sends the bytes that come next to rank 0. Sends are exact in every group.
    """

    def __init__(self, model: Transformer, wire: Wire) -> None:
        self._wire = wire
        self.model = model
        self._numbers = range(LAYERS * wire.rank // wire.size, LAYERS * (wire.rank + 1) // wire.size)

    def own(self, prompts: torch.Tensor) -> torch.Tensor:
        """Rank 0 has all prompts; the others need their number and length."""
        return prompts

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute bytes that begin at a place, and add them to the past."""
        wire = self._wire
        if wire.rank == 0:
            hidden = self.model.embed(text, start)
        else:
            hidden = wire.receive(torch.empty(*text.shape, WIDTH), wire.rank - 1)
        for number in self._numbers:
            hidden = self.model.layers[number](hidden, past, number)
        if wire.rank + 1 == wire.size:
            return hidden
        wire.send(hidden, wire.rank + 1)
        return None

    def following(self, hidden: torch.Tensor | None, prompts: int) -> torch.Tensor:
        """Return the most likely next byte of each prompt, at rank 0; elsewhere zeros."""
        wire = self._wire
        following = torch.zeros(prompts, 1, dtype=torch.int64)
        if hidden is not None:
            wire.send(self.model.predict(hidden[:, -1:]).argmax(dim=2), 0)
        elif wire.rank == 0:
            following = wire.receive(following, wire.size - 1)
        return following


class Mixture(Sequence):
    """Each rank has some experts, the whole attention, and its own prompts: two all-to-alls in each layer."""

    def __init__(self, model: Transformer, wire: Wire) -> None:
        self._wire = wire
        self.model = Transformer(has_experts=True)
        self.model.load_state_dict(model.state_dict())
        for layer in self.model.layers:
            layer.feed = Spread(layer.feed, wire)

    def step(self, text: torch.Tensor, past: Past, start: int) -> torch.Tensor | None:
        """Compute bytes that begin at a place, and add them to the past."""
        return self.model(text, past, start)


class Spread(nn.Module):
    """Experts on several ranks. Each row of values goes to the rank of its expert, and the result comes back.

    Each rank sends as many rows to each other rank as it has; those for another rank's experts are 0.
    A row that is missing adds nothing, as if no expert were there.
    """

    def __init__(self, experts: Experts, wire: Wire) -> None:
        super().__init__()
        self._experts = experts
        self._wire = wire
        self._each = EXPERTS // wire.size

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the experts add to the values."""
        wire = self._wire
        rows = values.flatten(0, 1)
        chosen, weights = self._experts.route(rows)
        places = chosen // self._each, torch.arange(len(rows))
        parts = rows.new_zeros(wire.size, len(rows), WIDTH)
        parts[places] = rows
        received = wire.exchange(parts).flatten(0, 1)
        # The router says again which of this rank's experts it was.
        first = wire.rank * self._each
        mine = self._experts.router(received)[:, first : first + self._each].argmax(dim=1) + first
        mine[(received == 0).all(dim=1)] = -1
        added = wire.exchange(self._experts.apply_some(received, mine).view(parts.shape))
        return (added[places] * weights[:, None]).view(values.shape)


#: Ways to split the model, by the name of an option.
WAYS = {"tensor": Tensor, "sequence": Sequence, "pipeline": Pipeline, "experts": Mixture}
