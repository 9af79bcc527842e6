"""Fixtures: jobs of several ranks, as in the tests of the package."""

from jobs import four, job, two

__all__ = ["four", "job", "two"]
