#!/usr/bin/env python3
"""Tables of lab/results/, and lab/figures/numbers.md, that are made from the results in lab/figures/.

A line `<!-- table: NAME -->` stands above each of them. `lab/tables/tables.py` fails if a table differs from its
results. `lab/tables/tables.py --write` writes the tables.
"""

import re
import sys
from pathlib import Path

import alternatives_tables
import claims_table
import collectives_tables
import lowar_tables
import netrt_tables
import rtl_tables
import together_tables
import vm_tables
from results import Rows

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- table: ([\w-]+) -->\n\n?((?:\|.*\n)*)")
BOXES = lowar_tables.TABLES | netrt_tables.TABLES | together_tables.TABLES
#: For each page: its tables, and what they are made from.
PAGES = {
    "lab/figures/numbers.md": (claims_table.ALL, lambda: ROOT / "lab/figures"),
    "lab/results/best-effort.md": (collectives_tables.TABLES, lambda: Rows(ROOT / "lab/figures/collectives")),
    "lab/results/boxes.md": (BOXES, lambda: Rows(ROOT / "lab/figures/boxes")),
    "lab/results/claims.md": (claims_table.TABLES, lambda: ROOT / "lab/figures"),
    "lab/results/performance.md": (alternatives_tables.TABLES, lambda: Rows(ROOT / "lab/figures/paths")),
    "lab/results/rtl.md": (rtl_tables.TABLES, lambda: Rows(ROOT / "lab/figures/optinic")),
    "lab/results/rdma.md": (vm_tables.TABLES, lambda: Rows(ROOT / "lab/figures/vm")),
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


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit("the only option is --write, which writes the tables into their pages")
    failed = False
    for page in PAGES:
        text, differ = made(page)
        if sys.argv[1:]:
            (ROOT / page).write_text(text)
            print(f"{page}: {', '.join(differ) or 'nothing to write, all are as the results'}")
        for name in differ if not sys.argv[1:] else []:
            failed = True
            print(f"{page}: the table {name} differs from lab/figures/: lab/tables/tables.py --write", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
