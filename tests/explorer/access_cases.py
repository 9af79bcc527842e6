"""That the explorer can be used from the keyboard and read by everyone."""

import itertools

from page_cases import PAGE, PageCase

FOCUS = "(() => { const e = document.activeElement; return e.id || e.closest('[role=grid]') && 'map' || e.tagName; })()"

# Text of too little contrast with what lies behind it: WCAG 2.2, 1.4.3 (4.5 to 1), for all that is on the page.
FAINT = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const part = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4); return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const contrast = (one, other) => { const [low, high] = [light(rgba(one)), light(rgba(other))].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
  const behind = (element) => { for (let e = element; e; e = e.parentElement) { const colour = getComputedStyle(e).backgroundColor; if (rgba(colour)[3] === 255) return colour; } return "white"; };
  const faint = [];
  let seen = 0;
  const check = (what, one, other, least) => { seen += 1; if (contrast(one, other) < least) faint.push(`${what}: ${contrast(one, other).toFixed(2)}`); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.matches("script") || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const letter = element.classList.contains("letter");
    const back = letter ? getComputedStyle(element.previousElementSibling).fill : behind(element);
    check(`"${walker.currentNode.data.trim().slice(0, 20)}"`, element.namespaceURI.endsWith("svg") ? style.fill : style.color, back, 4.5);
  }
  // Lines, bars, borders of inputs: 1.4.11 (3 to 1).
  for (const line of document.querySelectorAll(".line")) check(`line ${line.getAttribute("class")}`, getComputedStyle(line).stroke, behind(line.closest("div, section, th, label")), 3);
  for (const bar of document.querySelectorAll(".bar")) check("bar", getComputedStyle(bar).backgroundColor, behind(bar.parentElement), 3);
  for (const input of document.querySelectorAll("input[type=text], select, button")) check("border", getComputedStyle(input).borderTopColor, behind(input.parentElement), 3);
  return { seen, faint };
})()"""

NAMELESS = """[...document.querySelectorAll("input, select, button")].filter((e) =>
  !(e.labels?.length || e.getAttribute("aria-label") || e.tagName === "BUTTON" && e.textContent)).map((e) => e.id)"""


class Keyboard(PageCase):
    """No mouse."""

    def test_tab_goes_through_everything_and_shows_where_it_is(self):
        self.browser.open(PAGE)
        order = []
        for _ in range(40):
            self.browser.press("Tab")
            focus = self.browser.evaluate(FOCUS)
            if order and focus in (order[0], "BODY"):
                break
            order.append(focus)
            style = self.browser.evaluate("(() => { const s = getComputedStyle(document.activeElement); return [s.outlineStyle, parseFloat(s.outlineWidth)]; })()")
            self.assertEqual(style[0], "solid", focus)
            self.assertGreaterEqual(style[1], 2, focus)
        for needed in ("distance_km", "distance_km-slider", "packets", "signal", "variant", "by", "scheme-X", "link", "copy", "reset", "view"):
            self.assertIn(needed, order)
        # The map takes one stop, its arrow keys do the rest.
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
          const middle = (e) => { const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; };
          const [a, b] = [document.getElementById("map-frame"), document.querySelectorAll("#map-body tr")[4].querySelectorAll("td")[7]].map(middle);
          return Math.hypot(a[0] - b[0], a[1] - b[1]); })()""")
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
    """Contrast, size, and telling schemes apart without colour."""

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
                wide = self.browser.evaluate("[...document.querySelectorAll('.table, .map')].filter((e) => e.scrollWidth > e.clientWidth + 1).length")
                self.assertEqual(wide, 0)

    def test_lines_differ_without_colour(self):
        self.browser.open(PAGE)
        for plot in ("curves", "slowdowns"):
            dashes = self.browser.evaluate(f"[...document.querySelectorAll('#{plot} polyline')].map((e) => e.getAttribute('stroke-dasharray'))")
            self.assertEqual(len(set(dashes)), 5, plot)
            letters = self.browser.evaluate(f"[...document.querySelectorAll('#{plot} .letter')].map((e) => e.textContent)")
            self.assertEqual(letters, ["R", "N", "G", "M", "X"], plot)

    def test_inputs_and_pictures_have_names(self):
        self.browser.open(PAGE)
        self.assertEqual(self.browser.evaluate(NAMELESS), [])
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('svg[role=img]')].filter((e) => !e.getAttribute('aria-label')).length"), 0)
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('#map-body td')].filter((e) => !e.getAttribute('aria-label')).length"), 0)
