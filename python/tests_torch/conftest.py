"""Fixtures: jobs of several ranks."""

from jobs import four, job, two

__all__ = ["four", "job", "two"]
