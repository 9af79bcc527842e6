"""The tests of `torch.distributed` that the package of torch contains, with processes that are forked."""

from multiprocessing import get_context

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestDistributed(TestDistBackend, DistributedTest._DistTestBase):
    """All tests. Each has three ranks."""

    def setUp(self) -> None:
        """Fork the ranks."""
        super().setUp()
        self._start_processes(get_context("fork").Process)
