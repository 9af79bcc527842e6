"""Inference of the transformer of the examples, split over ranks, compared with one process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

from farwrite.torch import Bounded, Options

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WAYS = ["tensor", "sequence", "pipeline", "experts"]
PROMPTS, CONTEXT, ANSWER = 4, 48, 3
#: Results differ a little: sums of float32 have another order, and multiplied matrices have other shapes.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
#: All operations on prompts are bounded: the smallest result is that of the prompts of one rank.
BOUNDED = Bounded(
    0.02, operations=("all-reduce", "reduce-scatter", "all-gather", "all-to-all"), min_bytes=16384
)

#: Logits at all places of some prompts, the numbers of these prompts, and the answers to them.
Answers = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.mark.parametrize("way", WAYS)
def test_exact_serving_is_that_of_one_process(job: Ranks, way: str) -> None:
    """The logits differ only by rounding, and the answers are equal."""
    logits, answers = _alone(way)
    judged = 0
    for rank, (ours, numbers, answered) in enumerate(job.run(_serve, way, False)):
        torch.testing.assert_close(ours, logits[numbers], **TOLERANCE, msg=f"rank {rank}")
        judged += len(ours)
        # In a pipeline, only the first rank knows the bytes of the answers.
        if way != "pipeline" or rank == 0:
            held = numbers if way != "pipeline" else torch.arange(PROMPTS)
            assert torch.equal(answered, answers[held]), f"rank {rank}"
    assert judged == PROMPTS * (job.size if way == "tensor" else 1)


@pytest.mark.parametrize("way", WAYS)
def test_bounded_serving_ends_with_numbers(job: Ranks, way: str) -> None:
    """The missing share depends on the load of the machine. The test checks what holds in any case."""
    results = job.run(_serve, way, True)
    for ours, numbers, answered in results:
        assert ours.isfinite().all()
        assert len(ours) == len(numbers)
        assert answered.shape[1] == ANSWER
    if way == "tensor":
        # All ranks get the same result of an all-reduce, whichever contributions it lacks.
        for ours, _, answered in results[1:]:
            assert torch.equal(ours, results[0][0])
            assert torch.equal(answered, results[0][2])


def _pieces() -> torch.Tensor:
    return torch.randint(256, (PROMPTS, CONTEXT + 1), generator=torch.Generator().manual_seed(7))


def _alone(way: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the prompts and the answers of one process without other ranks."""
    model = _model(way)
    answers = torch.empty(PROMPTS, 0, dtype=torch.int64)
    text = _pieces()[:, :-1]
    with torch.no_grad():
        logits = model.predict(model(text))
        for _ in range(ANSWER):
            # The model computes all bytes again, without keys and values of earlier bytes.
            following = model.predict(model(torch.cat([text, answers], dim=1)))[:, -1:].argmax(dim=2)
            answers = torch.cat([answers, following], dim=1)
    return logits, answers


def _model(way: str) -> torch.nn.Module:
    sys.path.append(str(EXAMPLES))
    from transformer import Transformer

    torch.manual_seed(3)
    model = Transformer(way == "experts").eval()
    with torch.no_grad():
        # The logits are far from uniform, so that rounding does not decide which byte is the most likely one.
        model.next.weight.mul_(10)
    return model


def _serve(way: str, is_bounded: bool) -> Answers:
    sys.path.append(str(EXAMPLES))
    from serve import Server
    from split import WAYS, CountedGroup

    group = dist.new_group(pg_options=Options(trusted_store=True, policy=BOUNDED) if is_bounded else None)
    counted = CountedGroup(group)
    server = Server(WAYS[way](_model(way), counted), counted)
    pieces = _pieces()
    counted.is_counting = True
    hidden, answered, _, _ = server.answer(pieces, ANSWER)
    assert (counted.bounded > 0) == (is_bounded and way != "pipeline")
    numbers = server.way.own(torch.arange(PROMPTS)[:, None])[:, 0]
    dist.destroy_process_group(group)
    if hidden is None:
        return torch.empty(0, CONTEXT, 256), torch.empty(0, dtype=torch.int64), answered
    with torch.no_grad():
        return server.way.model.predict(hidden), numbers, answered
