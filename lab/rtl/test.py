"""``test.py PROGRAM FOLDER``: the hardware does what the Rust queue pairs do, packet by packet.

PROGRAM is the example ``rtl_packets`` of lab/bench, which writes the packets. FOLDER gets the programs that Verilator
makes. Then each mutant, one line of the hardware that is wrong, has to be found. With ``--mutant NAME``, that mutant
takes the place of the hardware, so that the test fails.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import DESIGN, HERE, VERILATOR, run

#: File, line, and the line that is wrong.
MUTANTS = {
    "forwarding": (
        "xp_ctx.sv",
        "if (write && write_at == at) entry = write_entry;",
        "",
    ),
    "preemption": (
        "xp_rx.sv",
        "received.preempted = place ? distance[7:0] : 8'd0;",
        "received.preempted = {7'd0, place && distance != 24'd0};",
    ),
    "bounds": (
        "xp_rx.sv",
        "{1'b0, offset} + {49'd0, ev.payload_bytes} <= {1'b0, region.length}",
        "{1'b0, offset} + {49'd0, ev.payload_bytes} <= {1'b0, region.length} + 65'd1",
    ),
    "rounding": (
        "xp_dcqcn.sv",
        "busy_ns = {24'd0, dividend} + {63'd0, remainder != 32'd0};",
        "busy_ns = {24'd0, dividend};",
    ),
}
#: As in rtl_packets.
PAIRS, KEYS = 32, 64


def compiled(out, source, optimize):
    """An object file of C++. Warnings are about code that Verilator makes."""
    command = ["g++", "-std=c++20", optimize, "-w", f"-I{source.parent}", f"-I{HERE / 'sim'}"]
    run([*command, f"-I{out.parent}", f"-I{VERILATOR / 'include'}", "-c", "-o", out, source])
    return out


def verilated(folder, top, parameters, sources, optimize):
    """The object file of a module."""
    folder.mkdir(parents=True, exist_ok=True)
    # Yosys' own names and widths are no fault of the sources.
    warnings = ["-Wall", "-Wno-UNUSEDSIGNAL"] if parameters else ["-Wno-lint", "-Wno-fatal"]
    command = [VERILATOR / "bin/verilator_bin", "--quiet", "--cc", "-O3", *warnings]
    named = [f"-G{name}={value}" for name, value in parameters.items()]
    environment = {**os.environ, "VERILATOR_ROOT": str(VERILATOR)}
    run([*command, "--top-module", top, *named, "--Mdir", folder, *sources], env=environment)
    # In one piece, since each file would include the same headers.
    files = sorted(path.name for path in folder.glob(f"V{top}*.cpp"))
    everything = folder / "everything.cpp"
    everything.write_text("".join(f'#include "{name}"\n' for name in files))
    return compiled(folder / "model.o", everything, optimize)


def mutated(folder, name):
    """The sources with one line that is wrong."""
    file, old, new = MUTANTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    sources = []
    for path in DESIGN:
        text = path.read_text()
        if path.name == file:
            if text.count(old) != 1:
                sys.exit(f"{path}: the mutant {name} changes a line that is not there once: {old}")
            text = text.replace(old, new)
        sources.append(folder / path.name)
        sources[-1].write_text(text)
    return sources


def netlist(folder):
    """The hardware as Yosys reads it."""
    from pyosys import libyosys  # takes a second

    folder.mkdir(parents=True, exist_ok=True)
    design = libyosys.Design()
    for path in DESIGN:
        libyosys.run_pass(f"tee -q read_verilog -sv {path}", design)
    out = folder / "netlist.v"
    hierarchy = f"hierarchy -check -top xp_nic -chparam PAIRS {PAIRS} -chparam KEYS {KEYS}"
    for command in [hierarchy, "proc", "flatten", "opt_clean", f"write_verilog -noattr -sv {out}"]:
        libyosys.run_pass(f"tee -q {command}", design)
    return out


def nic(folder, name):
    """The object file of the hardware, or of a mutant, or of what Yosys makes of the hardware."""
    if name == "netlist":
        return verilated(folder / name, "xp_nic", {}, [netlist(folder / name)], "-O1")
    sources = mutated(folder / name, name) if name in MUTANTS else DESIGN
    # A mutant ends early, so that it need not be fast.
    optimize = "-O0" if name in MUTANTS else "-O1"
    return verilated(folder / name, "xp_nic", {"PAIRS": PAIRS, "KEYS": KEYS}, sources, optimize)


def main():
    arguments = argparse.ArgumentParser(prog="test.py", description=__doc__)
    arguments.add_argument("program", type=Path)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--packets", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--mutant", choices=MUTANTS)
    arguments.add_argument("--netlist", action="store_true", help="test what Yosys reads instead of the sources")
    chosen = arguments.parse_args()
    folder = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    packets = folder / "packets"
    run([chosen.program, "--packets", chosen.packets, "--seed", chosen.seed, "--out", packets])

    alone = "netlist" if chosen.netlist else chosen.mutant
    names = [alone] if alone else ["clean", *MUTANTS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        models = dict(zip(names, pool.map(lambda name: nic(folder, name), names)))
        headers = models[names[0]].parent
        links = [("main.o", HERE / "sim/main.cpp"), ("verilated.o", VERILATOR / "include/verilated.cpp"),
                 ("threads.o", VERILATOR / "include/verilated_threads.cpp")]
        common = list(pool.map(lambda link: compiled(headers / link[0], link[1], "-O1"), links))
    failed = False
    for name, model in models.items():
        program = model.with_name("xp_sim")
        run(["g++", "-o", program, model, *common, "-lpthread"])
        ended = subprocess.run([program, packets], check=False, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            sys.exit(f"{program}: exit status {ended.returncode}\n{ended.stderr}")
        if name == "clean" or alone:
            print(ended.stdout or ended.stderr, end="")
            failed |= ended.returncode != 0
        elif ended.returncode == 0:
            print(f"the mutant {name} is not found in {chosen.packets} packets")
            failed = True
        else:
            print(f"the mutant {name} is found: {ended.stderr.splitlines()[-1]}")
    packets.unlink()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
