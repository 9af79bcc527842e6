"""The `farwrite` program with disks that return errors, are full or lack something, at either end."""

import contextlib
import errno
import os
import signal
import subprocess
import time

import disk_stall_cases
from lib.place import PORT, Place, SOON, both_ended, differs, parts
from lib.veth import CommandFailed, Veth, sh, until


def run(report, programs, directory):
    for number, (title, case) in enumerate((_FAULTY | _PLAIN).items()):
        if title in _FAULTY and not os.path.exists("/dev/fuse"):
            report.skip(f"disks: {title}", "there is no /dev/fuse")
            continue
        where = directory / f"disk-{number}"
        where.mkdir()
        with report.case(f"disks: {title}"):
            case(report, Place(programs, where))


def _refused_attributes(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        disk.fail("chmod", errno.EPERM)
        disk.fail("utimens", errno.EPERM)
        tree = place.file("tree/file", 100_000).parent
        place.file("tree/another", 100)
        receiver = ends.recv(disk.path, "--once")
        received, _, problems = both_ended(receiver, ends.send(receiver, tree))
        for name in ("file", "another"):
            problems += differs(tree / name, disk.backing / "tree" / name)
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
        received, sent, problems = both_ended(receiver, sender, (6, 9))
        for name in ("tree/a", "tree/c"):
            problems += differs(place.where / name, disk.backing / name)
        report.check("a file that cannot be written fails with exit codes 6 and 9, the others "
                     "arrive", problems)
        problems = parts(disk.backing)
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
        received, _, problems = both_ended(receiver, ends.send(receiver, tree), (6, 9))
        failed = [failure["path"] for failure in received.outcomes[-1]["result"]["failures"]]
        if failed != ["tree/bad/file"]:
            problems.append(f"failed: {failed}")
        problems += differs(tree / "file", disk.backing / "tree/file")
        problems += [f"left: {path}" for path in disk.backing.glob("tree/bad/*")]
        report.check("a file that cannot be closed fails with exit codes 6 and 9", problems)
        disk.fail("flush", errno.EDQUOT)
        receiver = ends.recv(disk.path, "--once")
        problems = both_ended(receiver, ends.send(receiver, place.file("file", 1000)), (8, 8))[2]
        problems += [f"left: {name}" for name in ("file", *parts(disk.backing))
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
            received, _, problems = both_ended(receiver, ends.send(receiver, place.where / "tree"), (6, 9))
            result = received.outcomes[-1]["result"] or {"failures": []}
            failed = [failure["path"] for failure in result["failures"]]
            if failed != ["tree/b/file"]:
                problems.append(f"failed: {failed}")
            problems += differs(place.where / "tree/a/file", disk.backing / "tree/a/file")
            problems += [f"left: {name}" for name in parts(disk.backing)]
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
        problems += both_ended(receiver, sender)[2] + differs(file, disk.backing / "outer/new/file")
        report.check("the name of the receiver's directory is synced before files come", problems)
        disk.fail("fsync", errno.EIO, "/outer/directory")
        receiver = ends.recv(inbox, "--once")
        problems = both_ended(receiver, ends.send(receiver, file), (6, 9))[2]
        report.check("and if it cannot be synced, the transfer ends with exit codes 6 and 9", problems)


def _full_at_sync(report, place):
    with place.ends() as ends, place.disk("disk") as disk:
        for name in "abc":
            place.file(f"tree/{name}/file", 1000)
        disk.fail("fsync", errno.ENOSPC, "/tree/b/.farwrite")
        receiver = ends.recv(disk.path, "--once")
        received, sent, problems = both_ended(receiver, ends.send(receiver, place.where / "tree"), (8, 8))
        problems += [f"left: {name}" for name in parts(disk.backing)]
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
        report.check("both ends end with exit code 8", both_ended(receiver, sender, (8, 8))[2])


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
            received, sent, problems = both_ended(receiver, sender, (8, 8))
            kinds = [ended.outcomes[-1]["error"]["kind"] for ended in (received, sent)]
            if kinds != ["full", "full"]:
                problems.append(f"the errors are of the kinds {kinds}")
            problems += [f"left: {name}" for name in parts(inbox)]
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
        received, _, problems = both_ended(receiver, ends.send(receiver, place.where / "tree"), (6, 9))
        failed = [failure["path"] for failure in received.outcomes[-1]["result"]["failures"]]
        if failed not in (["tree/A"], ["tree/a"]):
            problems.append(f"failed: {failed}")
        arrived = [path.name for path in (disk.backing / "tree").iterdir()]
        if len(arrived) != 1 or f"tree/{arrived[0]}" in failed:
            problems.append(f"there are {arrived}, failed: {failed}")
        else:
            name = f"tree/{arrived[0]}"
            problems += differs(place.where / name, disk.backing / name)
        report.check("of the files A and a one arrives, and the other fails by name", problems)
        for name in ("D", "d"):
            place.file(f"dirs/{name}/{name}", 1000)
        receiver = ends.recv(disk.path, "--once")
        received, _, problems = both_ended(receiver, ends.send(receiver, place.where / "dirs"), (6, 9))
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
        problems += differs(photos / "file", arrived)
        if not (disk.path / "ren/gone").exists():
            problems.append("something was removed beside a name that is spelled otherwise")
        (photos / "new").write_bytes(b"new")
        place.file("ren/gone", 1000)
        problems += _mirror(place, ends, disk)
        problems += differs(photos / "new", arrived.with_name("new"))
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
            received, ended, more = both_ended(receiver, ends.send(receiver, place.where / "tree"))
            result = ended.outcomes[-1]["result"]
            problems += more
            if (result["unchanged_files"], result["files"]) != (unchanged, changed):
                problems.append(f"{result['unchanged_files']} unchanged, {unchanged} expected")
            told = [line for line in result["warnings"] if "modification time of 2 files" in line]
            if len(told) != (1 if changed == 2 else 0):
                problems.append(f"warnings: {result['warnings']}")
        report.check("files are sent once, and one warning says that times differ", problems)


def _mirror(place, ends, disk, *more):
    """Mirror `ren` to a disk. Return what is wrong. The sender must warn where names differ."""
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
    _, done, more = both_ended(receiver, ends.send(receiver, "--delete", sent.parent))
    problems += more
    report.check("a dry run and a run succeed", problems)
    left = _below(inbox)
    problems = differs(sent, inbox / "tree/file")
    if left != ["tree/", "tree/file", "tree/mounted/", "tree/mounted/stays"]:
        problems.append(f"left: {left}")
    report.check("extra files of the lower layer go, and what is mounted stays", problems)
    told, done = (ended.outcomes[-1]["result"] for ended in (told, done))
    listed, removed = sorted(told["deleted_paths"]), sorted(set(before) - set(left))
    counts = [told["deleted_files"], done["deleted_files"]]
    report.check("the dry run lists what was removed",
                 None if listed == removed and counts == [len(removed)] * 2 else f"{listed}, {removed}, {counts}")


def _below(directory):
    """Return the paths below a directory, those of directories with `/` at the end."""
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
        _, _, problems = both_ended(receiver, ends.send(receiver, sent.parent))
        problems += differs(sent, received)
        if parts(disk.backing) != [left.name]:
            problems.append(f"a part that may be in use was touched: {parts(disk.backing)}")
        report.check("a file replaces an older one, and parts of others stay", problems)


def _orphans(report, place):
    with place.ends() as ends:
        inbox = place.inbox()
        killed, living = ends.recv(inbox), ends.recv(inbox, "--once")
        # These transfers take 12 s, which is longer than the events in the meantime.
        slow = ("--rate", "5Mbit")
        ends.send(killed, *slow, place.file("orphan", 7_500_000))
        sent = place.file("whole", 7_500_000)
        sender = ends.send(living, *slow, sent)
        until(lambda: len(parts(inbox)) == 2, 60, "two transfers under way")
        killed.signal(signal.SIGKILL)
        killed.process.wait()
        problems = [] if len(parts(inbox)) == 2 else [f"too early: {parts(inbox)}"]
        small = place.file("small", 1000)
        receiver = ends.recv(inbox, "--once")
        problems += both_ended(receiver, ends.send(receiver, small))[2]
        if len(parts(inbox)) != 1 or not living.runs():
            problems.append(f"left: {parts(inbox)}; the other receiver runs: {living.runs()}")
        report.check("the next receiver removes the part of the killed one, and not that of a "
                     "third, which runs", problems)
        problems = both_ended(living, sender)[2] + differs(sent, inbox / "whole") + parts(inbox)
        report.check("the file of the third arrives", problems)


@contextlib.contextmanager
def _outage(veth):
    """Drop all packets at both ends while a `with` block runs."""
    rule = ("add table netdev cut; add chain netdev cut in {{ type filter hook ingress device {} "
            "priority 0; policy drop; }}")
    for host in (veth.a, veth.b):
        host.run("nft", rule.format(host.dev))
    yield
    # First what `a` sends passes again. Otherwise, `a` could hear that all is done, answer in vain, and be gone.
    for host in (veth.b, veth.a):
        host.run("nft", "delete table netdev cut")


def _outage_before_verdict(report, place):
    """The last verdict is sent in an outage."""
    seconds = 8
    # An end may have been silent for a second before the outage, and may probe the path a second
    # after it. A busy machine adds some seconds.
    with place.ends(seconds + 12) as ends, Veth(1500) as veth, place.disk("disk") as disk:
        file = place.file("file", 300_000)
        disk.block("rename", "/file")
        receiver = ends.recv(disk.path, "--once", at=f"{veth.b.v4}:{PORT}", host=veth.b)
        sender = ends.send(receiver, file, host=veth.a)
        until(lambda: disk.waiting("rename"), 60, "a rename is blocked")
        with _outage(veth):
            disk.heal("rename")
            time.sleep(seconds)
        received, _, problems = both_ended(receiver, sender)
        problems += received.warnings("may not know") + differs(file, disk.backing / "file")
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
        problems = both_ended(receiver, sender)[2] + differs(sent, inbox / "file")
    report.check(f"recv on [fe80::...%{veth.b.dev}], send to [fe80::...%{veth.a.dev}]: the file "
                 "arrives", problems)


def _link_local_of(host):
    """Return the link-local address of a host, once the address is usable."""
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
    **disk_stall_cases.CASES,
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
