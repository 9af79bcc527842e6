"""Trees of every kind of file, there and back, compared by rsync."""

import os
import pathlib
import socket
import struct
import subprocess

from lib.ends import Ends

# `rsync --dry-run` prints nothing for trees that are equal.
COMPARE = ["rsync", "-aHAXn", "--checksum", "--delete", "--itemize-changes", "--numeric-ids"]


def run(report, program, directory):
    where = directory / "trees"
    where.mkdir()
    with report.case("trees: every kind of file, there and back"):
        _there_and_back(report, program, where)


def _make(tree):
    """Make one of each."""
    (tree / "empty").mkdir(parents=True)
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "file").write_bytes(b"file" * 5000)
    (tree / "no bytes").write_bytes(b"")
    (tree / "read only").write_bytes(b"x")
    os.chmod(tree / "read only", 0o444)
    odd = os.fsencode(tree) + b"/\xff\x01 \n*"
    with open(odd, "wb") as file:
        file.write(b"odd")
    os.link(tree / "file", tree / "deep" / "hard")
    os.link(tree / "file", tree / "deep" / "er" / "hard too")
    for name, target in [("to file", "file"), ("dangling", "no/where"), ("outside", "/etc/passwd"),
                         ("up", "../../.."), ("to directory", "deep")]:
        os.symlink(target, tree / name)
    with open(tree / "sparse", "wb") as file:
        file.truncate(300 << 20)
        for place in (0, 5 << 20, (300 << 20) - 1):
            file.seek(place)
            file.write(b"data")
    os.chown(tree / "file", 12345, 54321)
    os.chown(tree / "to file", 7, 8, follow_symlinks=False)
    os.setxattr(tree / "file", "user.note", b"\x00\xff")
    os.setxattr(tree / "deep", "user.empty", b"")
    os.chmod(tree / "empty", 0o775)
    entries = [(1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 6, -1), (32, 0, -1)]
    packed = [struct.pack("<HHi", *entry) for entry in entries]
    access = struct.pack("<I", 2) + b"".join(packed)
    os.setxattr(tree / "read only", "system.posix_acl_access", access)
    os.setxattr(tree / "deep", "system.posix_acl_default", access)
    for name, seconds in [("file", -1), ("no bytes", 2**31 + 5), ("to file", -2_000_000_000),
                          ("empty", 7_000_000_000), ("sparse", 1)]:
        os.utime(tree / name, ns=(0, seconds * 10**9 + 123_456_789), follow_symlinks=False)


def _there_and_back(report, program, where):
    tree = where / "tree"
    _make(tree)
    options = ["-X", "--owner"]
    with Ends(program, where, 20) as ends:
        inboxes = [where / "there", where / "back"]
        source = tree
        for inbox in inboxes:
            inbox.mkdir()
            receiver = ends.recv(inbox, "--owner", "--umask", "000", "--once")
            sent = ends.send(receiver, *options, source).end()
            received = receiver.end()
            report.check(f"{inbox.name}: both ends succeed",
                         sent.problems("send", 0) + received.problems("recv", 0))
            report.check(f"{inbox.name}: rsync finds no difference", _differences(source, inbox))
            report.check(f"{inbox.name}: holes are not sent",
                         _above(sent.outcomes[-1]["result"]["bytes"], 1 << 20))
            source = inbox / "tree"
        allocated = (where / "back" / "tree" / "sparse").stat().st_blocks * 512
        report.check("holes arrive as holes", _above(allocated, 1 << 20))
        _again(report, ends, where, options)


def _again(report, ends, where, options):
    """The second time, only what has changed is sent. A socket does not stop that."""
    tree, inbox = where / "tree", where / "there"
    with open(tree / "no bytes", "wb") as file:
        file.write(b"now ten by")
    (tree / "deep" / "new").symlink_to("x")
    with socket.socket(socket.AF_UNIX) as listener:
        here = pathlib.Path.cwd()
        os.chdir(tree)
        listener.bind("socket")
        os.chdir(here)
        receiver = ends.recv(inbox, "--owner", "--umask", "000", "--once")
        sent = ends.send(receiver, *options, tree).end()
    receiver.end()
    report.check("a socket gives exit code 6", sent.problems("send", 6))
    result = sent.outcomes[-1]["result"]
    report.check("what is there already is not sent again",
                 [] if result["bytes"] == 10 and result["unchanged_files"] == 11 else str(result))
    # The removal changes the directory's time, which rsync compares too.
    before = tree.stat()
    (tree / "socket").unlink()
    os.utime(tree, ns=(before.st_atime_ns, before.st_mtime_ns))
    report.check("rsync finds no difference again", _differences(tree, inbox))


def _differences(tree, inbox):
    """Return what rsync would change to make the copy equal."""
    done = subprocess.run([*COMPARE, f"{tree}/", f"{inbox}/tree/"], capture_output=True, check=False)
    lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
    return lines or ([] if done.returncode == 0 else [f"rsync ended with {done.returncode}"])


def _above(number, most):
    return [] if number <= most else f"{number}, at most {most} expected"
