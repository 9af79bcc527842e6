"""Receives that name no sender: `dist.recv(tensor)`."""

import torch
import torch.distributed as dist
from ranks import Ranks, message


def test_each_receive_takes_one_send(four: Ranks) -> None:
    four.run(_each)


def _each() -> None:
    if dist.get_rank() > 0:
        dist.send(torch.full((1000,), float(dist.get_rank())), dst=0, tag=3)
        return
    received, senders = torch.empty(1000), []
    for _ in range(3):
        sender = dist.recv(received, tag=3)
        assert bool((received == sender).all())
        senders.append(sender)
    assert sorted(senders) == [1, 2, 3]


def test_the_sender_of_a_receive_that_runs(four: Ranks) -> None:
    four.run(_runs)


def _runs() -> None:
    rank = dist.get_rank()
    pair = dist.new_group([1, 3])
    if rank in (1, 3):
        received = torch.empty(0)
        work = dist.irecv(received, group=pair)
        assert message(RuntimeError, work._source_rank) == "recv: no receive that has ended"
        dist.send(torch.empty(0), dst=4 - rank, group=pair)
        work.wait()
        # A group counts its own ranks.
        assert work._source_rank() == 1 - pair.rank()
        if rank == 1:
            assert dist.recv(torch.empty(5), group=pair) == 3
        else:
            dist.send(torch.ones(5), dst=1, group=pair)
        dist.barrier(pair)
        dist.destroy_process_group(pair)
    assert "any" in message(ValueError, lambda: dist.recv(torch.ones(1), group=alone()))


def alone() -> dist.ProcessGroup:
    """Return a group of this rank only."""
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return groups[dist.get_rank()]
