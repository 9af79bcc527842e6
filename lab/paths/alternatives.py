"""Time to move a file: `farwrite send` beside what people use instead."""

import csv
import os
import platform
import shutil
import statistics
import subprocess
import time

import ends
import table
from lib.sshd import Sshd

MB = 1_000_000
#: A transfer of another program that takes longer is stopped.
LIMIT_S = 60.0

#: Path and file, loss, bytes of the file, and options of `farwrite link`.
ROWS = (
    ("1 Gbit/s, 25 ms, 100 MB", 0, 100 * MB, "--rate 1Gbit --rtt 25ms"),
    ("1 Gbit/s, 25 ms, 100 MB", 1e-4, 100 * MB, "--rate 1Gbit --rtt 25ms"),
    ("1 Gbit/s, 25 ms, 100 MB", 1e-3, 100 * MB, "--rate 1Gbit --rtt 25ms"),
    ("1 Gbit/s, 25 ms, 100 MB", 1e-2, 100 * MB, "--rate 1Gbit --rtt 25ms"),
    ("1 Gbit/s, 25 ms, 1 MB", 0, 1 * MB, "--rate 1Gbit --rtt 25ms"),
    ("50 Mbit/s, 30 ms varied by 3 ms, 20 MB", 0, 20 * MB, "--rate 50Mbit --rtt 30ms --vary uniform:3ms/30ms"),
    ("64 kbit/s, 100 ms, 150 kB", 0, 150_000, "--rate 64kbit --rtt 100ms"),
)
COLUMNS = ("figure", "panel", "series", "x", "measure", "value", "conditions")


def run(programs):
    """Prints seconds by path and program, and writes them to the file of --csv. The programs take turns."""
    contestants = {"farwrite send": ends.move}
    if shutil.which("rsync"):
        if shutil.which("sshd") and shutil.which("ssh"):
            contestants["rsync over ssh, CUBIC"] = _rsync_over_ssh
        if "bbr" in programs.congestion_controls:
            contestants["rsync daemon, BBR"] = lambda *args: ends.rsync(*args, "bbr", LIMIT_S)
    if programs.quinn:
        contestants["quinn, CUBIC"] = lambda *args: _quinn(*args, "cubic")
        contestants["quinn, BBR"] = lambda *args: _quinn(*args, "bbr")
    rows, results = [], []
    for name, loss, size, options in ROWS:
        size = max(100_000, int(size * min(1.0, programs.scale)))
        taken = {contestant: [] for contestant in contestants}
        late = []
        for seed in range(programs.runs):
            for contestant, transfer in contestants.items():
                with programs.path(*options.split(), "--loss", loss, "--seed", seed) as path:
                    taken[contestant].append(_seconds(transfer, programs, path, programs.file(size)))
                    late.append(ends.lateness(path.stop()))
        results += [(name, contestant, loss, each) for contestant, each in taken.items()]
        rows.append([f"{name}, loss {loss:g}", *map(_median, taken.values()), ends.shown(*late)])
    table.show(
        "Seconds for a file, from the start of the command to its end",
        "1500-byte packets, offloads, queue of one round trip (four packets at least), loss both ways, files in "
        "memory, an unknown\npath. Medians. farwrite send: encrypted, verified. rsync over ssh: encrypted. rsync daemon: in clear. "
        "quinn: the bytes\nalone, encrypted, not written to a "
        f"file. >: stopped after {LIMIT_S:g} s. -: broke off. Late: the worst run's lateness of\nthe link.",
        ["path", *contestants, "late"], rows)
    if programs.csv:
        _write(programs, results)


def _write(programs, results):
    """Writes a row for each path and program, for the table of lab/results/performance.md and its picture."""
    conditions = (f"make -C lab bench-path PART=alternatives, {programs.runs} runs, scale {programs.scale:g}; 1500-byte packets, offloads, "
                  "queue of one round trip (four packets at least), loss both ways, files in memory, an unknown path; "
                  f"{os.cpu_count()} cores, Linux {platform.release()}")
    with open(programs.csv, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for path, contestant, loss, each in results:
            writer.writerow(("alternatives", path, contestant, loss, *_measure(each), conditions))


def _measure(seconds):
    """The name of a measure, and its value."""
    if None in seconds:
        return "broke_off", 1
    median = statistics.median(seconds)
    return ("stopped_s", LIMIT_S) if median == float("inf") else ("seconds", median)


def _seconds(transfer, programs, path, file):
    """Returns the seconds of a transfer; infinity if it was stopped, None if it broke off."""
    try:
        return transfer(programs, path, file)
    except subprocess.TimeoutExpired:
        return float("inf")
    except ends.Failed:
        return None


def _median(seconds):
    measure, value = _measure(seconds)
    return {"seconds": value, "stopped_s": f">{value:g}", "broke_off": None}[measure]


def _rsync_over_ssh(programs, path, source):
    """Moves a file with rsync over ssh and TCP CUBIC, the default of Linux. Returns the seconds from
    the start of the command to its end."""
    ends.use_congestion_control(path, "cubic")
    directory = programs.directory / "ssh"
    daemon = Sshd(path, path.b, directory)
    start = time.monotonic()
    sender = path.own(path.a.popen(["rsync", "--whole-file", "-e", daemon.shell, str(source),
                                    f"root@{path.b.v4}:{directory}/arrived"]))
    code = sender.wait(timeout=LIMIT_S)
    seconds = time.monotonic() - start
    daemon.stop()
    if code != 0:
        raise ends.Failed(f"rsync over ssh ended with {code}")
    (directory / "arrived").unlink()
    return seconds


def _quinn(programs, path, source, cc):
    """Moves the bytes of a file over QUIC. Returns the seconds from the start of the command to the receiver's
    answer to the last byte."""
    receiver = ends.quinn_receiver(programs, path, cc)
    start = time.monotonic()
    sender = path.own(path.a.popen(
        [*ends.quinn_command(programs, cc), "send-file", f"{path.b.v4}:4433", str(source)], stderr=subprocess.DEVNULL))
    code = sender.wait(timeout=LIMIT_S)
    seconds = time.monotonic() - start
    if code != 0:
        raise ends.Failed(f"quinn ended with {code}")
    receiver.wait(timeout=10)
    return seconds
