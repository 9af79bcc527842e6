"""The `farwrite` program with a disk that blocks, or that is slow, at either end. `disk_cases.py` runs these cases."""

import contextlib
import signal
import time

from lib.place import SOON, TIMEOUT, both_ended, differs, parts
from lib.veth import until

# Name of the stall, the end whose disk stalls, the operation, and its rate (`None`: it is blocked).
_STALLS = [
    ("the receiver's write blocks", "recv", "write", None),
    ("the receiver's close blocks", "recv", "flush", None),
    ("the receiver's mkdir blocks", "recv", "mkdir", None),
    ("the receiver's rename blocks", "recv", "rename", None),
    ("the receiver's disk writes a part of a segment in more than the timeout", "recv", "write",
     65_000),
    ("the sender's read blocks", "send", "read", None),
    ("the sender's disk reads a part of a segment in more than the timeout", "send", "read",
     65_000),
]


class Stall:
    """A transfer in which the disk of one end stalls."""

    def __init__(self, place, stack, number, end, operation, rate):
        self.end, self.operation, self.rate = end, operation, rate
        ends = stack.enter_context(place.ends())
        self.disk = stack.enter_context(place.disk(f"stall-{number}"))
        self.sent = place.file(f"tree-{number}/file", 600_000)
        inbox = place.inbox(f"inbox-{number}")
        tree = self.sent.parent
        if end == "recv":
            self.received = self.disk.backing / tree.name / "file"
            inbox = self.disk.path
        else:
            self.received = inbox / tree.name / "file"
            (self.disk.backing / tree.name).mkdir()
            self.sent = self.sent.rename(self.disk.backing / tree.name / "file")
            tree = self.disk.path / tree.name
        if rate is None:
            # The temporary name is given by a rename too.
            self.disk.block(operation, "/file" if operation == "rename" else "")
        else:
            self.disk.slow(operation, rate)
        self.receiver = ends.recv(inbox, "--once")
        self.sender = ends.send(self.receiver, tree)

    def wait(self):
        """Wait until the disk stalls."""
        until(lambda: self.disk.waiting(self.operation), 60, f"the disk holds {self.operation} up")

    def problems(self):
        """Return what went wrong. The end with the stalled disk and its peer must each name that
        disk once."""
        received, sent, problems = both_ended(self.receiver, self.sender)
        own, peer = (received, sent) if self.end == "recv" else (sent, received)
        for ended, disk in ((own, "this machine's disk"), (peer, "the peer's disk")):
            warnings = ended.warnings("disk")
            if self.rate is None and (len(warnings) != 1 or disk not in warnings[0]):
                problems.append(f"one warning of {disk} expected: {warnings}")
        return problems + differs(self.sent, self.received)


def _stalls(report, place):
    with contextlib.ExitStack() as stack:
        stalls = [Stall(place, stack, number, *stall[1:]) for number, stall in enumerate(_STALLS)]
        for stall in stalls:
            stall.wait()
        time.sleep(3 * TIMEOUT)
        for stall in stalls:
            if stall.rate is None:
                stall.disk.heal(stall.operation)
        for (title, _, _, rate), stall in zip(_STALLS, stalls):
            title += f" for {3 * TIMEOUT} s" if rate is None else ""
            report.check(f"{title}: both ends wait, and the file arrives", stall.problems())


# How a sender disappears, by which signal, and which operation is blocked at the receiver.
_GOODBYES = [
    ("is interrupted", signal.SIGINT, "write"),
    ("is killed", signal.SIGKILL, "write"),
    ("is interrupted", signal.SIGINT, "mkdir"),
    ("is killed", signal.SIGKILL, "mkdir"),
    ("stands still", signal.SIGSTOP, "mkdir"),
]


def _sender_stopped(report, place):
    for how, number, operation in _GOODBYES:
        name = f"{number.name}-{operation}"
        with place.ends() as ends, place.disk(f"disk-{name}") as disk:
            older = disk.backing / "tree/data"
            older.parent.mkdir()
            older.write_bytes(b"older")
            tree = place.file(f"{name}/tree/data", 3_000_000).parent
            place.file(f"{name}/tree/new/data", 1000)
            disk.block(operation, "/tree/")
            receiver = ends.recv(disk.path)
            sender = ends.send(receiver, tree)
            until(lambda disk=disk, operation=operation: disk.waiting(operation), 60,
                  f"{operation} is blocked")
            sender.signal(number)
            start = time.monotonic()
            outcome = receiver.outcome(60)
            took = time.monotonic() - start
            problems = [] if took <= SOON else [f"the receiver noticed after {took:.1f} s"]
            if outcome["exit_code"] != 5:
                problems.append(f"the receiver reports {outcome}")
            report.check(f"the sender {how} while the receiver's {operation} is blocked: the "
                         f"receiver notices within {SOON} s", problems)
            other = place.file(f"{name}/other", 100_000)
            problems = ends.send(receiver, other).end().problems("send", 0)
            problems += differs(other, disk.backing / "other")
            if not disk.waiting(operation):
                problems.append(f"{operation} is not blocked any more")
            report.check("the next transfer succeeds while that disk operation is still blocked",
                         problems)
            disk.heal(operation)
            # If the disk's thread has nothing to remove, its end is not visible from outside. So
            # wait a moment.
            time.sleep(0.5)
            with contextlib.suppress(TimeoutError):
                until(lambda disk=disk: not parts(disk.backing), SOON, "no part is left")
            problems = [f"left: {name}" for name in parts(disk.backing)]
            if older.read_bytes() != b"older":
                problems.append("tree/data was changed")
            report.check("when the disk goes on, the older file is what it was and no part is left",
                         problems)


def _receiver_stopped(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        older = disk.backing / "data"
        older.write_bytes(b"older")
        disk.block("write")
        receiver = ends.recv(disk.path, "--once")
        sender = ends.send(receiver, place.file("data", 3_000_000))
        until(lambda: disk.waiting("write"), 60, "a write is blocked")
        receiver.signal(signal.SIGINT)
        sent = sender.end()
        problems = sent.problems("send", 5)
        if sent.waited > SOON:
            problems.append(f"the sender ended after {sent.waited:.1f} s")
        report.check(f"the sender ends within {SOON} s", problems)
        # The kernel does not let a process end while one of its disk operations is in progress.
        disk.heal("write")
        problems = receiver.end().problems("recv", 130) + parts(disk.backing)
        if older.read_bytes() != b"older":
            problems.append("data was changed")
        report.check("when the disk goes on, the receiver has ended, the older file is what it "
                     "was, and no part is left", problems)


def _stopped_at_rename(report, place):
    """A rename is the only operation that cannot be cancelled: the kernel may be about to execute
    it."""
    with place.ends() as ends, place.disk("disk") as disk:
        older = disk.backing / "data"
        older.write_bytes(b"older")
        # The temporary name is given by a rename too.
        disk.block("rename", "/data")
        receiver = ends.recv(disk.path)
        new = place.file("data", 100_000)
        sender = ends.send(receiver, new)
        until(lambda: disk.waiting("rename"), 60, "a rename is blocked")
        sender.signal(signal.SIGINT)
        outcome = receiver.outcome(60)
        problems = [] if outcome["exit_code"] == 5 else [f"the receiver reports {outcome}"]
        if not any("may still get it" in line for line in receiver.errors):
            problems.append(f"no warning: {receiver.errors}")
        disk.heal("rename")
        until(lambda: not disk.waiting("rename") and not parts(disk.backing), SOON,
              "the disk has gone on")
        if older.read_bytes() not in (b"older", new.read_bytes()):
            problems.append("data is neither file")
        report.check("the receiver warns that one file may still get its name, and it is whole",
                     problems)


def _blocked_sender_stopped(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        place.file("file", 300_000).rename(disk.backing / "file")
        disk.block("read")
        receiver = ends.recv(place.inbox(), "--once")
        sender = ends.send(receiver, disk.path / "file")
        until(lambda: disk.waiting("read"), 60, "a read is blocked")
        sender.signal(signal.SIGINT)
        received, outcome = receiver.end(), sender.outcome(SOON)
        problems = received.problems("recv", 5) + parts(place.where)
        if received.waited > SOON:
            problems.append(f"the receiver ended after {received.waited:.1f} s")
        if outcome["exit_code"] != 130:
            problems.append(f"the sender reports {outcome}")
        report.check(f"both ends say so within {SOON} s", problems)
        disk.heal("read")
        code = sender.end().code
        report.check("when the disk goes on, the sender has ended",
                     [] if code == 130 else [f"exit code {code}"])


# Cases that need FUSE.
CASES = {
    "a disk that does not answer for long": _stalls,
    "a sender that goes away while the receiver's disk is blocked": _sender_stopped,
    "a receiver that is interrupted while its disk is blocked": _receiver_stopped,
    "a sender that is interrupted while the receiver's rename is blocked": _stopped_at_rename,
    "a sender that is interrupted while its disk is blocked": _blocked_sender_stopped,
}
