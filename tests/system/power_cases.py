"""What is left on a disk when the power fails: images of file systems, taken while they are in use.

A file system on a loop device writes to a file. What the file system has only in memory is not in
that file, so a copy of the file is what a disk has after a power failure at that moment. The file lies on
a disk whose writes can be held up (see `Disk`), so that it does not change while it is copied."""

import contextlib
import os
import random
import shutil
import subprocess
import time

from lib.disk import Disk
from lib.ends import Ends
from lib.veth import sh

# Size of an image. XFS makes none below 300 MiB.
IMAGE_MB = 320
# For a machine whose disk is busy, in seconds.
TIMEOUT = 30
# Names, and the sizes of their files: small ones, one that is sparse, and one of many segments.
SIZES = {f"tree/small/{n:03}": 3000 + n for n in range(300)} | {
    "tree/empty/new/dir/empty": 0, "tree/large": 50_000_000, "tree/old": 5_000_000}
# Names of interrupted files that stay for their transfer to go on.
LASTING = ".farwrite-*-*-*.part"


def run(report, programs, directory):
    for kind in ("ext4", "xfs"):
        title = f"power failure, {kind}"
        missing = _missing(kind)
        if missing:
            report.skip(title, missing)
            continue
        where = directory / f"power-{kind}"
        where.mkdir()
        with (report.case(title), Disk(str(programs / "farwrite-disk"), where) as below,
              _FileSystem(kind, where, below) as disk):
            _survives(report, Ends(str(programs / "farwrite"), where, TIMEOUT), disk, where)


def _missing(kind):
    """Return why a file system cannot be used here; `None` if it can."""
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    if shutil.which(f"mkfs.{kind}") is None:
        return f"there is no mkfs.{kind}"
    if kind not in _known() and shutil.which("modprobe"):
        subprocess.run(["modprobe", kind], check=False, capture_output=True)
    return None if kind in _known() else f"the kernel has no {kind}"


def _known():
    with open("/proc/filesystems", encoding="ascii") as lines:
        return lines.read().split()


class _FileSystem:
    """A file system in a file on another disk, mounted while a `with` block runs."""

    def __init__(self, kind, where, below):
        self.kind, self.where, self.below = kind, where, below
        self.path = where / "mounted"

    def __enter__(self):
        self.path.mkdir()
        with open(self.below.backing / "image", "wb") as image:
            image.truncate(IMAGE_MB << 20)
        quiet = ["-q", "-F"] if self.kind == "ext4" else ["-q"]
        sh(f"mkfs.{self.kind}", *quiet, str(self.below.backing / "image"))
        sh("mount", "-o", "loop", str(self.below.path / "image"), str(self.path))
        return self

    def __exit__(self, *_):
        sh("umount", str(self.path))

    def snapshot(self, name):
        """Copy what the disk has now."""
        copy = self.where / name
        self.below.block("write")
        # Writes that began before end in this time.
        time.sleep(0.1)
        sh("cp", "--sparse=always", str(self.below.backing / "image"), str(copy))
        self.below.heal("write")
        return copy

    @contextlib.contextmanager
    def after_failure(self, copy):
        """Mount a copy, as after the power has come back."""
        path = self.where / "after"
        path.mkdir(exist_ok=True)
        # XFS refuses a second file system with the same number.
        options = "loop,nouuid" if self.kind == "xfs" else "loop"
        sh("mount", "-o", options, str(copy), str(path))
        try:
            yield path
        finally:
            sh("umount", str(path))
            copy.unlink()


def _bytes(name, version):
    return random.Random(f"{name} {version}").randbytes(SIZES[name])


def _write(root, version):
    for name in SIZES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_bytes(name, version))


def _survives(report, ends, disk, where):
    with ends:
        # The version that the transfer replaces, of one file, is safely on the disk.
        (disk.path / "tree").mkdir()
        (disk.path / "tree/old").write_bytes(_bytes("tree/old", 1))
        os.sync()
        _write(where, 2)
        receiver = ends.recv(disk.path, "--once")
        # Slow enough for some images in between.
        sender = ends.send(receiver, "--rate", "100Mbit", where / "tree")
        images = []
        while sender.runs() and len(images) < 12:
            images.append(disk.snapshot(f"during-{len(images)}"))
            time.sleep(0.3)
        sent = sender.end()
        copy = disk.snapshot("sent")
        received = receiver.end()
        problems = sent.problems("send", 0) + received.problems("recv", 0)
        for ended in (sent, received):
            if not ended.outcomes or ended.outcomes[-1]["result"]["synced"] is not True:
                problems.append("a result does not say that the files were synced")
        with disk.after_failure(copy) as path:
            problems += [f"{name}: {_state(path, name)}" for name in SIZES
                         if _state(path, name) != "new"][:5]
        report.check("after exit 0, each file and the directories around it are on the disk",
                     problems)
        problems, states = [], set()
        has_gone_on, goes_on = False, ["no image has an interrupted file"]
        # The last ones have most of the file.
        for image in reversed(images):
            with disk.after_failure(image) as path:
                found = {name: _state(path, name) for name in SIZES}
                if not has_gone_on and list((path / "tree").glob(LASTING)):
                    has_gone_on = True
                    goes_on = _goes_on(ends, path, where)
            states.add(found["tree/old"])
            problems += [f"{name}: {state}" for name, state in found.items()
                         if state not in ("new", "old" if name == "tree/old" else "missing")]
        if "old" not in states:
            problems.append(f"no image has the older version: {states}")
        report.check("at any time before, each name has whole contents, older or new", problems)
        report.check("after a power failure, the same command goes on with what is on the disk",
                     goes_on)


def _goes_on(ends, path, where):
    """Give the same command again. Return what is wrong."""
    receiver = ends.recv(path, "--once")
    sent = ends.send(receiver, where / "tree").end()
    problems = sent.problems("send", 0) + receiver.end().problems("recv", 0)
    if not problems and sent.outcomes[-1]["result"]["resumed_bytes"] < 8 << 20:
        problems.append(f"it started again: {sent.outcomes[-1]}")
    return problems + [f"{name}: {_state(path, name)}" for name in SIZES
                       if _state(path, name) != "new"][:5]


def _state(root, name):
    """Return which version of a file is there."""
    path = root / name
    if not path.is_file():
        return "missing"
    found = path.read_bytes()
    # An empty file is the same in each version.
    versions = {_bytes(name, 1): "old", _bytes(name, 2): "new"}
    return versions.get(found, f"{len(found)} bytes that nobody sent")
