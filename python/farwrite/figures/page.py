"""One page with all figures, each beside its claim."""

from __future__ import annotations

from html import escape
from math import isfinite

from farwrite.figures.claim import Claim, Number, Numbers

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Farwrite: the paper's figures</title>
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
</style>
</head>
<body>
<h1>The paper's figures, made anew</h1>
<p>Each section has a claim of SDR-RDMA (SC '25), our figure for it, and the paper's numbers beside ours.
Ours are exact values of the paper's formulas unless a row says otherwise; tests hold them to the bounds.</p>
<nav><ul>
"""


def page(parts: list[tuple[Claim, Numbers, str, str]]) -> str:
    """Claims with our numbers, the plot as SVG, and the conditions of measurements."""
    links = [f'<li><a href="#{of.name}">{of.name}: {escape(of.title)}</a></li>\n' for of, _, _, _ in parts]
    sections = [section(*part) for part in parts]
    return "".join([HEAD, *links, "</ul></nav>\n", *sections, "</body>\n</html>\n"])


def section(claim: Claim, ours: Numbers, plot: str, conditions: str) -> str:
    """One claim."""
    rows = "".join(row(number, ours[number.name]) for number in claim.expected)
    notes = [
        f"Measured: {conditions}." if conditions else "",
        claim.note,
    ]
    svg = plot[plot.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(claim.title)}"', 1)
    return f"""<section id="{claim.name}">
<h2>{claim.name}: {escape(claim.title)}</h2>
<p><b>The paper</b> ({escape(claim.source)}): {escape(claim.claim)}</p>
{prefixed(svg, claim.name)}
<p>{" ".join(escape(note) for note in notes if note)}</p>
<div class="scroll"><table>
<tr><th>number</th><th>paper</th><th>ours</th><th>deviation</th><th>bounds</th>
<th>source; why ours differs</th></tr>
{rows}</table></div>
</section>
"""


def row(number: Number, ours: float) -> str:
    """One number."""
    deviation = number.deviation(ours)
    within = "" if number.holds(ours) else ' <span class="out">out of bounds</span>'
    cells = [
        f"<td>{escape(number.says)}</td>",
        f'<td class="number">{"" if number.paper is None else text(number.paper)}</td>',
        f'<td class="number">{text(ours)}{within}</td>',
        f'<td class="number">{"" if deviation is None else f"{deviation:+.1%}"}</td>',
        f'<td class="number">{bounds(number)}</td>',
        f"<td>{escape(number.source)}. {escape(number.why)}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>\n"


def bounds(number: Number) -> str:
    """Bounds, where there are any."""
    return f"{text(number.low)} to {text(number.high)}" if isfinite(number.high) else "none: measured"


def text(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"


def prefixed(svg: str, name: str) -> str:
    """Make the ids of one plot differ from those of the others on the page."""
    for before in ['id="', 'href="#', "url(#"]:
        svg = svg.replace(before, f"{before}{name}-")
    return svg
