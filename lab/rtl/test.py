"""``test.py PROGRAM FOLDER``: the hardware does what the Rust queue pairs do, packet by packet.

PROGRAM is the example ``rtl_packets`` of lab/bench, which writes the packets. FOLDER gets the programs that Verilator
makes. ``xp_nic`` and the rivals are held against the queue pairs, and ``xp_icrc`` against the ICRC of Rust. Then each
mutant, one line of the hardware that is wrong, has to be found. With ``--mutant NAME``, that mutant takes the place of
the hardware, so that the test fails.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import DESIGN, HERE, ICRC, RIVALS, VERILATOR, run

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
    "congestion": ("xp_icrc.sv", "fixed[256+:8] = '1;", ""),
    "last-beat": ("xp_icrc.sv", "held <= fixed << {empty, 5'd0};", "held <= fixed;"),
    "one-nak": ("gbn_rx.sv", "answer.valid = !old.is_refusing;", "answer.valid = 1'b1;"),
    "window": ("irn_rx.sv", "distance >= 24'(WINDOW);", "distance > 24'(WINDOW);"),
}
#: What is tested: sources, parameters as in rtl_packets, and the program in sim/ that drives it.
TOPS = {
    "xp_nic": (DESIGN, {"PAIRS": 32, "KEYS": 64}, "main"),
    "xp_icrc": (ICRC, {}, "icrc"),
    "rival_top": ([DESIGN[0], *RIVALS, HERE / "src/rival_top.sv"], {}, "rivals"),
}


def compiled(out, source, optimize):
    """An object file of C++. Warnings are about code that Verilator makes."""
    command = ["g++", "-std=c++20", optimize, "-w", f"-I{source.parent}", f"-I{HERE / 'sim'}"]
    run([*command, f"-I{out.parent}", f"-I{VERILATOR / 'include'}", "-c", "-o", out, source])
    return out


def verilated(folder, top, parameters, sources, optimize, warnings):
    """The object file of a module."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [VERILATOR / "bin/verilator_bin", "--quiet", "--cc", "-O3", *warnings]
    named = [f"-G{name}={value}" for name, value in parameters.items()]
    environment = {**os.environ, "VERILATOR_ROOT": str(VERILATOR)}
    run([*command, "--top-module", top, *named, "--Mdir", folder, *sources], env=environment)
    # In one piece, since each file would include the same headers.
    files = sorted(path.name for path in folder.glob(f"V{top}*.cpp"))
    everything = folder / "everything.cpp"
    everything.write_text("".join(f'#include "{name}"\n' for name in files))
    return compiled(folder / "model.o", everything, optimize)


def driver(folder, top):
    """The object file of what drives a top, with the headers in a folder."""
    return compiled(folder / "driver.o", HERE / f"sim/{TOPS[top][2]}.cpp", "-O1")


def mutated(folder, name):
    """The sources with one line that is wrong."""
    file, old, new = MUTANTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    sources = []
    for path in TOPS[top_of(name)][0]:
        text = path.read_text()
        if path.name == file:
            if text.count(old) != 1:
                sys.exit(f"{path}: the mutant {name} changes a line that is not there once: {old}")
            text = text.replace(old, new)
        sources.append(folder / path.name)
        sources[-1].write_text(text)
    return sources


def top_of(name):
    """What a mutant is a mutant of. The others have its name."""
    if name not in MUTANTS:
        return name
    return next(top for top, (sources, *_) in TOPS.items() if MUTANTS[name][0] in {path.name for path in sources})


def netlist(folder, top):
    """The hardware as Yosys reads it."""
    from pyosys import libyosys  # takes a second

    sources, parameters, _ = TOPS[top]
    folder.mkdir(parents=True, exist_ok=True)
    design = libyosys.Design()
    for path in sources:
        libyosys.run_pass(f"tee -q read_verilog -sv {path}", design)
    out = folder / "netlist.v"
    hierarchy = f"hierarchy -check -top {top}" + "".join(f" -chparam {of} {value}" for of, value in parameters.items())
    for command in [hierarchy, "proc", "flatten", "opt_clean", f"write_verilog -noattr -sv {out}"]:
        libyosys.run_pass(f"tee -q {command}", design)
    return out


def model(folder, name, is_netlist):
    """The object file of the hardware, or of a mutant, or of what Yosys makes of the hardware."""
    top = top_of(name)
    sources, parameters, _ = TOPS[top]
    if is_netlist:
        # Yosys' own names and widths are no fault of the sources.
        return verilated(folder, top, {}, [netlist(folder, top)], "-O1", ["-Wno-lint", "-Wno-fatal"])
    if name in MUTANTS:
        sources = mutated(folder, name)
    # A mutant ends early, so that it need not be fast.
    optimize = "-O0" if name in MUTANTS else "-O1"
    return verilated(folder, top, parameters, sources, optimize, ["-Wall", "-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM"])


def main():
    arguments = argparse.ArgumentParser(prog="test.py", description=__doc__)
    arguments.add_argument("program", type=Path)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--packets", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    instead = arguments.add_mutually_exclusive_group()
    instead.add_argument("--mutant", choices=MUTANTS)
    instead.add_argument("--netlist", action="store_true", help="test what Yosys reads instead of the sources")
    chosen = arguments.parse_args()
    folder = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    files = {"xp_nic": folder / "packets", "xp_icrc": folder / "sealed", "rival_top": folder / "rivals"}
    run([chosen.program, "--packets", chosen.packets, "--seed", chosen.seed,
         "--out", files["xp_nic"], "--sealed", files["xp_icrc"], "--rivals", files["rival_top"]])

    names = [chosen.mutant] if chosen.mutant else [*TOPS] if chosen.netlist else [*TOPS, *MUTANTS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        place = folder / "netlist" if chosen.netlist else folder
        models = dict(zip(names, pool.map(lambda name: model(place / name, name, chosen.netlist), names)))
        common = list(pool.map(lambda name: compiled(folder / f"{name}.o", VERILATOR / f"include/{name}.cpp", "-O1"),
                               ["verilated", "verilated_threads"]))
        # One for all models of a top, whose interface is the same.
        firsts = {top_of(name): models[name].parent for name in reversed(names)}
        drivers = dict(zip(firsts, pool.map(lambda top: driver(firsts[top], top), firsts)))
    failed = False
    for name in names:
        program, top = models[name].with_name("sim"), top_of(name)
        run(["g++", "-o", program, models[name], drivers[top], *common, "-lpthread"])
        ended = subprocess.run([program, files[top]], check=False, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            sys.exit(f"{program}: exit status {ended.returncode}\n{ended.stderr}")
        if name in TOPS or chosen.mutant:
            print(ended.stdout or ended.stderr, end="")
            failed |= ended.returncode != 0
        elif ended.returncode == 0:
            print(f"the mutant {name} is not found in {chosen.packets} packets")
            failed = True
        else:
            print(f"the mutant {name} is found: {ended.stderr.splitlines()[-1]}")
    for path in files.values():
        path.unlink()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
