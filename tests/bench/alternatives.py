"""Time to move a file: `farwrite send` beside what people use instead."""

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

#: Name, bytes of the file, and options of `farwrite link`.
ROWS = (
    ("1 Gbit/s, 25 ms, 100 MB", 100 * MB, "--rate 1Gbit --rtt 25ms"),
    ("the same, loss 1e-4", 100 * MB, "--rate 1Gbit --rtt 25ms --loss 0.01%"),
    ("the same, loss 1e-3", 100 * MB, "--rate 1Gbit --rtt 25ms --loss 0.1%"),
    ("the same, loss 1e-2", 100 * MB, "--rate 1Gbit --rtt 25ms --loss 1%"),
    ("the same, no loss, 1 MB", 1 * MB, "--rate 1Gbit --rtt 25ms"),
    ("50 Mbit/s, 30 ms +- 3 ms, 20 MB", 20 * MB, "--rate 50Mbit --rtt 30ms --vary uniform:3ms/30ms"),
    ("64 kbit/s, 100 ms, 150 kB", 150_000, "--rate 64kbit --rtt 100ms"),
)


def run(programs):
    """Prints seconds by path and program. The programs take turns."""
    contestants = {"farwrite send": ends.move}
    if shutil.which("rsync"):
        if shutil.which("sshd") and shutil.which("ssh"):
            contestants["rsync over ssh, cubic"] = _rsync_over_ssh
        if "bbr" in programs.congestion_controls:
            contestants["rsync daemon, bbr"] = lambda *args: ends.rsync(*args, "bbr", LIMIT_S)
    if programs.quinn:
        contestants["quinn, cubic"] = lambda *args: _quinn(*args, "cubic")
        contestants["quinn, bbr"] = lambda *args: _quinn(*args, "bbr")
    rows = []
    for name, size, options in ROWS:
        size = max(100_000, int(size * min(1.0, programs.scale)))
        taken = {contestant: [] for contestant in contestants}
        late = []
        for seed in range(programs.runs):
            for contestant, transfer in contestants.items():
                with programs.path(*options.split(), "--seed", seed) as path:
                    taken[contestant].append(_seconds(transfer, programs, path, programs.file(size)))
                    late.append(ends.lateness(path.stop()))
        rows.append([name, *map(_median, taken.values()), ends.shown(*late)])
    table.show(
        "Seconds for a file, from the start of the command to its end",
        "1500-byte packets, offloads, queue of one round trip (four packets at least), loss both ways, files in "
        "memory, an unknown\npath. Medians. farwrite send: encrypted, verified. rsync over ssh: encrypted. rsync daemon: in clear. "
        "quinn: the bytes\nalone, encrypted, not written to a "
        f"file. >: stopped after {LIMIT_S:g} s. -: broke off. Late: the worst run's lateness of\nthe link.",
        ["path", *contestants, "late"], rows)


def _seconds(transfer, programs, path, file):
    """Returns the seconds of a transfer; infinity if it was stopped, None if it broke off."""
    try:
        return transfer(programs, path, file)
    except subprocess.TimeoutExpired:
        return float("inf")
    except ends.Failed:
        return None


def _median(seconds):
    if None in seconds:
        return None
    median = statistics.median(seconds)
    return f">{LIMIT_S:g}" if median == float("inf") else median


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
