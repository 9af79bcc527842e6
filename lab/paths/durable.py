"""What it costs that verified files survive a power failure: `durable.py PROGRAM DIRECTORY`.

Sends 20,000 files of 4 KiB, and one file of 256 MiB, over loopback to a directory on the disk that is
measured, in turn with and without --no-sync. Prints the medians of the runs. The sender's files are in memory,
if the machine has /dev/shm."""

import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

from lib.ends import Ends
from table import show

RUNS = 5
FILES = 20_000
FILE_BYTES = 4096
LARGE_BYTES = 256 << 20
PER_DIRECTORY = 100


def main(program, directory):
    """Measures, and prints a table."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as source, \
            tempfile.TemporaryDirectory(dir=directory) as place:
        source, place = pathlib.Path(source), pathlib.Path(place)
        _write(source)
        rows = []
        for name, tree in ((f"{FILES:,} files of 4 KiB", source / "small"),
                           ("one file of 256 MiB", source / "large")):
            synced, fast = [], []
            for _ in range(RUNS):
                fast.append(_seconds(program, place, tree, "--no-sync"))
                synced.append(_seconds(program, place, tree))
            rows.append([name, *map(statistics.median, (fast, synced)),
                         f"{min(fast):.3g} to {max(fast):.3g}",
                         f"{min(synced):.3g} to {max(synced):.3g}"])
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True)
    conditions = (f"{os.cpu_count()} cores, Linux {platform.release()}, {kind.stdout.strip()}, load {load}, "
                  f"medians and ranges of {RUNS} runs in turn, seconds")
    show("Durable files", conditions, ["", "--no-sync", "synced", "", ""], rows)


def _write(source):
    for number in range(FILES):
        path = source / "small" / str(number // PER_DIRECTORY) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(FILE_BYTES))
    (source / "large").mkdir()
    with open(source / "large/file", "wb") as file:
        for _ in range(LARGE_BYTES >> 24):
            file.write(os.urandom(1 << 24))


def _seconds(program, place, tree, *options):
    """Returns how long a transfer takes, as the receiver reports it. The disk is idle before."""
    inbox = place / "inbox"
    inbox.mkdir()
    os.sync()
    with Ends(program, place, 60) as ends:
        receiver = ends.recv(inbox, "--once", *options)
        sent = ends.send(receiver, tree).end(600)
        received = receiver.end(600)
    problems = sent.problems("send", 0) + received.problems("recv", 0)
    if problems:
        raise SystemExit("\n".join(problems))
    shutil.rmtree(inbox)
    return received.outcomes[-1]["result"]["seconds"]


if __name__ == "__main__":
    main(*sys.argv[1:])
