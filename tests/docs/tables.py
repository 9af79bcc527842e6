#!/usr/bin/env python3
"""Tables of docs/results/boxes.md that are made from the results in figures/boxes.

A line `<!-- table: NAME -->` stands above each of them. `tests/docs/check` fails if a table differs from its
results. `tests/docs/tables.py --write` writes the tables.
"""

import re
import sys
from pathlib import Path

import lowar_tables
import netrt_tables
import together_tables
from results import Rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/boxes.md"
RESULTS = ROOT / "figures/boxes"
MARK = re.compile(r"<!-- table: ([\w-]+) -->\n\n?((?:\|.*\n)*)")
TABLES = lowar_tables.TABLES | netrt_tables.TABLES | together_tables.TABLES


def made(rows, text):
    """The page with the tables that the results have, and the names of those that differ."""
    found, differ = [], []

    def replace(match):
        name = match[1]
        if name not in TABLES:
            sys.exit(f"{PAGE.name}: {name} is not one of the tables {', '.join(TABLES)}")
        wanted = TABLES[name](rows)
        found.append(name)
        if match[2] != wanted:
            differ.append(name)
        return f"<!-- table: {name} -->\n\n{wanted}"

    text = MARK.sub(replace, text)
    if sorted(found) != sorted(TABLES):
        sys.exit(f"{PAGE.name}: has the tables {found}, and should have {list(TABLES)}, each once")
    return text, differ


def wrong_tables():
    """The tables that differ from the results."""
    _, differ = made(Rows(RESULTS), PAGE.read_text())
    return [f"docs/results/boxes.md: the table {name} differs from figures/boxes: tests/docs/tables.py --write"
            for name in differ]


def main():
    if sys.argv[1:] != ["--write"]:
        sys.exit("the only option is --write, which writes the tables into docs/results/boxes.md")
    text, differ = made(Rows(RESULTS), PAGE.read_text())
    PAGE.write_text(text)
    print(f"written: {', '.join(differ) or 'nothing, all are as the results'}")


if __name__ == "__main__":
    main()
