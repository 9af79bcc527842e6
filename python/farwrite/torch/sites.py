"""A communication hook of `DistributedDataParallel` for jobs that span sites.

Inside a site, ranks keep the backend that they have, such as NCCL; farwrite carries gradients between sites.
"""

# torch compares the annotations of a hook with types, so they must not be strings here.

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from farwrite.torch.stream import Stream


class Sites:
    """What `average_between_sites` needs: ``model.register_comm_hook(Sites(...), average_between_sites)``.

    Parameters
    ----------
    inside
        A group of the ranks of this site. Nothing else may use it.
    between
        A group of this backend of the ranks that have the same rank in `inside`, one of each site. Nothing
        else may use it.
    """

    def __init__(self, inside: dist.ProcessGroup, between: dist.ProcessGroup) -> None:
        self.inside = inside
        self.between = between
        # One thread, so that all ranks do the steps of buckets in one order.
        self.thread = ThreadPoolExecutor(1, "farwrite-sites")


def average_between_sites(sites: Sites, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average gradients inside each site, then between sites.

    Each rank sends only its part of the gradients to other sites.
    """
    buffer = bucket.buffer()
    stream = Stream([buffer])
    future: Future[Any] = Future(devices=stream.devices())

    def run() -> None:
        try:
            with stream.after_start():
                _average(sites, buffer)
                future.set_result(buffer)
        except Exception as error:
            future.set_exception(error)

    sites.thread.submit(run)
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
