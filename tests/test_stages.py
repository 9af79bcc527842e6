"""Tests of tests/stages: `python3 tests/test_stages.py`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

STAGES = Path(__file__).with_name("stages")
MAKEFILE = "good other:\n\t@echo ran $@\nbad:\n\t@echo ran $@; false\n"


def run(*stages):
    # `make check` runs this file.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Makefile").write_text(MAKEFILE)
        return subprocess.run([STAGES, *stages], cwd=folder, env=environment, capture_output=True, text=True)


class Stages(unittest.TestCase):
    def test_all_run_and_those_that_fail_are_named(self):
        ended = run("good", "bad", "missing", "other")
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(
            ended.stdout,
            r"^ran good\nran bad\nran other\ntook: good \d+ s, bad \d+ s, missing \d+ s, other \d+ s\n$",
        )
        self.assertTrue(ended.stderr.endswith("FAILED: bad missing\n"), ended.stderr)

    def test_all_pass(self):
        ended = run("good", "other")
        self.assertEqual(ended.returncode, 0)
        self.assertRegex(ended.stdout, r"^ran good\nran other\ntook: good \d+ s, other \d+ s\npassed: good other\n$")


if __name__ == "__main__":
    unittest.main()
