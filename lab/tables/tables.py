#!/usr/bin/env python3
"""Tables of docs/results/ that are made from the results in figures/.

A line `<!-- table: NAME -->` stands above each of them. `tests/docs/check` fails if a table differs from its
results. `tests/docs/tables.py --write` writes the tables.
"""

import re
import sys
from pathlib import Path

import alternatives_tables
import claims_table
import collectives_tables
import lowar_tables
import netrt_tables
import together_tables
import vm_tables
from results import Rows

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- table: ([\w-]+) -->\n\n?((?:\|.*\n)*)")
BOXES = lowar_tables.TABLES | netrt_tables.TABLES | together_tables.TABLES
#: For each page: its tables, and what they are made from.
PAGES = {
    "docs/results/best-effort.md": (collectives_tables.TABLES, lambda: Rows(ROOT / "figures/collectives")),
    "docs/results/boxes.md": (BOXES, lambda: Rows(ROOT / "figures/boxes")),
    "docs/results/claims.md": (claims_table.TABLES, lambda: ROOT / "figures"),
    "docs/results/performance.md": (alternatives_tables.TABLES, lambda: Rows(ROOT / "figures/paths")),
    "docs/results/rdma.md": (vm_tables.TABLES, lambda: Rows(ROOT / "figures/vm")),
}


def made(page):
    """A page with the tables that the results have, and the names of those that differ."""
    tables, results = PAGES[page]
    rows = results()
    found, differ = [], []

    def replace(match):
        name = match[1]
        if name not in tables:
            sys.exit(f"{page}: {name} is not one of the tables {', '.join(tables)}")
        wanted = tables[name](rows)
        found.append(name)
        if match[2] != wanted:
            differ.append(name)
        return f"<!-- table: {name} -->\n\n{wanted}"

    text = MARK.sub(replace, (ROOT / page).read_text())
    if sorted(found) != sorted(tables):
        sys.exit(f"{page}: has the tables {found}, and should have {list(tables)}, each once")
    return text, differ


def wrong_tables():
    """The tables that differ from the results."""
    return [f"{page}: the table {name} differs from figures/: tests/docs/tables.py --write"
            for page in PAGES for name in made(page)[1]]


def main():
    if sys.argv[1:] != ["--write"]:
        sys.exit("the only option is --write, which writes the tables into the pages of docs/results/")
    for page in PAGES:
        text, differ = made(page)
        (ROOT / page).write_text(text)
        print(f"{page}: {', '.join(differ) or 'nothing to write, all are as the results'}")


if __name__ == "__main__":
    main()
