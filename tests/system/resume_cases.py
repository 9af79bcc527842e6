"""Transfers that go on after one end was killed.

FARWRITE_KILLS sets how often each end is killed, twice without it."""

import os
import random
import shutil
import signal
import time

from lib.ends import Ends, free_address

# Names, and the sizes of their files.
SIZES = {f"tree/small/{n:03}": 5000 + n for n in range(100)} | {
    "tree/a": 20_000_000, "tree/b": 3_000_000, "tree/large": 60_000_000, "tree/z/last": 20_000_000}
TOTAL = sum(SIZES.values())
# What may be sent again.
AGAIN = 16 << 20
TIMEOUT = 30
# The transfer takes two seconds.
RATE = ("--rate", "400Mbit")


def run(report, program, directory):
    """Runs all cases."""
    where = directory / "resume"
    where.mkdir()
    for name, size in SIZES.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    kills = int(os.environ.get("FARWRITE_KILLS", "2"))
    with report.case("resume"), Ends(program, where, TIMEOUT) as ends:
        for which in ("sender", "receiver"):
            problems, worst, early = [], 0, 0
            for number in range(kills):
                # Also before the first byte, and after the last one.
                after = draw.uniform(0.05, 2.5)
                found, again, is_early = _kill(ends, where, which, after)
                problems += [f"seed {seed}, kill {number} after {after:.2f} s: {text}"
                             for text in found]
                worst, early = max(worst, again), early + is_early
            title = (f"{kills} times, the {which} is killed, and the same command goes on: at most "
                     f"{worst} bytes came twice, {early} kills in transit")
            report.check(title, problems[:5])


def _kill(ends, where, which, after):
    """Kills one end some time after the start, and gives the same commands again. Returns what is wrong, how
    many bytes that had arrived came twice, and whether the end was killed in transit."""
    inbox = where / "inbox"
    shutil.rmtree(inbox, ignore_errors=True)
    inbox.mkdir()
    address = free_address()
    receiver = ends.recv(inbox, at=address)
    sender = ends.send(receiver, *RATE, "--json-lines", where / "tree")
    time.sleep(after)
    is_running = sender.runs()
    killed = sender if which == "sender" else receiver
    killed.signal(signal.SIGKILL)
    killed.process.wait()
    first = sender.end()
    arrived = max((line.get("done_bytes", 0) for line in first.outcomes), default=0)
    if which == "receiver":
        receiver = ends.recv(inbox, at=address)
    # At the sender, at once: the receiver may still be busy with the first transfer.
    sent = ends.send(receiver, where / "tree").end()
    receiver.signal(signal.SIGINT)
    receiver.end()
    problems = sent.problems("send", 0)
    if problems:
        return problems, 0, is_running
    result = sent.outcomes[-1]["result"]
    crossed = result["bytes"] - result["resumed_bytes"]
    again = max(0, crossed - (TOTAL - arrived))
    if again > AGAIN:
        problems.append(f"{again} bytes came twice, {arrived} had arrived: {result}")
    problems += [f"{name} differs" for name in SIZES
                 if (inbox / name).read_bytes() != (where / name).read_bytes()][:3]
    # A receiver that is killed between making a file and naming it leaves an empty one (docs/security.md).
    problems += [f"left: {path}" for path in inbox.rglob(".farwrite-*.part")]
    return problems, again, is_running
