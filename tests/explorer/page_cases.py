"""Tests the content and the use of the explorer, in a headless Chromium without network."""

import json
import os
import pathlib
import re
import tempfile
import unittest
import urllib.parse

from browser import Browser

PAGE = pathlib.Path(os.environ["EXPLORER_PAGE"]).as_uri()
UNITS = {"h": 3600, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
INPUTS = ["distance_km", "rate_gbps", "loss", "size_mib", "k", "m", "packets", "signal", "variant", "by", "view"]
# Logarithms are rounded differently in Python and in the browser.
AGREE = 1e-9

SHOWN = pathlib.Path(__file__).with_name("shown.js").read_text()
VALUES = f"Object.fromEntries({json.dumps(INPUTS)}.map((id) => [id, document.getElementById(id).value]))"


def close(one, other):
    """Return whether two numbers are equal except for rounding."""
    return abs(one - other) <= AGREE * abs(other)


class PageCase(unittest.TestCase):
    """A browser for all cases. A case fails if the page reports a problem."""

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(os.environ["EXPLORER_BROWSER"])
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.complaints.clear()
        self.browser.requests.clear()
        self.browser.look(1280, 900)

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])

    def value(self, element):
        return self.browser.evaluate(f"document.getElementById({json.dumps(element)}).value")

    def enter(self, element, value, event):
        """Set the value of an input and send the event that a user's choice would cause."""
        self.browser.evaluate(f"""(() => {{
          const input = document.getElementById({json.dumps(element)});
          input.value = {json.dumps(value)};
          input.dispatchEvent(new Event({json.dumps(event)}));
        }})()""")

    def text(self, element):
        return self.browser.evaluate(f"document.getElementById({json.dumps(element)}).textContent")

    def visible(self, element):
        return self.browser.evaluate(f"document.getElementById({json.dumps(element)}).checkVisibility()")


class Numbers(PageCase):
    """The page shows the numbers of the model."""

    def check_figures(self, shown, expected):
        for letter, times in expected.items():
            if times is None:
                self.assertEqual(shown[letter], {})
                continue
            for by, time in times.items():
                number, text = shown[letter][by]
                self.assertTrue(close(number, time), f"{letter} {by}: {number}, not {time}")
                value, unit = text.split(" ")
                self.assertLessEqual(abs(float(value) * UNITS[unit] / time - 1), 0.501e-3, f"{text} for {time}")

    def check_wrong(self, shown, expected):
        for place in range(3):
            least = min((times[place] for times in expected.values() if times[place] is not None), default=None)
            for letter, times in expected.items():
                if times[place] is None:
                    self.assertIsNone(shown[letter][place])
                else:
                    self.assertTrue(close(shown[letter][place], times[place] / least), (letter, place))

    def check_map(self, shown, expected):
        self.assertEqual([len(row) for row in shown], [9] * 17)
        for row, cells in enumerate(expected):
            for column, times in enumerate(cells):
                least = min(time for time in times.values() if time is not None)
                letter = shown[row][column]
                self.assertTrue(close(times[letter], least), f"row {row}, column {column}: {letter} of {times}")

    def test_equal_those_of_the_model(self):
        cases = json.loads(pathlib.Path(os.environ["EXPLORER_EXPECTED"]).read_text())
        self.assertGreaterEqual(len(cases), 6)
        for case in cases:
            with self.subTest(case["fragment"]):
                self.browser.open(PAGE + case["fragment"])
                shown = self.browser.evaluate(SHOWN)
                self.assertFalse(self.visible("notes"))
                self.check_figures(shown["figures"], case["figures"])
                self.check_wrong(shown["wrong"], case["wrong"])
                self.check_map(shown["map"], case["map"])

    def test_nothing_is_fetched(self):
        self.browser.open(PAGE)
        schemes = {urllib.parse.urlparse(url).scheme for url in self.browser.requests}
        self.assertLessEqual(schemes, {"file", "blob", "data"})
        self.assertEqual(sum(url.startswith("file:") for url in self.browser.requests), 1)
        self.browser.evaluate("fetch('https://example.org').catch(() => 0)")
        # The script sees the refusal at once, but the browser's log of it may arrive later. So load
        # the page again.
        self.browser.open(PAGE)
        self.assertIn("Content Security Policy", "".join(self.browser.complaints))
        self.browser.complaints.clear()

    def test_the_verdict_says_what_the_tables_say(self):
        self.browser.open(PAGE + "#loss=1e-2&by=p99.9&size_mib=8192")
        shown = self.browser.evaluate(SHOWN)
        times = {letter: figures["p99.9"] for letter, figures in shown["figures"].items()}
        best = min(times, key=lambda letter: times[letter][0])
        self.assertIn(times[best][1], shown["verdict"])
        self.assertEqual(shown["wrong"][best][1], 1)
        worst = max(times, key=lambda letter: times[letter][0])
        number = re.search(r"gbn ([0-9.e]+)×", shown["verdict"])[1]
        self.assertEqual(worst, "G")
        self.assertAlmostEqual(float(number) / shown["wrong"]["G"][1], 1, delta=0.006)


class Failures(PageCase):
    """A page that cannot compute reports this."""

    def test_a_damaged_model_is_said(self):
        whole = pathlib.Path(os.environ["EXPLORER_PAGE"]).read_text()
        damaged = re.sub(r'(id="wasm">.{1000}).{4}', r"\1AAAA", whole)
        self.assertNotEqual(damaged, whole)
        with tempfile.TemporaryDirectory() as directory:
            page = pathlib.Path(directory, "damaged.html")
            page.write_text(damaged)
            self.browser.call("Page.navigate", url=page.as_uri())
            self.browser.wait("document.getElementById('failure')?.textContent")
            self.assertTrue(self.visible("failure"))
            self.assertIn("The model cannot run here", self.text("failure"))


class Links(PageCase):
    """The link carries the settings. The page validates them."""

    def test_a_link_brings_back_the_settings(self):
        browser = self.browser
        browser.open(PAGE)
        browser.type("distance_km", "812.5")
        browser.type("loss", "3e-6")
        browser.type("m", "5")
        for slider in ("rate_gbps", "size_mib", "k", "packets"):
            browser.evaluate(f"document.getElementById('{slider}-slider').focus()")
            browser.press("ArrowRight", "ArrowRight")
        for select, word in (("signal", "fibre"), ("variant", "serial"), ("by", "p99"), ("view", "cdf")):
            self.enter(select, word, "change")
        browser.evaluate("document.getElementById('scheme-G').click()")
        browser.wait("location.hash.includes('compare=RNMX')")
        browser.settled()
        values, shown, link = browser.evaluate(VALUES), browser.evaluate(SHOWN), self.value("link")
        self.assertEqual([values[name] for name in INPUTS[:5]], ["812.5", "1600", "3e-6", "512", "34"])
        self.assertEqual(list(shown["figures"]), ["R", "N", "M", "X"])
        browser.open(link)
        self.assertEqual(browser.evaluate(VALUES), values)
        self.assertEqual(browser.evaluate(SHOWN), shown)
        browser.evaluate("document.getElementById('reset').click()")
        browser.wait("location.hash.includes('distance_km=3750')")
        browser.settled()
        self.assertEqual(self.value("loss"), "1e-4")

    def test_a_link_taken_while_the_page_is_open(self):
        self.browser.open(PAGE)
        self.browser.evaluate("location.hash = '#k=16'")
        self.browser.wait("document.getElementById('k').value === '16'")
        self.browser.settled()

    def test_what_cannot_be_understood_is_said_and_replaced(self):
        spoiled = ["#loss=abc", "#loss=NaN", "#loss=", "#rate_gbps=Infinity", "#variant=ours", "#by=p42",
                   "#compare=Z", "#compare=", "#colour=red", "#k=<img src=x onerror=alert(1)>", "#__proto__=1",
                   "#size_mib=1e999", "#m=0x10", "#%", "#%ff%fe=%00", "#" + "k=1&" * 1000]
        for fragment in spoiled:
            with self.subTest(fragment[:40]):
                self.browser.open(PAGE + fragment)
                self.assertTrue(self.visible("notes"))
                self.assertEqual(self.value("k"), "32")
                self.assertEqual(self.value("loss"), "1e-4")
                self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
                self.assertIn("ec-mds:32,8", self.text("verdict"))

    def test_what_the_model_refuses_is_said_at_the_input(self):
        self.browser.open(PAGE + "#loss=-1&size_mib=1e30&k=0&m=2.5")
        for name in ("loss", "k", "m"):
            self.assertEqual(self.value(name), {"loss": "-1", "k": "0", "m": "2.5"}[name])
        self.assertIn("No scheme", self.text("verdict"))
        self.assertTrue(self.text("loss-fault") or self.text("size_mib-fault"))


class Inputs(PageCase):
    """An error in an input is shown at that input."""

    def test_faults_stand_at_their_inputs(self):
        wrong = {"distance_km": "0", "rate_gbps": "-5", "loss": "1.5", "size_mib": "1e15", "k": "5000", "m": "0",
                 "packets": "0.5"}
        usual = {"distance_km": "3750", "rate_gbps": "400", "loss": "1e-4", "size_mib": "128", "k": "32", "m": "8",
                 "packets": "1"}
        self.browser.open(PAGE)
        for name, text in wrong.items():
            for typed in (text, "seven", ""):
                with self.subTest(name=name, typed=typed):
                    self.enter(name, typed, "input")
                    self.browser.wait(f"document.getElementById('{name}-fault').textContent !== ''")
                    invalid = f"document.getElementById('{name}').getAttribute('aria-invalid')"
                    self.assertEqual(self.browser.evaluate(invalid), "true")
                    self.assertTrue(self.visible(f"{name}-fault"))
                    others = [other for other in wrong if other != name and self.text(f"{other}-fault")]
                    self.assertEqual(others, [])
            self.browser.type(name, usual[name])
            self.browser.wait(f"document.getElementById('{name}-fault').textContent === ''")
        self.browser.settled()
        self.assertIn("ec-mds:32,8, 28.36 ms", self.text("verdict"))

    def test_a_refused_scheme_leaves_the_others(self):
        self.browser.open(PAGE + "#k=4&m=6")
        self.assertEqual(self.text("m-fault"), "m = 6 chunks: must be at most k for an XOR code")
        shown = self.browser.evaluate(SHOWN)
        self.assertEqual([letter for letter, times in shown["figures"].items() if times], ["R", "N", "G", "M"])

    def test_the_last_of_many_changes_is_answered(self):
        self.browser.open(PAGE + "#variant=serial")
        for size in (1, 2, 4, 8, 1024, 16, 32, 64):
            self.browser.type("size_mib", str(size))
        self.browser.wait("location.hash.includes('size_mib=64&')")
        self.browser.settled()
        many = self.browser.evaluate(SHOWN)
        self.browser.open(PAGE + "#variant=serial&size_mib=64")
        self.assertEqual(self.browser.evaluate(SHOWN), many)

    def test_one_scheme_at_least_is_compared(self):
        self.browser.open(PAGE + "#compare=M")
        self.browser.evaluate("document.getElementById('scheme-M').click()")
        self.assertTrue(self.browser.evaluate("document.getElementById('scheme-M').checked"))
        self.assertEqual(list(self.browser.evaluate(SHOWN)["figures"]), ["M"])


if __name__ == "__main__":
    unittest.main()
