"""Large transfers over loopback: `scale.py PROGRAM DIRECTORY [SCALE]`.

With a scale of 1: 1,000,000 files of 4 KiB beside `cp -r` and `sync -f`, 100 GB of zeros through `send -` and `recv -`,
and a file of 25 GB, whose source and copy are on the disk that is measured. Prints seconds, rates and the most memory
of both ends. A smaller scale shortens all of them."""

import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import many_files
from lib.ends import free_address
from table import show

MIB = 1 << 20
FILES = 1_000_000
PIPE_BYTES = 100 * 10**9
FILE_BYTES = 25 * 10**9


def main(program, directory, scale="1"):
    """Measures, and prints tables."""
    scale = float(scale)
    many_files.main(program, directory, max(1000, int(FILES * scale)), 1)
    with tempfile.TemporaryDirectory(dir=directory) as place:
        place = pathlib.Path(place)
        subprocess.run([program, "--quiet", "keygen", place / "key"], check=True)
        rows = [_pipe(program, place / "key", int(PIPE_BYTES * scale)),
                _file(program, place, int(FILE_BYTES * scale))]
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    show("One long stream, and one long file, over loopback", f"{os.cpu_count()} cores, Linux {platform.release()}, load {load}",
         ["", "GB", "seconds", "Gbit/s", "sender, MiB", "receiver, MiB"], rows)


def _pipe(program, key, size):
    receiver, sender = _commands(program, key, ["-"], ["-"])
    with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as zeros:
        return _row("send -", size, *_run(receiver, sender, zeros.stdout))


def _file(program, place, size):
    source, inbox = place / "file", place / "inbox"
    inbox.mkdir()
    piece = os.urandom(64 * MIB)
    with open(source, "wb") as file:
        for at in range(0, size, len(piece)):
            # No two pieces are alike.
            file.write(at.to_bytes(8, "big") + piece[8:min(len(piece), size - at)])
    os.sync()
    receiver, sender = _commands(program, place / "key", ["--once", "--dir", inbox], [source])
    row = _row("send FILE, synced", size, *_run(receiver, sender))
    if (inbox / "file").stat().st_size != source.stat().st_size:
        raise SystemExit("the copy has another length")
    return row


def _commands(program, key, receiving, sending):
    address = free_address()
    common = ["--psk-file", key]
    return ([program, "--quiet", "recv", "--listen", address, *common, *receiving],
            [program, "--quiet", "send", "--to", address, "--no-path-cache", *common, *sending])


def _run(receiving, sending, stdin=None):
    """Returns seconds, and the most MiB of memory of sender and receiver."""
    receiver = subprocess.Popen(receiving, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    start = time.monotonic()
    sender = subprocess.Popen(sending, stdin=stdin, stdout=subprocess.DEVNULL)
    peaks = []
    for process in (sender, receiver):
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"a transfer failed: {status}")
        peaks.append(usage.ru_maxrss / 1024)
    return time.monotonic() - start, *peaks


def _row(name, size, seconds, *peaks):
    return [name, size / 1e9, seconds, size * 8 / seconds / 1e9, *peaks]


if __name__ == "__main__":
    main(*sys.argv[1:])
