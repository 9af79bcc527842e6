"""Tests of tests/stages: `python3 tests/test_stages.py`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

STAGES = Path(__file__).with_name("stages")
MAKEFILE = "good other:\n\t@echo ran $@\nbad:\n\t@echo ran $@; false\nkilled:\n\t@kill -9 $$PPID\n"


def run(*stages, make="make"):
    # `make check` runs this file.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Makefile").write_text(MAKEFILE)
        return subprocess.run([STAGES, *stages], cwd=folder, env={**environment, "MAKE": make}, capture_output=True, text=True)


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

    def test_stages_beside_others_count_too(self):
        ended = run("good", "--", "bad", "other")
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(
            ended.stdout, r"(?s)^ran good\n.*ran bad\n.*ran other\ntook: good \d+ s, bad \d+ s, other \d+ s\n$")
        self.assertTrue(ended.stderr.endswith("FAILED: bad\n"), ended.stderr)
        self.assertTrue(run("good", "--", "other").stdout.endswith("passed: good other\n"))
        self.assertEqual(run("good", make="make -C .").returncode, 0)
        # A signal to a stage that runs beside the others is a failure, too.
        self.assertEqual(run("good", "--", "killed").returncode, 1)


if __name__ == "__main__":
    unittest.main()
