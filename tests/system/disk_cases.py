"""The `farwrite` program with disks that stall, return errors or are full, at either end."""

import contextlib
import errno
import os
import random
import signal
import subprocess
import time

from lib.disk import Disk
from lib.ends import Ends
from lib.veth import CommandFailed, Veth, sh, until

# Time for which an end waits for a silent peer here, in seconds. Each end sends something every
# second, but a busy machine may delay it.
TIMEOUT = 3
# Maximum time until an end knows of an event at the other end, in seconds: the timeout, with room
# for a busy machine. Disks stay blocked for longer, so an end that waits for its disk exceeds it.
SOON = 20
PORT = 4792


def run(report, programs, directory):
    """Runs all cases."""
    for number, (title, case) in enumerate((_FAULTY | _PLAIN).items()):
        if title in _FAULTY and not os.path.exists("/dev/fuse"):
            report.skip(f"disks: {title}", "there is no /dev/fuse")
            continue
        where = directory / f"disk-{number}"
        where.mkdir()
        with report.case(f"disks: {title}"):
            case(report, Place(programs, where))


class Place:
    """The directory of one case, with the programs that it uses."""

    def __init__(self, programs, where):
        self.where = where
        self._program = str(programs / "farwrite")
        self._disk = str(programs / "farwrite-disk")

    def ends(self, timeout=TIMEOUT):
        """Returns both ends of transfers (see `Ends`)."""
        return Ends(self._program, self.where, timeout)

    def disk(self, name, *traits):
        """Returns a disk with faults (see `Disk`)."""
        return Disk(self._disk, self.where / name, *traits)

    def file(self, name, size):
        """Makes a file to send."""
        path = self.where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
        return path

    def inbox(self, name="inbox"):
        """Makes a directory to receive into."""
        path = self.where / name
        path.mkdir()
        return path


def _differs(sent, received):
    if not received.is_file():
        return [f"{received.name} did not arrive"]
    same = sent.read_bytes() == received.read_bytes()
    return [] if same else [f"{received.name} has other bytes than were sent"]


def _parts(directory):
    return [path.name for path in directory.rglob("*.part")]


def _ended(receiver, sender, codes=(0, 0)):
    """Returns the results of both ends, and what is wrong with them. `codes` are the expected exit
    statuses of receiver and sender."""
    received, sent = receiver.end(), sender.end()
    problems = received.problems("recv", codes[0]) + sent.problems("send", codes[1])
    return received, sent, problems


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
        """Waits until the disk stalls."""
        until(lambda: self.disk.waiting(self.operation), 60, f"the disk holds {self.operation} up")

    def problems(self):
        """Returns what went wrong. The end with the stalled disk and its peer must each name that
        disk once."""
        received, sent, problems = _ended(self.receiver, self.sender)
        own, peer = (received, sent) if self.end == "recv" else (sent, received)
        for ended, disk in ((own, "this machine's disk"), (peer, "the peer's disk")):
            warnings = ended.warnings("disk")
            if self.rate is None and (len(warnings) != 1 or disk not in warnings[0]):
                problems.append(f"one warning of {disk} expected: {warnings}")
        return problems + _differs(self.sent, self.received)


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
            problems += _differs(other, disk.backing / "other")
            if not disk.waiting(operation):
                problems.append(f"{operation} is not blocked any more")
            report.check("the next transfer succeeds while that disk operation is still blocked",
                         problems)
            disk.heal(operation)
            # If the disk's thread has nothing to remove, its end is not visible from outside. So
            # wait a moment.
            time.sleep(0.5)
            with contextlib.suppress(TimeoutError):
                until(lambda disk=disk: not _parts(disk.backing), SOON, "no part is left")
            problems = [f"left: {name}" for name in _parts(disk.backing)]
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
        problems = receiver.end().problems("recv", 130) + _parts(disk.backing)
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
        until(lambda: not disk.waiting("rename") and not _parts(disk.backing), SOON,
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
        problems = received.problems("recv", 5) + _parts(place.where)
        if received.waited > SOON:
            problems.append(f"the receiver ended after {received.waited:.1f} s")
        if outcome["exit_code"] != 130:
            problems.append(f"the sender reports {outcome}")
        report.check(f"both ends say so within {SOON} s", problems)
        disk.heal("read")
        code = sender.end().code
        report.check("when the disk goes on, the sender has ended",
                     [] if code == 130 else [f"exit code {code}"])


def _refused_attributes(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        disk.fail("chmod", errno.EPERM)
        disk.fail("utimens", errno.EPERM)
        tree = place.file("tree/file", 100_000).parent
        place.file("tree/another", 100)
        receiver = ends.recv(disk.path, "--once")
        received, _, problems = _ended(receiver, ends.send(receiver, tree))
        for name in ("file", "another"):
            problems += _differs(tree / name, disk.backing / "tree" / name)
        for word in ("permissions", "time"):
            found = [line for line in received.warnings(word) if "tree/" in line]
            if len(found) != 1:
                problems.append(f"one warning of {word} of files expected: {received.errors}")
        report.check("files arrive, with one warning for all their permissions and one for all "
                     "their times", problems)


def _broken_spot(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        disk.fail("write", errno.EIO, "/bad")
        names = ["tree/a", "tree/bad/b", "tree/c"]
        for name in names:
            place.file(name, 200_000)
        receiver = ends.recv(disk.path, "--once")
        sender = ends.send(receiver, place.where / "tree")
        received, sent, problems = _ended(receiver, sender, (6, 9))
        for name in ("tree/a", "tree/c"):
            problems += _differs(place.where / name, disk.backing / name)
        report.check("a file that cannot be written fails with exit codes 6 and 9, the others "
                     "arrive", problems)
        problems = _parts(disk.backing)
        for ended in (received, sent):
            result = ended.outcomes[-1]["result"] or {}
            listed = [(failure["path"], failure["cause"]) for failure in result["failures"]]
            if listed != [("tree/bad/b", "unwritable")] or result["failed_files"] != 1:
                problems.append(f"failures: {listed}")
            if (result["files"], result["bytes"]) != (2, 400_000):
                problems.append(f"{result['files']} files of {result['bytes']} bytes arrived")
        report.check("both ends list it, and count what arrived", problems)


def _errors_at_close(report, place):
    """Network file systems store written data when the file is closed, and report errors then."""
    with place.ends() as ends, place.disk("disk") as disk:
        tree = place.file("tree/file", 100_000).parent
        place.file("tree/bad/file", 100_000)
        disk.fail("flush", errno.EIO, "/bad")
        receiver = ends.recv(disk.path, "--once")
        received, _, problems = _ended(receiver, ends.send(receiver, tree), (6, 9))
        failed = [failure["path"] for failure in received.outcomes[-1]["result"]["failures"]]
        if failed != ["tree/bad/file"]:
            problems.append(f"failed: {failed}")
        problems += _differs(tree / "file", disk.backing / "tree/file")
        problems += [f"left: {path}" for path in disk.backing.glob("tree/bad/*")]
        report.check("a file that cannot be closed fails with exit codes 6 and 9", problems)
        disk.fail("flush", errno.EDQUOT)
        receiver = ends.recv(disk.path, "--once")
        problems = _ended(receiver, ends.send(receiver, place.file("file", 1000)), (8, 8))[2]
        problems += [f"left: {name}" for name in ("file", *_parts(disk.backing))
                     if (disk.backing / name).exists()]
        report.check("one that exceeds the user's share of the disk ends the transfer with exit "
                     "code 8", problems)


def _errors_at_sync(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        for name in ("tree/a/file", "tree/b/file"):
            place.file(name, 100_000)
        older = disk.backing / "tree/b/file"
        older.parent.mkdir(parents=True)
        older.write_bytes(b"older")
        for path_part, title, left in (
                ("/tree/b/.farwrite", "bytes cannot be made durable fails, and the older one stays",
                 b"older"),
                ("/tree/b/directory", "name cannot be made durable fails, and keeps the name",
                 (place.where / "tree/b/file").read_bytes())):
            disk.fail("fsync", errno.EIO, path_part)
            receiver = ends.recv(disk.path, "--once")
            received, _, problems = _ended(receiver, ends.send(receiver, place.where / "tree"), (6, 9))
            result = received.outcomes[-1]["result"] or {"failures": []}
            failed = [failure["path"] for failure in result["failures"]]
            if failed != ["tree/b/file"]:
                problems.append(f"failed: {failed}")
            problems += _differs(place.where / "tree/a/file", disk.backing / "tree/a/file")
            problems += [f"left: {name}" for name in _parts(disk.backing)]
            if older.read_bytes() != left:
                problems.append(f"tree/b/file has {len(older.read_bytes())} bytes")
            report.check(f"a file whose {title}", problems)
            disk.heal("fsync")


def _new_directory(report, place):
    """The receiver's own directory may have been made just before."""
    with place.ends() as ends, place.disk("disk") as disk:
        inbox = disk.path / "outer/new"
        inbox.mkdir(parents=True)
        file = place.file("file", 1000)
        disk.block("fsync", "/outer/directory")
        receiver = ends.recv(inbox, "--once")
        sender = ends.send(receiver, file)
        until(lambda: disk.waiting("fsync"), 60, "the directory around is synced")
        problems = [f"already there: {path}" for path in inbox.iterdir()]
        disk.heal("fsync")
        problems += _ended(receiver, sender)[2] + _differs(file, disk.backing / "outer/new/file")
        report.check("the name of the receiver's directory is synced before files come", problems)
        disk.fail("fsync", errno.EIO, "/outer/directory")
        receiver = ends.recv(inbox, "--once")
        problems = _ended(receiver, ends.send(receiver, file), (6, 9))[2]
        report.check("and if it cannot be synced, the transfer ends with exit codes 6 and 9", problems)


def _full_at_sync(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        for name in "abc":
            place.file(f"tree/{name}/file", 1000)
        disk.fail("fsync", errno.ENOSPC, "/tree/b/.farwrite")
        receiver = ends.recv(disk.path, "--once")
        received, sent, problems = _ended(receiver, ends.send(receiver, place.where / "tree"), (8, 8))
        problems += [f"left: {name}" for name in _parts(disk.backing)]
        if (disk.backing / "tree/b/file").exists():
            problems.append("the file has its name")
        for ended in (received, sent):
            arrived = (ended.outcomes[-1]["result"] or {}).get("arrived")
            if arrived != ["tree/a/file", "tree/c/file"]:
                problems.append(f"arrived: {arrived}")
        report.check("a disk that is full when a file is made durable ends the transfer with exit code "
                     "8, and both ends name the files that arrived", problems)


def _no_room_for_directories(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        disk.fail("mkdir", errno.ENOSPC)
        receiver = ends.recv(disk.path, "--once")
        sender = ends.send(receiver, place.file("tree/file", 1000).parent)
        report.check("both ends end with exit code 8", _ended(receiver, sender, (8, 8))[2])


def _full(report, place):
    inbox = place.inbox()
    sh("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(inbox))
    try:
        with place.ends() as ends:
            names = ("older", "small", "large")
            (inbox / "older").write_bytes(b"older")
            files = [place.file(name, size) for name, size in zip(names, (1000, 1000, 8_000_000))]
            receiver = ends.recv(inbox, "--once")
            # The file that is to be replaced comes last, when the disk is full.
            sender = ends.send(receiver, files[1], files[2], files[0])
            received, sent, problems = _ended(receiver, sender, (8, 8))
            kinds = [ended.outcomes[-1]["error"]["kind"] for ended in (received, sent)]
            if kinds != ["full", "full"]:
                problems.append(f"the errors are of the kinds {kinds}")
            problems += [f"left: {name}" for name in _parts(inbox)]
            if (inbox / "older").read_bytes() != b"older":
                problems.append("older was changed")
        report.check("both ends say so, the older file is what it was, and no part is left",
                     problems)
    finally:
        subprocess.run(["umount", "-l", str(inbox)], check=False)


def _names_without_case(report, place, *traits):
    with place.ends() as ends, place.disk("disk", "--ignore-case", *traits) as disk:
        for name in ("A", "a"):
            place.file(f"tree/{name}", 100_000)
        receiver = ends.recv(disk.path, "--once")
        received, _, problems = _ended(receiver, ends.send(receiver, place.where / "tree"), (6, 9))
        failed = [failure["path"] for failure in received.outcomes[-1]["result"]["failures"]]
        if failed not in (["tree/A"], ["tree/a"]):
            problems.append(f"failed: {failed}")
        arrived = [path.name for path in (disk.backing / "tree").iterdir()]
        if len(arrived) != 1 or f"tree/{arrived[0]}" in failed:
            problems.append(f"there are {arrived}, failed: {failed}")
        else:
            name = f"tree/{arrived[0]}"
            problems += _differs(place.where / name, disk.backing / name)
        report.check("of the files A and a one arrives, and the other fails by name", problems)
        for name in ("D", "d"):
            place.file(f"dirs/{name}/{name}", 1000)
        receiver = ends.recv(disk.path, "--once")
        received, _, problems = _ended(receiver, ends.send(receiver, place.where / "dirs"), (6, 9))
        if not any("D" in line and "d" in line for line in received.errors):
            problems.append(f"the directories are not named: {received.errors}")
        problems += [f"arrived: {path}" for path in disk.backing.glob("dirs/*/*")]
        report.check("directories D and d are refused", problems)


def _names_without_inodes(report, place):
    _names_without_case(report, place, "--unstable-inodes")
    with place.ends() as ends, place.disk("renamed", "--ignore-case", "--unstable-inodes") as disk:
        first = place.file("ren/Photos/file", 1000)
        place.file("ren/gone", 1000)
        problems = _mirror(place, ends, disk)
        photos = first.parent.rename(first.parent.with_name("photos"))
        (place.where / "ren/gone").unlink()
        problems += _mirror(place, ends, disk, "--dry-run")
        problems += _mirror(place, ends, disk)
        arrived = disk.path / "ren/photos/file"
        problems += _differs(photos / "file", arrived)
        if not (disk.path / "ren/gone").exists():
            problems.append("something was removed beside a name that is spelled otherwise")
        (photos / "new").write_bytes(b"new")
        place.file("ren/gone", 1000)
        problems += _mirror(place, ends, disk)
        problems += _differs(photos / "new", arrived.with_name("new"))
        report.check("a directory with another spelling stays, with a warning", problems)


def _coarse_times(report, place):
    with place.ends() as ends, place.disk("disk", "--coarse-times") as disk:
        sent = [place.file(f"tree/{name}", 1000) for name in ("a", "old")]
        os.utime(sent[0], ns=(0, 1_000_000_001_000_000_007))
        os.utime(sent[1], ns=(0, 7_000_000_000))
        problems = []
        for unchanged, changed in ((0, 2), (2, 0), (1, 1)):
            if changed == 1:
                # Less than the disk can tell apart from the one before, but not equal to it.
                os.utime(sent[0], ns=(0, 1_000_000_002_000_000_000))
            receiver = ends.recv(disk.path, "--once")
            received, ended, more = _ended(receiver, ends.send(receiver, place.where / "tree"))
            result = ended.outcomes[-1]["result"]
            problems += more
            if (result["unchanged_files"], result["files"]) != (unchanged, changed):
                problems.append(f"{result['unchanged_files']} unchanged, {unchanged} expected")
            told = [line for line in result["warnings"] if "modification time of 2 files" in line]
            if len(told) != (1 if changed == 2 else 0):
                problems.append(f"warnings: {result['warnings']}")
        report.check("files are sent once, and one warning says that times differ", problems)


def _mirror(place, ends, disk, *more):
    """Mirrors `ren` to a disk. Returns what is wrong. The sender must warn where names differ."""
    receiver = ends.recv(disk.path, "--allow-delete", *(() if more else ["--once"]))
    sent = ends.send(receiver, place.where / "ren", "--delete", *more).end()
    receiver.process.terminate()
    receiver.end()
    problems = sent.problems("send", 0)
    listed = sorted(path.name for path in (disk.backing / "ren").iterdir())
    differ = not set(path.name for path in (place.where / "ren").iterdir()) <= set(listed)
    warnings = sent.outcomes[-1]["result"]["warnings"]
    if any("nothing was removed" in line for line in warnings) != differ:
        problems.append(f"with {listed}, the warnings are {warnings}")
    return problems


def _mirror_over_layers(report, place):
    """On an overlay, files of the lower layer have another device than their directory."""
    lower, upper, inbox = (place.inbox(name) for name in ("lower", "upper", "inbox"))
    with contextlib.ExitStack() as stack:
        def mount(kind, at, *options):
            sh("mount", "-t", kind, *options, kind, str(at))
            stack.callback(subprocess.run, ["umount", "-l", str(at)], check=False)

        mount("tmpfs", lower)
        mount("tmpfs", upper)
        for path in (lower / "tree/gone", lower / "tree/mounted", upper / "files", upper / "work"):
            path.mkdir(parents=True)
        for name in ("file", "extra", "gone/extra"):
            (lower / "tree" / name).write_bytes(b"older")
        layers = f"lowerdir={lower},upperdir={upper / 'files'},workdir={upper / 'work'},xino=off"
        try:
            mount("overlay", inbox, "-o", layers)
        except CommandFailed as error:
            report.skip("disks: a mirror on an overlay", str(error))
            return
        tree = inbox / "tree"
        mount("tmpfs", tree / "mounted")
        (tree / "mounted/stays").write_bytes(b"stays")
        devices = [path.lstat().st_dev for path in (tree, tree / "extra", tree / "mounted")]
        report.check("directory, file and mount point have three devices",
                     None if len(set(devices)) == 3 else f"{devices}")
        with place.ends() as ends:
            _mirror_as_told(report, ends, inbox, place.file("tree/file", 1000))


def _mirror_as_told(report, ends, inbox, sent):
    receiver, before = ends.recv(inbox, "--allow-delete", "--once"), _below(inbox)
    told = ends.send(receiver, "--delete", "--dry-run", sent.parent).end()
    problems = told.problems("send", 0)
    if _below(inbox) != before:
        problems.append(f"it changes something: {_below(inbox)}")
    _, done, more = _ended(receiver, ends.send(receiver, "--delete", sent.parent))
    problems += more
    report.check("a dry run and a run succeed", problems)
    left = _below(inbox)
    problems = _differs(sent, inbox / "tree/file")
    if left != ["tree/", "tree/file", "tree/mounted/", "tree/mounted/stays"]:
        problems.append(f"left: {left}")
    report.check("extra files of the lower layer go, and what is mounted stays", problems)
    told, done = (ended.outcomes[-1]["result"] for ended in (told, done))
    listed, removed = sorted(told["deleted_paths"]), sorted(set(before) - set(left))
    counts = [told["deleted_files"], done["deleted_files"]]
    report.check("the dry run lists what was removed",
                 None if listed == removed and counts == [len(removed)] * 2 else f"{listed}, {removed}, {counts}")


def _below(directory):
    """Returns the paths below a directory, those of directories with `/` at the end."""
    paths = [(path.relative_to(directory), path.is_dir()) for path in directory.rglob("*")]
    return sorted(f"{path}/" if is_directory else str(path) for path, is_directory in paths)


def _plain(report, place):
    with place.ends() as ends, place.disk("disk", "--plain-rename", "--no-locks") as disk:
        sent = place.file("tree/file", 300_000)
        received = disk.backing / "tree/file"
        received.parent.mkdir()
        received.write_bytes(b"older")
        left = disk.backing / "tree/.farwrite-0123456789abcdef-0123456789abcdef.part"
        left.write_bytes(b"left")
        receiver = ends.recv(disk.path, "--once")
        _, _, problems = _ended(receiver, ends.send(receiver, sent.parent))
        problems += _differs(sent, received)
        if _parts(disk.backing) != [left.name]:
            problems.append(f"a part that may be in use was touched: {_parts(disk.backing)}")
        report.check("a file replaces an older one, and parts of others stay", problems)


def _orphans(report, place):
    with place.ends() as ends:
        inbox = place.inbox()
        killed, living = ends.recv(inbox), ends.recv(inbox, "--once")
        # These transfers take 6 s, which is longer than the events in the meantime.
        slow = ("--rate", "10Mbit")
        ends.send(killed, *slow, place.file("orphan", 7_500_000))
        sent = place.file("whole", 7_500_000)
        sender = ends.send(living, *slow, sent)
        until(lambda: len(_parts(inbox)) == 2, 60, "two transfers under way")
        killed.signal(signal.SIGKILL)
        killed.process.wait()
        problems = [] if len(_parts(inbox)) == 2 else [f"too early: {_parts(inbox)}"]
        small = place.file("small", 1000)
        receiver = ends.recv(inbox, "--once")
        problems += _ended(receiver, ends.send(receiver, small))[2]
        if len(_parts(inbox)) != 1 or not living.runs():
            problems.append(f"left: {_parts(inbox)}; the other receiver runs: {living.runs()}")
        report.check("the next receiver removes the part of the killed one, and not that of a "
                     "third, which runs", problems)
        problems = _ended(living, sender)[2] + _differs(sent, inbox / "whole") + _parts(inbox)
        report.check("the file of the third arrives", problems)


@contextlib.contextmanager
def _outage(veth):
    """Drops all packets at both ends while a `with` block runs."""
    rule = ("add table netdev cut; add chain netdev cut in {{ type filter hook ingress device {} "
            "priority 0; policy drop; }}")
    for host in (veth.a, veth.b):
        host.run("nft", rule.format(host.dev))
    yield
    for host in (veth.a, veth.b):
        host.run("nft", "delete table netdev cut")


def _outage_before_verdict(report, place):
    """The last verdict is sent in an outage."""
    seconds = 8
    with place.ends(seconds + 2) as ends, Veth(1500) as veth, place.disk("disk") as disk:
        file = place.file("file", 300_000)
        disk.block("rename", "/file")
        receiver = ends.recv(disk.path, "--once", at=f"{veth.b.v4}:{PORT}", host=veth.b)
        sender = ends.send(receiver, file, host=veth.a)
        until(lambda: disk.waiting("rename"), 60, "a rename is blocked")
        with _outage(veth):
            disk.heal("rename")
            time.sleep(seconds)
        received, _, problems = _ended(receiver, sender)
        problems += received.warnings("may not know") + _differs(file, disk.backing / "file")
    report.check("both ends report success", problems)


def _link_local(report, place):
    with Veth(1500) as veth, place.ends() as ends:
        sent, inbox = place.file("file", 300_000), place.inbox()
        # The interfaces have the same name in both namespaces. Give one of them another name, to
        # show which of the names is used.
        veth.a.link("down")
        veth.a.ip("link", "set", veth.a.dev, "name", "other0")
        veth.a.dev = "other0"
        veth.a.link("up")
        for host in (veth.a, veth.b):
            until(lambda host=host: _link_local_of(host), 60, "a link-local address")
        address = _link_local_of(veth.b)
        receiver = ends.recv(inbox, "--once", at=f"[{address}%{veth.b.dev}]:{PORT}", host=veth.b)
        sender = ends.send(f"[{address}%{veth.a.dev}]:{PORT}", sent, host=veth.a)
        problems = _ended(receiver, sender)[2] + _differs(sent, inbox / "file")
    report.check(f"recv on [fe80::...%{veth.b.dev}], send to [fe80::...%{veth.a.dev}]: the file "
                 "arrives", problems)


def _link_local_of(host):
    """Returns the link-local address of a host, once the address is usable."""
    lines = host.ip("-6", "-o", "addr", "show", "dev", host.dev, "scope", "link").splitlines()
    usable = [line.split()[3].split("/")[0] for line in lines if "tentative" not in line]
    return usable[0] if usable else None


def _modes(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        tree = disk.backing / "tree"
        tree.mkdir(mode=0o555)
        disk.block("write")
        receiver = ends.recv(disk.path)
        sender = ends.send(receiver, place.file("tree/file", 300_000).parent)
        until(lambda: disk.waiting("write"), 60, "a write is blocked")
        opened = tree.stat().st_mode & 0o200
        problems = [] if opened else ["the directory was not opened up: this shows nothing"]
        sender.signal(signal.SIGKILL)
        receiver.outcome(60)
        disk.heal("write")
        with contextlib.suppress(TimeoutError):
            until(lambda: tree.stat().st_mode & 0o7777 == 0o555, SOON, "read-only")
        mode = tree.stat().st_mode & 0o7777
        if mode != 0o555 or list(tree.iterdir()):
            problems.append(f"its mode is {mode:o}, with {list(tree.iterdir())} in it")
        report.check("after a transfer that failed it is read-only again", problems)


# Cases that need FUSE.
_FAULTY = {
    "a disk that does not answer for long": _stalls,
    "a sender that goes away while the receiver's disk is blocked": _sender_stopped,
    "a receiver that is interrupted while its disk is blocked": _receiver_stopped,
    "a sender that is interrupted while the receiver's rename is blocked": _stopped_at_rename,
    "a sender that is interrupted while its disk is blocked": _blocked_sender_stopped,
    "a file system without permissions and times": _refused_attributes,
    "a bad spot": _broken_spot,
    "errors that come when a file is closed": _errors_at_close,
    "errors that come when a file is synced": _errors_at_sync,
    "a new directory to receive into": _new_directory,
    "a disk that is full when a file is synced": _full_at_sync,
    "no room for directories": _no_room_for_directories,
    "an outage of 8 s when the last file gets its name": _outage_before_verdict,
    "names without case": _names_without_case,
    "times that the disk cannot store": _coarse_times,
    "names without case and without stable inode numbers": _names_without_inodes,
    "no locks, and no rename that keeps what is there": _plain,
    "a read-only directory": _modes,
}
# Cases that do not need FUSE.
_PLAIN = {
    "a full disk": _full,
    "a mirror on an overlay with a mount point": _mirror_over_layers,
    "a receiver that was killed": _orphans,
    "link-local addresses": _link_local,
}
