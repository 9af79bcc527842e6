"""Many small files beside `cp -r` and `sync -f`: `many_files.py PROGRAM DIRECTORY [FILES [RUNS]]`.

Sends files of 4 KiB over loopback to a directory on the disk that is measured, sends them again, and copies them,
in turn. Prints the medians in seconds, from the start of the command to its end, and the most memory of both ends.
The sender's files are in memory, if the machine has /dev/shm."""

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from lib.ends import free_address
from table import show

FILE_BYTES = 4096
PER_DIRECTORY = 1000


def main(program, directory, files="100000", runs="3"):
    """Measures, and prints a table."""
    files, runs = int(files), int(runs)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as source, \
            tempfile.TemporaryDirectory(dir=directory) as place:
        source, place = pathlib.Path(source) / "tree", pathlib.Path(place)
        _write(source, files)
        subprocess.run([program, "--quiet", "keygen", place / "key"], check=True)
        copied, sent, again, peaks = [], [], [], []
        for run in range(runs):
            # Nothing is removed before the end: for minutes, ext4 looks for free inodes beyond those of removed files,
            # which makes new files slow.
            inboxes = [place / f"inbox{run}{end}" for end in "ab"]
            for inbox in inboxes:
                inbox.mkdir()
            os.sync()
            copied.append(_seconds([["cp", "-r", source, inboxes[0]], ["sync", "-f", inboxes[0]]]))
            for times in (sent, again):
                seconds, *peak = _transfer(program, place, source, inboxes[1])
                times.append(seconds)
                peaks.append(peak)
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    conditions = (f"{os.cpu_count()} cores, Linux {platform.release()}, load {load}, medians and ranges of {runs} "
                  "runs in turn, seconds")
    rows = [[name, statistics.median(times), f"{min(times):.3g} to {max(times):.3g}"]
            for name, times in (("cp -r, sync -f", copied), ("send", sent), ("send again", again))]
    show(f"{files:,} files of 4 KiB", conditions, ["", "median", "range"], rows)
    ratio = statistics.median(copied) / statistics.median(sent)
    print(f"rate of send, compared with cp -r and sync -f: {ratio:.2f}")
    for name, at in (("sender", 0), ("receiver", 1)):
        print(f"most memory of the {name}: {max(peak[at] for peak in peaks) / 1024:.0f} MiB")


def _write(source, files):
    for number in range(files):
        path = source / str(number // PER_DIRECTORY) / str(number)
        if number % PER_DIRECTORY == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(FILE_BYTES))


def _seconds(commands):
    start = time.monotonic()
    for command in commands:
        subprocess.run(command, check=True)
    return time.monotonic() - start


def _transfer(program, place, source, inbox):
    """Returns seconds, and the most KiB of memory of sender and receiver."""
    address = free_address()
    common = ["--psk-file", place / "key"]
    receiver = subprocess.Popen([program, "--quiet", "recv", "--listen", address, "--dir", inbox, "--once", *common],
                                stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    start = time.monotonic()
    sender = subprocess.Popen([program, "--quiet", "send", "--no-path-cache", "--to", address, *common, source],
                              stdout=subprocess.DEVNULL)
    peaks = []
    for process in (sender, receiver):
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"a transfer failed: {status}")
        peaks.append(usage.ru_maxrss)
    return time.monotonic() - start, *peaks


if __name__ == "__main__":
    main(*sys.argv[1:])
