"""Checks that the explorer can be used with the keyboard and read by all users."""

import itertools
import pathlib

from page_cases import PAGE, PageCase

FOCUS = "(() => { const e = document.activeElement; return e.id || e.closest('[role=grid]') && 'map' || e.tagName; })()"

OUTLINE = """(() => {
  const style = getComputedStyle(document.activeElement);
  return [style.outlineStyle, parseFloat(style.outlineWidth)];
})()"""

FAINT = pathlib.Path(__file__).with_name("contrast.js").read_text()

NAMELESS = """[...document.querySelectorAll("input, select, button")].filter((e) =>
  !(e.labels?.length || e.getAttribute("aria-label") || e.tagName === "BUTTON" && e.textContent)).map((e) => e.id)"""


class Keyboard(PageCase):
    """Use without a mouse."""

    def test_tab_goes_through_everything_and_shows_where_it_is(self):
        self.browser.open(PAGE)
        order = []
        for _ in range(40):
            self.browser.press("Tab")
            focus = self.browser.evaluate(FOCUS)
            if order and focus in (order[0], "BODY"):
                break
            order.append(focus)
            style, width = self.browser.evaluate(OUTLINE)
            self.assertEqual(style, "solid", focus)
            self.assertGreaterEqual(width, 2, focus)
        for needed in ("distance_km", "distance_km-slider", "packets", "signal", "variant", "by", "scheme-X", "link",
                       "copy", "reset", "view"):
            self.assertIn(needed, order)
        # The map takes one tab stop. Inside it, the arrow keys move.
        self.assertEqual(order.count("map"), 1)

    def test_arrow_keys_walk_the_map_and_enter_moves_there(self):
        browser = self.browser
        browser.open(PAGE)
        browser.evaluate("document.querySelector('#map-body td[tabindex=\"0\"]').focus()")
        self.assertTrue(self.text("map-cell").startswith("128 MiB, loss 1e-4: ec-mds:32,8, 28.36 ms (mean)"))
        browser.press("ArrowUp", "ArrowUp", "ArrowLeft")
        self.assertTrue(self.text("map-cell").startswith("512 MiB, loss 1e-5: "), self.text("map-cell"))
        self.assertEqual(self.value("size_mib"), "128")
        browser.press("Enter")
        browser.wait("location.hash.includes('size_mib=512&')")
        browser.settled()
        self.assertEqual((self.value("size_mib"), self.value("loss")), ("512", "1e-5"))
        self.assertEqual(browser.evaluate(FOCUS), "map")
        browser.press("Home", "ArrowLeft", *["ArrowDown"] * 20)
        self.assertTrue(self.text("map-cell").startswith("128 KiB, loss 1e-9: "))
        self.assertEqual(browser.evaluate("document.querySelectorAll('#map-body td[tabindex=\"0\"]').length"), 1)

    def test_a_click_moves_there_and_the_frame_shows_it(self):
        browser = self.browser
        browser.open(PAGE)
        browser.evaluate("document.querySelectorAll('#map-body tr')[4].querySelectorAll('td')[7].click()")
        browser.wait("location.hash.includes('size_mib=512&')")
        browser.settled()
        off = browser.evaluate("""(() => {
          const cell = document.querySelectorAll("#map-body tr")[4].querySelectorAll("td")[7];
          const [a, b] = [document.getElementById("map-frame"), cell].map((e) => e.getBoundingClientRect());
          return Math.hypot(a.x + a.width / 2 - b.x - b.width / 2, a.y + a.height / 2 - b.y - b.height / 2);
        })()""")
        self.assertLess(off, 1.5)
        self.assertEqual(self.value("loss"), "0.01")

    def test_sliders_say_their_values(self):
        self.browser.open(PAGE)
        self.browser.evaluate("document.getElementById('loss-slider').focus()")
        self.browser.press("ArrowRight")
        self.assertEqual(self.value("loss"), "1.5e-4")
        said = self.browser.evaluate("document.getElementById('loss-slider').getAttribute('aria-valuetext')")
        self.assertEqual(said, "1.5e-4 share of packets")


class Eyes(PageCase):
    """Contrast, size, and how to distinguish schemes without colour."""

    def each(self, selector, expression):
        """Return the value of an expression for each element `e`."""
        return self.browser.evaluate(f"[...document.querySelectorAll('{selector}')].map((e) => {expression})")

    def count(self, selector, condition):
        """Return the number of elements `e` for which a condition is true."""
        return sum(self.each(selector, f"Boolean({condition})"))

    def test_contrast_in_light_and_dark(self):
        for dark, fragment in itertools.product((False, True), ("", "#k=4&m=6&view=cdf&by=p99.9", "#loss=oops")):
            with self.subTest(dark=dark, fragment=fragment):
                self.browser.look(1280, 900, dark)
                self.browser.open(PAGE + fragment)
                found = self.browser.evaluate(FAINT)
                self.assertGreater(found["seen"], 250)
                self.assertEqual(found["faint"], [])

    def test_nothing_sticks_out_of_the_window(self):
        for width in (360, 390, 600, 768, 1024, 1280, 1920):
            with self.subTest(width=width):
                self.browser.look(width, 800)
                self.browser.open(PAGE + "#by=p99.9")
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth - innerWidth"), 0)
                self.assertEqual(self.count(".table, .map", "e.scrollWidth > e.clientWidth + 1"), 0)

    def test_lines_differ_without_colour(self):
        self.browser.open(PAGE)
        for plot in ("curves", "slowdowns"):
            dashes = self.each(f"#{plot} polyline", "e.getAttribute('stroke-dasharray')")
            self.assertEqual(len(set(dashes)), 5, plot)
            self.assertEqual(self.each(f"#{plot} .letter", "e.textContent"), ["R", "N", "G", "M", "X"], plot)

    def test_inputs_and_pictures_have_names(self):
        self.browser.open(PAGE)
        self.assertEqual(self.browser.evaluate(NAMELESS), [])
        self.assertEqual(self.count("svg[role=img], #map-body td", "!e.getAttribute('aria-label')"), 0)
