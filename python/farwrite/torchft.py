"""A process group for torchft, whose replicas die, return and join while others train.

::

    manager = torchft.Manager(pg=farwrite.torchft.ProcessGroupFarwrite(), ...)

torchft is a package of its own (`pip install torchft`). `docs/torch.md` in the repository has an example.
"""

# torchft has no type hints.
# mypy: disable-error-code="misc"

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch.distributed import Store
from torchft.process_group import ProcessGroupWrapper

from farwrite.torch import Options, ProcessGroup
from farwrite.torch.rendezvous import Place

__all__ = ["ProcessGroupFarwrite"]


class ProcessGroupFarwrite(ProcessGroupWrapper):
    """A group of torchft over Farwrite.

    torchft calls `configure` for each quorum. Each call makes a new group.

    Parameters
    ----------
    timeout
        The timeout of operations, and of joining the ranks of a quorum.
    options
        The options of each group. None: those of environment variables. Ranks on different machines need a
        key or a trusted store, as without torchft.
    """

    _pg: dist.ProcessGroup | None

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: Options | None = None) -> None:
        super().__init__(timeout)
        self._options = Options() if options is None else options

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        # The store has a prefix of its own for each quorum.
        place = Place("torchft", store, rank, world_size, str(self._quorum_id))
        return ProcessGroup(place, self._options, self._timeout)

    def getBackendName(self) -> str:
        """Return the name by which torchft registers the group."""
        return "torchft-farwrite"

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of operations that start later, and of later quorums."""
        super().set_timeout(timeout)
        if isinstance(self._pg, ProcessGroup):
            self._pg.set_timeout(timeout)

    def shutdown(self) -> None:
        """Leave the group, after the other ranks have the data of ended operations that they need."""
        group, self._pg = self._pg, None
        if isinstance(group, ProcessGroup):
            group.shutdown()

    def errored(self) -> Exception | None:
        """Return the error that ended the group, so that torchft makes another; None while it works."""
        group = self._pg
        if not isinstance(group, ProcessGroup):
            return None
        why = group.watch(False)
        return None if why is None else RuntimeError(why)
