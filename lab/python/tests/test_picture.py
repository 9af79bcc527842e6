"""The picture of README has the numbers of its rows."""

import re
from pathlib import Path

from copies_picture import draw
from paper_figures.rows import load
from paper_figures.style import svg

ROOT = Path(__file__).parents[3]


def texts(picture: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)


def test_the_picture_is_as_its_rows() -> None:
    drawn = texts(svg(draw(load(ROOT / "lab/figures/paths", "alternatives"))))
    assert sum(text.endswith(" s") for text in drawn) == 13
    assert texts((ROOT / "docs/copies.svg").read_text()) == drawn, "make -C lab figures draws it"
