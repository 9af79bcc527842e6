"""The process group of torchft: replicas leave and return."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import ReduceOp, TCPStore

pytest.importorskip("torchft")

from farwrite.torchft import ProcessGroupFarwrite


def test_quorums_of_other_sizes() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    groups = [ProcessGroupFarwrite(timedelta(seconds=30)) for _ in range(3)]

    def join(group: ProcessGroupFarwrite, quorum: int, rank: int, ranks: int) -> float:
        address = f"127.0.0.1:{store.port}/quorum/{quorum}"
        group.configure(address, f"replica {rank}", rank, ranks, quorum)
        ones = torch.ones(3)
        group.allreduce([ones], ReduceOp.SUM).wait()
        assert group.errored() is None
        return ones[0].item()

    def quorum(number: int, members: list[ProcessGroupFarwrite]) -> list[float]:
        with ThreadPoolExecutor(len(members)) as threads:
            joins = [
                threads.submit(join, one, number, rank, len(members)) for rank, one in enumerate(members)
            ]
            return [one.result() for one in joins]

    assert quorum(1, groups) == [3, 3, 3]
    # A replica dies. The others notice it, and form the next quorum, into which it returns later.
    groups[2].abort()
    with pytest.raises(RuntimeError, match="rank 2 ended the group"):
        groups[0].allreduce([torch.ones(3)], ReduceOp.SUM).wait()
    assert "rank 2 ended the group" in str(groups[0].errored())
    assert quorum(2, groups[:2]) == [2, 2]
    assert quorum(3, groups[::-1]) == [3, 3, 3]
    for group in groups:
        group.shutdown()
