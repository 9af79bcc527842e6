"""A byte-level transformer that can be split over ranks: by heads, by layers or by experts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot, scaled_dot_product_attention

WIDTH = 128
LAYERS = 4
HEADS = 4
EXPERTS = 4
#: The most bytes of a prompt and its answer together.
PLACES = 320

#: A function that is applied to the inputs or to the results of a half of a layer.
Pass = Callable[[torch.Tensor], torch.Tensor]
#: For each layer, the keys and the values of earlier bytes.
Past = dict[int, tuple[torch.Tensor, torch.Tensor]]


def same(values: torch.Tensor) -> torch.Tensor:
    """Return the values without a change, if no other rank takes part."""
    return values


class Attention(nn.Module):
    """Some heads of the attention of a layer."""

    def __init__(self, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        depth = heads * WIDTH // HEADS
        self.mixed = nn.Linear(WIDTH, 3 * depth)
        self.out = nn.Linear(depth, WIDTH, bias=False)

    def forward(self, values: torch.Tensor, past: Past | None, layer: int) -> torch.Tensor:
        """Return what the heads add to the values. Each place sees only earlier places.

        Values have the shape (pieces, places, width). The keys and values of these places are added to
        `past`. If `past` already has keys of the layer, there must be only one place.
        """
        query, key, content = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.mixed(values).chunk(3, dim=2)
        )
        earlier = past.get(layer) if past is not None else None
        if earlier is not None:
            key, content = (torch.cat(both, dim=2) for both in zip(earlier, (key, content), strict=True))
        if past is not None:
            past[layer] = key, content
        seen = scaled_dot_product_attention(query, key, content, is_causal=earlier is None)
        return self.out(seen.transpose(1, 2).flatten(2))

    def part(self, number: int, of: int) -> Attention:
        """Return the heads of rank `number` of `of` ranks."""
        part = Attention(self.heads // of)
        rows = self.mixed.weight.chunk(3), self.mixed.bias.chunk(3)
        part.mixed.weight.data = torch.cat([row.chunk(of)[number] for row in rows[0]])
        part.mixed.bias.data = torch.cat([row.chunk(of)[number] for row in rows[1]])
        part.out.weight.data = self.out.weight.chunk(of, dim=1)[number].contiguous()
        return part


class FeedForward(nn.Module):
    """Some hidden values of the feed-forward network of a layer."""

    def __init__(self, hidden: int = 4 * WIDTH) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the network adds to the values."""
        return self.down(self.up(values).relu())

    def part(self, number: int, of: int) -> FeedForward:
        """Return the hidden values of rank `number` of `of` ranks."""
        part = FeedForward(self.up.out_features // of)
        part.up.weight.data = self.up.weight.chunk(of)[number]
        part.up.bias.data = self.up.bias.chunk(of)[number]
        part.down.weight.data = self.down.weight.chunk(of, dim=1)[number].contiguous()
        return part


class Experts(nn.Module):
    """Several networks. Each byte uses one of them, which a router chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(FeedForward(WIDTH * 2) for _ in range(EXPERTS))
        #: How unevenly the bytes of the last call were spread over the experts; 1 if they were spread evenly.
        self.unevenness = torch.ones(())

    def route(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the expert of each row of values, and the weight of its result."""
        shares = self.router(values).softmax(dim=1)
        weights, chosen = shares.max(dim=1)
        if self.training:
            used = one_hot(chosen, EXPERTS).float().mean(dim=0)
            self.unevenness = EXPERTS * (used * shares.mean(dim=0)).sum()
        return chosen, weights

    def apply_some(self, values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Return what the chosen expert of each row adds to the row. The expert -1 adds nothing."""
        added = torch.zeros_like(values)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                added = added.index_add(0, rows, expert(values[rows]))
        return added

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return what the experts add to the values."""
        rows = values.flatten(0, 1)
        chosen, weights = self.route(rows)
        return (self.apply_some(rows, chosen) * weights[:, None]).view(values.shape)


class Layer(nn.Module):
    """One layer: attention, then a feed-forward network or experts."""

    def __init__(self, has_experts: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = Attention()
        self.feed: FeedForward | Experts = Experts() if has_experts else FeedForward()

    def forward(
        self, hidden: torch.Tensor, past: Past | None, number: int, enter: Pass = same, leave: Pass = same
    ) -> torch.Tensor:
        """Return the hidden values after the layer. Each half applies `enter` and `leave` to its values."""
        hidden = hidden + leave(self.attention(enter(self.norms[0](hidden)), past, number))
        return hidden + leave(self.feed(enter(self.norms[1](hidden))))


class Transformer(nn.Module):
    """The whole model, from bytes to the logits of the next byte."""

    def __init__(self, has_experts: bool = False) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Parameter(torch.zeros(PLACES, WIDTH))
        self.layers = nn.ModuleList(Layer(has_experts) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.next = nn.Linear(WIDTH, 256)

    def embed(self, text: torch.Tensor, start: int) -> torch.Tensor:
        """Return the hidden values of bytes before the first layer, of shape (pieces, places, width)."""
        return self.bytes(text) + self.places[start : start + text.shape[1]]

    def predict(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits of the byte after each byte, from the hidden values after the last layer."""
        return self.next(self.norm(hidden))

    def forward(self, text: torch.Tensor, past: Past | None = None, start: int = 0) -> torch.Tensor:
        """Return the hidden values of bytes after the last layer."""
        hidden = self.embed(text, start)
        for number, layer in enumerate(self.layers):
            hidden = layer(hidden, past, number)
        return hidden


def trained(seed: int, steps: int, text: torch.Tensor, context: int, has_experts: bool) -> Transformer:
    """Train a model on a text in this process. Equal arguments give equal models."""
    torch.manual_seed(seed)
    model = Transformer(has_experts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        pieces = windows(text, context, 8, generator)
        logits = model.predict(model(pieces[:, :-1]))
        loss = cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        if has_experts:
            loss = loss + 0.01 * sum(layer.feed.unevenness for layer in model.layers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def windows(text: torch.Tensor, context: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Draw pieces of a text at random, each with `context` + 1 bytes."""
    starts = torch.randint(len(text) - context, (count,), generator=generator)
    return text[starts[:, None] + torch.arange(context + 1)]


def saved_model(
    folder: Path, seed: int, steps: int, text: torch.Tensor, context: int, has_experts: bool
) -> Path:
    """Return the file of a trained model. If the file does not exist, train the model and save it."""
    path = folder / f"{'experts' if has_experts else 'dense'}-{seed}-{steps}-{context}.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(trained(seed, steps, text, context, has_experts).state_dict(), path)
    return path
