"""Reads cargo's messages about what it has built, and writes the path of each program by its name, as JSON.

The static library of the C interface becomes a program too: the benchmark of `examples/c`.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def c_benchmark(library):
    """Compile the benchmark beside the library, because guests do not see temporary files of this machine."""
    program = library.with_name("sdr_write_bw-vm")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-D_GNU_SOURCE", "-O2", "-I", ROOT / "crates/capi/include", "-o", program,
         ROOT / "examples/c/sdr_write_bw.c", library, "-lpthread", "-ldl", "-lm"],
        check=True,
    )
    return str(program)


messages = (json.loads(line) for line in sys.stdin if line.startswith("{"))
programs = {}
for message in messages:
    if message["reason"] != "compiler-artifact":
        continue
    # The UDP fabric has a test `contract` too.
    is_elsewhere = message["target"]["kind"] == ["test"] and "/crates/verbs/" not in message["target"]["src_path"]
    if message.get("executable") and not is_elsewhere:
        programs[message["target"]["name"]] = message["executable"]
    libraries = [pathlib.Path(name) for name in message["filenames"] if name.endswith("libfarwrite_capi.a")]
    if libraries:
        programs["sdr_write_bw"] = c_benchmark(libraries[0])
json.dump(programs, sys.stdout)
