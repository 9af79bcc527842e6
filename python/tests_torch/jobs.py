"""Fixtures: jobs of several ranks, which run until all tests have ended."""

from collections.abc import Iterator

import pytest
from ranks import Ranks


def _job(size: int) -> Iterator[Ranks]:
    job = Ranks(size)
    yield job
    job.close()


@pytest.fixture(scope="session")
def two() -> Iterator[Ranks]:
    """Return a job of two ranks."""
    yield from _job(2)


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Return a job of four ranks."""
    yield from _job(4)


@pytest.fixture(scope="session", params=[2, 4])
def job(request: pytest.FixtureRequest) -> Ranks:
    """Return a job of two ranks, and then a job of four ranks."""
    ranks: Ranks = request.getfixturevalue({2: "two", 4: "four"}[request.param])
    return ranks
