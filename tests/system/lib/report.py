"""Counts checks and prints a line for each."""

import contextlib
import os
import time
import traceback


class Report:
    """Results so far."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.started = time.monotonic()

    def _section(self, title):
        print(f"{title}  [{time.monotonic() - self.started:.1f} s]", flush=True)

    def check(self, what, problems):
        """Record one check. It passes if `problems` (a list of words, or one word, or `None`) is
        empty."""
        if isinstance(problems, str):
            problems = [problems]
        problems = list(problems or [])
        if not problems:
            self.passed += 1
            print(f"  ok    {what}", flush=True)
            return
        self.failed += 1
        print(f"  FAIL  {what}", flush=True)
        for problem in problems[:5]:
            print(f"          {problem}", flush=True)
        if len(problems) > 5:
            print(f"          and {len(problems) - 5} more", flush=True)

    def skip(self, title, why):
        """Record a group of checks that cannot run here. This is an error if CI=true."""
        self._section(title)
        if os.environ.get("CI") == "true":
            self.check("the case can run", why)
        else:
            print(f"  skipped: {why}", flush=True)

    @contextlib.contextmanager
    def case(self, title):
        """Run a group of checks. An exception between them counts as a failed check."""
        self._section(title)
        try:
            yield
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.check("the case runs to its end",
                       f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})")

    def finish(self):
        """Print the last line and return the exit status."""
        print(f"system tests: {self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0
