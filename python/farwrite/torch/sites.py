"""A communication hook of `DistributedDataParallel` for jobs that span sites.

Inside a site, ranks use another backend, such as NCCL. Farwrite carries gradients between sites.
"""

# torch compares the annotations of a hook with types, so this module must not make them strings.

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.futures import Future

from farwrite.torch.faces import find
from farwrite.torch.futures import future_of
from farwrite.torch.stream import Stream


class Sites:
    """The groups of `average_between_sites`: ``model.register_comm_hook(Sites(...), average_between_sites)``.

    Parameters
    ----------
    inside
        A group of the ranks of this site. The program must not use it for other operations.
    between
        A group of this backend. It has one rank of each site: the rank that has the rank number of this
        process in its own group `inside`. The program must not use the group for other operations.

    Raises
    ------
    TypeError
        If one of the two is no such group.
    """

    def __init__(self, inside: dist.ProcessGroup, between: dist.ProcessGroup) -> None:
        if not isinstance(inside, dist.ProcessGroup):
            raise TypeError(f"inside = {inside!r}: must be a group that has this rank")
        if find(between) is None:
            raise TypeError(f"between = {between!r}: must be a group of the backend farwrite with this rank")
        self.inside = inside
        self.between = between
        # There is one thread, so that all ranks start the operations of buckets in the same order.
        self.thread = ThreadPoolExecutor(1, "farwrite-sites")


def average_between_sites(sites: Sites, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average the gradients of a bucket inside each site, then between sites.

    Each rank sends only its part of the gradients to other sites. The result replaces the gradients in the
    bucket.
    """
    buffer = bucket.buffer()
    stream = Stream([buffer])

    def run() -> torch.Tensor:
        with stream.after_start():
            _average(sites, buffer)
        stream.join()
        return buffer

    future, start = future_of(run, stream.devices())
    sites.thread.submit(start)
    return future


def _average(sites: Sites, buffer: torch.Tensor) -> None:
    ranks = sites.inside.size()
    length = -(-buffer.numel() // ranks)
    whole = buffer.new_zeros(ranks * length)
    torch.div(buffer, ranks * sites.between.size(), out=whole[: buffer.numel()])
    part = buffer.new_empty(length)
    dist.reduce_scatter_tensor(part, whole, group=sites.inside)
    dist.all_reduce(part, group=sites.between)
    dist.all_gather_into_tensor(whole, part, group=sites.inside)
    buffer.copy_(whole[: buffer.numel()])
