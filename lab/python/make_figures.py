"""``make_figures.py FOLDER --page FILE``: makes all figures, and a page that shows them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tqdm import tqdm

from paper_figures import s11
from paper_figures.beside import add_paper
from paper_figures.claim import Claim, ConditionedMaker, ShippedMaker, load_all
from paper_figures.digits import estimate_text
from paper_figures.page import Part, page
from paper_figures.shipped import Estimates
from paper_figures.style import svg


def make(claim: Claim) -> Part:
    """Make a figure, and write its numbers and its plot into the folder of the claim."""
    maker, times = claim.maker, claim.times
    ours = maker.numbers(claim.settings)
    conditions = maker.conditions(claim.settings) if isinstance(maker, ConditionedMaker) else ""
    figure = maker.draw(claim.settings)
    shipped: Estimates = {}
    if isinstance(maker, ShippedMaker) and times.cells:
        shipped = maker.shipped(claim.settings, times)
        maker.points(figure, claim.settings, times)
        conditions = f"shipped protocols in virtual time, {times.messages} {times.kind} a cell, seed 1"
    add_paper(figure, claim, ours)
    plot = svg(figure)
    results: dict[str, object] = {"conditions": conditions} if conditions else {}
    shown = claim.shown(ours)
    results |= {"numbers": ours, "shown": shown}
    if shipped:
        results["shipped"] = {name: of.value for name, of in shipped.items()}
        results["shipped_shown"] = {name: estimate_text(of.value, of.half) for name, of in shipped.items()}
    verdicts = claim.verdicts(ours)
    results |= {"verdict": claim.verdict(verdicts), "verdicts": verdicts}
    (claim.folder / "plot.svg").write_text(plot)
    (claim.folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return Part(claim, ours, shown, shipped, plot, conditions, verdicts)


def main() -> int:
    """Make all figures. Return 1 if a number is out of its bounds."""
    arguments = argparse.ArgumentParser(prog="make_figures.py", description=__doc__)
    arguments.add_argument("folder", type=Path, help="the folder with the folders of the claims")
    arguments.add_argument("--page", type=Path, required=True, help="the file of the page")
    chosen = arguments.parse_args()

    parts, outside = [], 0
    for claim in tqdm(load_all(chosen.folder), unit=" figures", disable=None):
        if claim.measured and not claim.rows and s11.VARIABLE not in os.environ:
            print(
                f"{claim.name}: left out, because {s11.VARIABLE} does not name a measurement", file=sys.stderr
            )
            continue
        part = make(claim)
        parts.append(part)
        for number in claim.expected:
            value = part.ours[number.name]
            if not number.holds(value):
                outside += 1
                print(
                    f"{claim.name}: {number.name} = {value:.4g}, not within {number.low:g} to {number.high:g}"
                )
    chosen.page.parent.mkdir(parents=True, exist_ok=True)
    chosen.page.write_text(page(parts))
    print(f"{len(parts)} figures; {chosen.page}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
