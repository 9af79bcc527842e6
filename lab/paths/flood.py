"""A transfer while a stranger floods the receiver's port."""

import contextlib
import pathlib
import statistics
import tempfile
import time

import table
from lib.nat import B, Nat
from lib.nat_transfer import PORT, Transfer

SIZE = 100_000_000
RATE = "200Mbit"


def run(programs):
    """Prints the time of a transfer without and with the flood."""
    size = int(SIZE * min(1.0, programs.scale))
    rows = []
    for flooded in (False, True):
        times, rates = zip(*(_one(programs, size, flooded) for _ in range(programs.runs)))
        seconds = statistics.median(times)
        quiet = seconds if not flooded else rows[0][1]
        rows.append(["flooded" if flooded else "quiet", seconds, quiet / seconds,
                     f"{statistics.median(rates) / 1e3:.0f}"])
    table.show(
        "A transfer while a stranger sends small packets to the receiver's port",
        f"{size / 1e6:g} MB at {RATE} between namespaces, medians of {programs.runs}. Packets: all that reach the "
        "receiver's machine, in thousands per second.",
        ["", "seconds", "of the quiet rate", "packets"], rows)


def _one(programs, size, flooded):
    """Returns the seconds of a transfer, and the packets per second at its receiver."""
    with Nat() as nat, contextlib.ExitStack() as stack:
        nat.route_openly()
        where = stack.enter_context(tempfile.TemporaryDirectory(dir=programs.directory))
        if flooded:
            stack.enter_context(nat.flood(PORT))
        transfer = Transfer(nat, programs.farwrite, pathlib.Path(where), f"{B}:{PORT}", "--rate",
                            RATE, size=size)
        before, start = nat.b.received_packets("far"), time.monotonic()
        problems, _ = transfer.finish(300)
        seconds = time.monotonic() - start
        rate = (nat.b.received_packets("far") - before) / seconds
    if problems:
        raise RuntimeError(f"the transfer failed: {problems}")
    return seconds, rate
