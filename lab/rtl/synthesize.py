"""``synthesize.py --csv FILE --folder FOLDER``: what the hardware takes on UltraScale+, by Yosys.

Prints the tables of lab/results/rtl.md, and writes their rows. The folder keeps what the runs of Yosys have found.
Yosys maps to the cells of the device (``synth_xilinx -family xcup``). Nothing is placed or routed, so that no clock
follows. Of the default script of ABC9, the step ``&mfs`` is left out, which takes minutes for wide logic.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import DESIGN, HERE, ICRC, RIVALS

sys.path.append(str(HERE.parent / "tables"))
from results import Rows
from rtl_tables import TABLES

SOURCES = [*DESIGN, *ICRC, *RIVALS]
ABC9 = "+&scorr;&sweep;&dc2;&dch,-f,-r;&ps;&if,{C},{W},{D},{R},-v"
#: Bytes of a context: XP, and what Celeris IV gives SRNIC, RoCE and IRN.
CONTEXTS = [52, 210, 407, 596]
#: What lies between registers and RAMs, and all wires.
LOGIC = "t:LUT* t:CARRY4 t:MUXF* t:INV w:*"
BLOCK_RAM = {"RAMB36E2": 1.0, "RAMB18E2": 0.5}
#: Look-up tables of a cell of distributed memory.
MEMORY = {"RAM32M": 4, "RAM32M16": 8, "RAM64M": 4, "RAM64M8": 8, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1D": 8,
          "RAM32X1D": 2, "SRL16E": 1, "SRLC32E": 1, "RAM64X8SW": 8, "RAM32X16DR8": 8}
FIELDS = ("peer_qpn 24, mtu_log 4, zero 3, notifies 1, sending 24, sends 8, expected 24, receives 8, sent_bytes 32, "
          "placed_bytes 32, rate_kbps 32, target_kbps 32, alpha 32, counters 32, period_us 32, increase_us 32, "
          "next_send 64")
CONTEXT_BITS = 416
#: Receiving halves: the run, and the module.
RECEIVERS = {"XP": ("nic", "xp_rx"), "Go-Back-N": ("gbn", "gbn_rx"), "IRN": ("irn", "irn_rx")}
#: Bits that the receiving half of a queue pair keeps, with the deadline of XP.
STATE = {"XP": 24 + 8 + 32 + 4 + 1 + 64, "Go-Back-N": 182, "IRN": 309}
#: Panels of other claims than that of the page.
FIGURES = {"hardware": "OT4", "widths": "OT5"}
CONDITIONS = "Yosys 0.70, synth_xilinx -family xcup, ABC9 without &mfs, not placed and not routed"


def in_process(job, folder):
    """What one run of Yosys finds. Each has a process of its own, since Yosys keeps the memory of what it has read."""
    texts = [path.read_text() for path in [*SOURCES, Path(__file__)]]
    # An answer that a run before has left holds for the same sources.
    answer = folder / f"{hashlib.sha256(''.join([json.dumps(job), *texts]).encode()).hexdigest()[:16]}.json"
    if not answer.exists():
        ended = subprocess.run([sys.executable, __file__, "--job", json.dumps(job), "--answer", str(answer)],
                               capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(f"{job}: exit status {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return json.loads(answer.read_text())


def synthesize(top, parameters, answer):
    """Counts cells by module, and finds the longest path between registers or RAMs."""
    from pyosys import libyosys  # not in the process that starts the others

    design = libyosys.Design()

    def do(command):
        libyosys.run_pass(command, design)

    for path in SOURCES:
        do(f"read_verilog -sv {path}")
    do(f"hierarchy -check -top {top}" + "".join(f" -chparam {name} {value}" for name, value in parameters.items()))
    do(f"scratchpad -set abc9.script {ABC9}")
    # Of contexts alone, only the RAMs count: what reads and writes them is a part of the whole design.
    do("synth_xilinx -family xcup -noiopad -noclkbuf" + (" -run begin:fine" if top == "xp_ctx" else ""))
    with tempfile.TemporaryDirectory() as folder:
        stat, netlist, path = (Path(folder) / name for name in ("stat", "netlist", "path"))
        do(f"tee -q -o {stat} stat -json")
        readers = ("xp_rx", "xp_tx", "xp_dcqcn") if top == "xp_nic" else ()
        if readers:
            do(f"write_json {netlist}")
        # Of each module, and then of all of them together.
        do(f"tee -q -o {path} ltp {LOGIC}")
        do("flatten")
        do(f"tee -q -a {path} ltp {LOGIC}")
        modules = json.loads(stat.read_text())["modules"]
        counted = [(name, counts(module["num_cells_by_type"])) for name, module in modules.items()]
        # The RAM that is looked at alone has no other one beside it.
        found = {name_of(name, cells) if top == "xp_nic" else top: cells for name, cells in counted}
        reads = {module: read_bits(json.loads(netlist.read_text()), module) for module in readers}
        answer.write_text(json.dumps({"modules": found, "levels": levels(path.read_text()), "reads": reads}))


def name_of(module, cells):
    """The name of a module in its source. That of `xp_ctx`, which is used twice, says what it holds."""
    name = re.search(r"(xp|gbn|irn)_\w+", module)[0]
    if name != "xp_ctx":
        return name
    return f"{name} (deadlines)" if cells["RAMB36"] < 4 else f"{name} (contexts)"


def counts(cells):
    """Cells as an engineer counts them. An inverter is a part of what it feeds."""
    lut = sum(count for cell, count in cells.items() if re.fullmatch(r"LUT[1-6]", cell))
    memory = sum(count * MEMORY.get(cell, 0) for cell, count in cells.items())
    return {
        "LUT": lut,
        "LUT as memory": memory,
        "FF": sum(count for cell, count in cells.items() if re.fullmatch(r"FD[RSCP]E", cell)),
        "CARRY4": cells.get("CARRY4", 0),
        "DSP": cells.get("DSP48E2", 0),
        "RAMB36": sum(count * BLOCK_RAM.get(cell, 0) for cell, count in cells.items()),
    }


def levels(report):
    """Look-up tables and carry cells of the longest path of each module, which Yosys finds by the number of cells."""
    found = {}
    for part in report.split("Longest topological path in ")[1:]:
        name = re.search(r"(xp|gbn|irn)_\w+", part)[0]
        via = re.findall(r"\(via [^)]*\)", part)
        carry = sum("carry" in cell for cell in via)
        # The design as a whole comes last.
        found[name] = {"LUT": len(via) - carry, "carry": carry}
    return found


def read_bits(netlist, module):
    """Bits of the context that some cell of a module has as an input, or that go into a packet, by field."""
    cells = netlist["modules"][module]["cells"].values()
    ports = netlist["modules"][module]["ports"]
    used = {bit for cell in cells for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input" for bit in bits}
    # The header of a packet that leaves.
    if "transmit" in ports:
        used |= set(ports["transmit"]["bits"])
    # xp_dcqcn has the words from the fifth one on.
    context, at, found = ports["old"]["bits"], 0, {}
    context = [None] * (CONTEXT_BITS - len(context)) + context
    for name, width in (field.split() for field in FIELDS.split(", ")):
        found[name] = sum(bit in used for bit in context[at : at + int(width)])
        at += int(width)
    return found


def measure(workers, folder):
    """All runs of Yosys."""
    jobs = {"nic": ["xp_nic", {"PAIRS": 1024}], "icrc": ["xp_icrc", {}], "gbn": ["gbn_rx", {}], "irn": ["irn_rx", {}]}
    for width, pairs in [*((width, 10240) for width in CONTEXTS), (52, 1024), (52, 64)]:
        jobs[f"{width} bytes, {pairs} pairs"] = ["xp_ctx", {"WIDTH": 8 * width, "PAIRS": pairs}]
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(jobs, pool.map(lambda job: in_process(job, folder), jobs.values())))


def rows(found):
    """Panel, series, x, measure and value of each number."""
    nic = found["nic"]
    for module, cells in (nic["modules"] | found["icrc"]["modules"]).items():
        for measure_, value in cells.items():
            yield "modules", module, 1024, measure_, value
    for job in ("nic", "icrc", "gbn", "irn"):
        for name, path in found[job]["levels"].items():
            for measure_, value in path.items():
                yield "levels", name, 0, measure_, value
    for name, (job, module) in RECEIVERS.items():
        for measure_, value in found[job]["modules"][module].items():
            yield "receivers", name, 0, measure_, value
    for name, state in STATE.items():
        yield "state", name, 0, "bits", state
    for job, answer in found.items():
        if match := re.fullmatch(r"(\d+ bytes), (\d+) pairs", job):
            yield "contexts", match[1], int(match[2]), "RAMB36", answer["modules"]["xp_ctx"]["RAMB36"]
    # What claims OT4 and OT5 show.
    yield "hardware", "XP", 0, "bits", CONTEXT_BITS
    yield "hardware", "XP", 0, "bits read", sum(
        max(read[field.split()[0]] for read in nic["reads"].values()) for field in FIELDS.split(", "))
    for width in CONTEXTS:
        ram = found[f"{width} bytes, 10240 pairs"]["modules"]["xp_ctx"]["RAMB36"]
        yield "widths", "contexts of 10,240 queue pairs", width, "RAMB36", ram
    at = 0
    for field in FIELDS.split(", "):
        name, width = field.split()
        yield "bits", name, at, "bits", int(width)
        for module, read in nic["reads"].items():
            yield "bits", name, at, module, read[name]
        at += int(width)


def main():
    arguments = argparse.ArgumentParser(prog="synthesize.py", description=__doc__)
    arguments.add_argument("--csv", type=Path, help="the file of the rows")
    arguments.add_argument("--folder", type=Path, help="the folder of what runs of Yosys have found")
    arguments.add_argument("--workers", type=int, default=os.cpu_count())
    arguments.add_argument("--job", help=argparse.SUPPRESS)
    arguments.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.job:
        synthesize(*json.loads(chosen.job), chosen.answer)
        return
    if not chosen.csv or not chosen.folder:
        sys.exit("--csv names the file of the rows, and --folder the folder of the answers")
    found = measure(chosen.workers, chosen.folder)
    lines = ["figure,panel,series,x,measure,value,conditions"]
    lines += [f'{FIGURES.get(panel, "RTL")},"{panel}","{series}",{x},"{measure_}",{value},"{CONDITIONS}"'
              for panel, series, x, measure_, value in rows(found)]
    chosen.csv.parent.mkdir(parents=True, exist_ok=True)
    chosen.csv.write_text("\n".join(lines) + "\n")
    results = Rows(chosen.csv.parent)
    print(CONDITIONS)
    for name, of in TABLES.items():
        if name == "rtl-route":
            continue  # by route.py
        print(f"\n{name}\n\n{of(results)}", end="")


if __name__ == "__main__":
    main()
