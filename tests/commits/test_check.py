"""Tests of tests/commits/check: `python3 tests/commits/test_check.py`."""

import importlib.machinery
import importlib.util
import unittest
from pathlib import Path

loader = importlib.machinery.SourceFileLoader("check", str(Path(__file__).with_name("check")))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
loader.exec_module(check)


class Messages(unittest.TestCase):
    def test_right(self):
        for message in [
            "Add a hook that checks messages",
            "rate: feed the controller with copies",
            "Pass the length\n\nThe receiver needs it: https://example.org/" + "a" * 80 + "\n",
            'Revert "A subject, another, and a third that is far longer than any subject may be at all"',
        ]:
            self.assertEqual(check.faults(message), [], message)

    def test_wrong(self):
        for message, fault in [
            ("", "empty"),
            ("Add " + "a" * 69, "73 characters"),
            ("Add a hook.", "full stop"),
            ("Added a hook", "'added'"),
            ("rate: Adding copies", "'adding'"),
            ("Collectives depend on deadline", "'collectives'"),
            ("Add a hook; delete a test", "several changes"),
            ("Add a hook, delete a test, rename both", "several changes"),
            ("Add a hook\nbecause it helps", "second line"),
            ("Add a hook\n\n" + "because " * 12, "a line of the body"),
        ]:
            self.assertTrue(any(fault in found for found in check.faults(message)), message)

    def test_comments_of_the_editor_are_no_part(self):
        typed = "Add a hook\n# Please enter the commit message.\n# ------------------------ >8 ------------------------\n+" + "a" * 99
        self.assertEqual(check.faults(check.without_comments(typed)), [])


if __name__ == "__main__":
    unittest.main()
