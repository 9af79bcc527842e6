"""One page with all figures, each with its claim."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import isfinite

from paper_figures.claim import Claim, Number, Numbers
from paper_figures.digits import estimate_text
from paper_figures.digits import number_text as text
from paper_figures.shipped import Estimates
from paper_figures.verdict import BASELINE, BY_ARITHMETIC, CAUSES, NOT, PARTLY, REPRODUCED, VARIANT

#: The verdicts as the page names them.
NAMES = {
    REPRODUCED: "reproduced",
    PARTLY: "partly reproduced",
    NOT: "not reproduced",
    BY_ARITHMETIC: "by arithmetic",
    "": "our addition",
}

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Farwrite: the papers' figures</title>
<style>
body { font: 16px/1.5 sans-serif; color: #111; background: #fff; max-width: 76rem }
body { margin: 2rem auto; padding: 0 1rem }
section { border-top: 1px solid #999; padding: 1rem 0 2rem }
svg { max-width: 100%; height: auto }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-top: 1px solid #ddd }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums }
.out { font-weight: bold }
.not, .partly { font-weight: bold }
.not::before { content: "\\2717\\00a0" }
.partly::before { content: "\\25D1\\00a0" }
.reproduced::before { content: "\\2713\\00a0" }
</style>
</head>
<body>
<h1>The papers' figures, made again</h1>
<p>Each section has a claim of a paper, our figure for it, and the paper's numbers beside ours. C is Celeris,
L is LoWAR, N is NetRT, O is OptiNIC, and S is SDR-RDMA (SC '25). Numbers of the model are exact values of the
papers' formulas unless a row says otherwise. The verdict on a number is computed: a value or a range is
reproduced within 10%, and a bound if our number holds it with two standard errors of ours where they are
known (after ±). A value or range that is missed by at most a factor of two is partly reproduced. Numbers that
follow by arithmetic, bounds about baselines and variants of ours do not decide a claim. The cause of a
difference is written by hand. Simulated numbers are those of NICs, boxes and endpoints in
virtual time, and of the shipped transform and timeouts on drawn data. Tests hold both to the bounds. Numbers
of shipped protocols are from simulated messages.</p>
<nav><ul>
"""


@dataclass(frozen=True)
class Part:
    """A claim, and our numbers and plot for it."""

    claim: Claim
    #: Numbers of the model, or measured numbers.
    ours: Numbers
    #: The same as text, with the intervals that are known.
    shown: dict[str, str]
    #: Numbers of the shipped protocols, by the names of `ours`. Names can be missing.
    shipped: Estimates
    #: The plot as SVG.
    plot: str
    #: Where and how numbers were measured; empty for numbers of the model.
    conditions: str
    #: The verdicts on our numbers, by name.
    verdicts: dict[str, str]

    @property
    def verdict(self) -> str:
        """The verdict on the claim."""
        return self.claim.verdict(self.verdicts)


def page(parts: list[Part]) -> str:
    """Return an HTML page with all claims."""
    links = [
        f'<li><a href="#{part.claim.name}">{part.claim.name}: {escape(part.claim.title)}</a>: '
        f"{NAMES[part.verdict]}</li>\n"
        for part in parts
    ]
    sections = [section(part) for part in parts]
    return "".join([HEAD, *links, "</ul></nav>\n", *sections, "</body>\n</html>\n"])


def section(part: Part) -> str:
    """Return the HTML of one claim."""
    claim, plot = part.claim, part.plot
    names = [(number, part.ours[number.name]) for number in claim.expected]
    rows = "".join(row(number, ours, part) for number, ours in names)
    shipped = "<th>shipped protocol</th>" if part.shipped else ""
    notes = [
        f"Measured: {part.conditions}." if part.conditions else "",
        claim.note,
    ]
    command = f"<p>Measured again by <code>{escape(claim.command)}</code>.</p>"
    svg = plot[plot.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(claim.title)}"', 1)
    return f"""<section id="{claim.name}">
<h2>{claim.name}: {escape(claim.title)}</h2>
<p><b>Verdict</b>: {NAMES[part.verdict]}</p>
<p><b>The paper</b> ({escape(claim.source)}): {escape(claim.claim)}</p>
{prefixed(svg, claim.name)}
<p>{" ".join(escape(note) for note in notes if note)}</p>
{command}
<div class="scroll"><table>
<tr><th>number</th><th>paper</th><th>{claim.basis}</th><th>verdict</th><th>deviation</th>
<th>bounds of ours</th>{shipped}<th>source; why ours differs</th></tr>
{rows}</table></div>
</section>
"""


def row(number: Number, ours: float, part: Part) -> str:
    """Return the HTML row of a number. The shipped protocol has a column if it has any numbers."""
    shipped, verdict = part.shipped, part.verdicts.get(number.name, "")
    protocol = ""
    if of := shipped.get(number.name):
        protocol = estimate_text(of.value, of.half)
    deviation = number.deviation(ours)
    within = "" if number.holds(ours) else ' <span class="out">out of bounds</span>'
    cells = [
        f"<td>{escape(number.says)}</td>",
        f'<td class="number">{stated(number)}</td>',
        f'<td class="number">{part.shown[number.name]}{within}</td>',
        f'<td class="{verdict or "ours"}">{NAMES[verdict]}{role(number)}</td>',
        f'<td class="number">{"" if deviation is None else f"{deviation:+.1%}"}</td>',
        f'<td class="number">{bounds(number)}</td>',
        f'<td class="number">{protocol}</td>' if shipped else "",
        f"<td>{escape(number.source)}. {escape(why(number))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>\n"


def stated(number: Number) -> str:
    """Return what the paper states of a number as text."""
    if number.paper is not None:
        return text(number.paper)
    if number.paper_low is not None and number.paper_high is not None:
        return f"{text(number.paper_low)} to {text(number.paper_high)}"
    if number.paper_low is not None:
        return f"at least {text(number.paper_low)}"
    return "" if number.paper_high is None else f"at most {text(number.paper_high)}"


def role(number: Number) -> str:
    """Return why a number with a verdict does not decide, as the end of a text."""
    return f" ({number.role})" if number.role in (BASELINE, VARIANT) and number.statement else ""


def why(number: Number) -> str:
    """Return whose the difference is, and its reason, as text; or what our baseline is."""
    cause = f"{CAUSES[number.cause].capitalize()}: " if number.cause else ""
    baseline = f" The baseline is {number.baseline}." if number.baseline else ""
    return f"{cause}{number.why}{baseline}"


def bounds(number: Number) -> str:
    """Return the bounds of a number as text."""
    return f"{text(number.low)} to {text(number.high)}" if isfinite(number.high) else "none: measured"


def prefixed(svg: str, name: str) -> str:
    """Add a prefix to the ids of a plot, so that they differ from the ids of other plots on the page."""
    for before in ['id="', 'href="#', "url(#"]:
        svg = svg.replace(before, f"{before}{name}-")
    return svg
