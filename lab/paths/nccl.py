"""A ring all-reduce over net plugins of NCCL: that of Farwrite beside one over TCP."""

import pathlib
import re
import statistics
import subprocess

import ends
import table

LOSSES = ("0", "0.01%", "0.1%", "1%")
RATE, RTT = "1Gbit", "25ms"
#: Bytes that fill the path: those in flight, in MiB. The harness has 4 MiB open on each connection.
FLIGHT = 1e9 * 0.025 / 8 / (1 << 20)
_HERE = pathlib.Path(__file__).parent
_HARNESS = _HERE.parents[1] / "crates/nccl/tests/c/harness.c"


def run(programs):
    """Prints a row for each loss and plugin. The plugins take turns."""
    harness, tcp = (programs.directory / name for name in ("harness", "libtcp.so"))
    compile_c = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2"]
    subprocess.run([*compile_c, _HARNESS, "-ldl", "-o", harness], check=True)
    subprocess.run([*compile_c, "-shared", "-fPIC", _HERE / "nccl_tcp.c", "-o", tcp], check=True)
    mebibytes = max(4, int(64 * programs.scale))
    contestants = {"farwrite": (programs.nccl, {"FARWRITE_PSK_FILE": programs.key})}
    contestants |= {f"TCP {cc}": (tcp, {"TCP_CC": cc}) for cc in programs.congestion_controls}
    rows = []
    for loss in LOSSES:
        seconds = {name: [] for name in contestants}
        late = {name: [] for name in contestants}
        for seed in range(programs.runs):
            for name, (plugin, variables) in contestants.items():
                options = ("--rate", RATE, "--rtt", RTT, "--ip-mtu", 1500, "--loss", loss, "--seed", seed)
                with programs.path(*options) as path:
                    seconds[name] += _all_reduce(programs, path, (harness, plugin, mebibytes), variables)
                    late[name].append(ends.lateness(path.stop()))
        for name, values in seconds.items():
            rows.append([loss, name, statistics.median(values), min(values), max(values), ends.shown(*late[name])])
    table.show(
        f"Seconds of an all-reduce of {mebibytes} MiB over four ranks, two at each end of a path",
        f"{RATE}, {RTT}, loss both ways, {programs.runs} runs of three all-reduces. The path needs {FLIGHT:.1f} MiB in "
        "flight; NCCL's\nNCCL_BUFFSIZE of 4 MiB, which the harness has too, is enough for one channel. farwrite: encrypted. "
        "TCP: in clear. Late: p99\nof the link's lateness in ms, the worst run; rows with ! do not count.",
        ["loss", "plugin", "median", "least", "most", "late"], rows)


def _all_reduce(programs, path, arguments, variables):
    """Runs four ranks. Returns the seconds of each all-reduce."""
    shared = programs.directory / "ranks"
    shared.unlink(missing_ok=True)
    harness, plugin, mebibytes = arguments
    processes = []
    for rank, host in enumerate((path.a, path.a, path.b, path.b)):
        own = {"HARNESS_RANK": rank, "HARNESS_SHARED": shared, "NCCL_SOCKET_IFNAME": "far0", "TCP_ADDRESS": host.v4}
        command = ["env", *(f"{name}={value}" for name, value in (own | variables).items())]
        command += [harness, plugin, "12", "all-reduce", mebibytes]
        processes.append(path.own(host.popen(list(map(str, command)), text=True, stdout=subprocess.PIPE)))
    texts = [process.communicate(timeout=300)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise ends.Failed(f"an all-reduce failed: {texts}")
    return [float(value) for value in re.findall(r"([\d.]+) s, ", texts[0])]
