"""Copies that turn to ssh when UDP stops passing, and those that only wait. `ssh_cases.py` runs these cases."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import time
from concurrent import futures

from lib.disk import Disk
from lib.sshd import Sshd
from lib.veth import Veth, until

#: What a copy warns of that turns to ssh.
FROM_NOW_ON = "the data go through ssh from now on"
SMALL = 50
LARGE_BYTES = 24_000_000
#: The copy takes 6 s.
RATE = "32Mbit"
#: The bytes that have come when something happens, and the least of them that are not sent again.
UNDER_WAY, RESUMED = 14_000_000, 8_000_000
#: Longer than UDP may be silent while ssh answers.
OUTAGE = 15
#: Rules for the far machine, which drop UDP that comes, and UDP that leaves.
COMES = "add chain inet shut in { type filter hook input priority 0; }; add rule inet shut in iif != lo meta l4proto udp drop;"
LEAVES = "add chain inet shut out { type filter hook output priority 0; }; add rule inet shut out oif != lo meta l4proto udp drop;"


def run(report, program, where):
    tree = where / "detour-tree"
    # The files of a directory go before those below it.
    (tree / "below").mkdir(parents=True)
    for number in range(SMALL):
        (tree / str(number)).write_bytes(random.Random(number).randbytes(5000))
    (tree / "below" / "large").write_bytes(random.Random("large").randbytes(LARGE_BYTES))
    with report.case("ssh: copies whose packets stop"), futures.ThreadPoolExecutor() as threads:
        waiting = [(title, threads.submit(case, Copy(program, where, f"detour-{number}", tree)))
                   for number, (title, case) in enumerate(_CASES.items())]
        for title, problems in waiting:
            report.check(title, problems.result())


class Copy:
    """The machines and directories of one copy."""

    def __init__(self, program, where, name, tree):
        self.program, self.tree = program, tree
        self.where = where / name
        self.inbox = self.where / "inbox"
        self.inbox.mkdir(parents=True)

    def start(self, veth, is_push, inbox=None):
        """Start to copy the tree from `a` to `b`, or the other way round."""
        shell = Sshd(veth, veth.b, self.where / "keys").shell
        inbox = inbox or self.inbox
        paths = [self.tree, f"{veth.b.v4}:{inbox}"] if is_push else [f"{veth.b.v4}:{self.tree}", inbox]
        command = [self.program, "--json", "--quiet", "cp", "--rsh", shell, "--far-program", self.program, "--rate", RATE, *paths]
        environment = os.environ | {"XDG_CACHE_HOME": str(self.where / "cache")}
        return veth.own(veth.a.popen(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env=environment))

    def problems(self, near, turns, inbox=None):
        """Return what is wrong with a copy that ends."""
        out, err = near.communicate(timeout=150)
        problems = [] if near.returncode == 0 else [f"exit code {near.returncode}"]
        warnings = [line for line in err.splitlines() if FROM_NOW_ON in line]
        if len(warnings) != turns:
            problems.append(f"{len(warnings)} warnings of ssh")
        if turns and not problems:
            unchanged, resumed = map(json.loads(out)["result"].get, ("unchanged_files", "resumed_bytes"))
            if unchanged != SMALL or resumed < RESUMED:
                problems.append(f"sent again: only {unchanged} files and {resumed} bytes were not")
        copied = pathlib.Path(inbox or self.inbox) / self.tree.name
        files = [path.relative_to(self.tree) for path in self.tree.rglob("*") if path.is_file()]
        if not problems:
            problems += [f"{name} differs" for name in files if (copied / name).read_bytes() != (self.tree / name).read_bytes()]
            problems += [f"left: {path}" for path in copied.rglob(".farwrite-*")]
        return problems + ([err] if problems else [])


def _stops(copy, is_push, rules):
    """UDP is blocked in the middle of a file. ssh goes on."""
    with Veth(1500) as veth:
        near = copy.start(veth, is_push)
        receiver = veth.b if is_push else veth.a
        until(lambda: receiver.received_bytes() > UNDER_WAY, 60, "a copy under way")
        veth.b.run("nft", "add table inet shut;" + rules)
        return copy.problems(near, turns=1)


def _outage(copy):
    """Nothing passes for some time, of ssh neither."""
    with Veth(1500) as veth:
        near = copy.start(veth, is_push=True)
        until(lambda: veth.b.received_bytes() > UNDER_WAY, 60, "a copy under way")
        veth.b.link("down")
        time.sleep(OUTAGE)
        veth.b.link("up")
        return copy.problems(near, turns=0)


def _stall(copy):
    """The disk of the far end stands still for some time, while UDP passes."""
    program = pathlib.Path(copy.program).parent / "farwrite-disk"
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(Disk(str(program), copy.where / "disk"))
        veth = stack.enter_context(Veth(1500))
        disk.block("write")
        near = copy.start(veth, True, disk.path)
        until(lambda: disk.waiting("write"), 60, "the disk stands still")
        time.sleep(OUTAGE)
        disk.heal("write")
        return copy.problems(near, 0, disk.backing)


_CASES = {
    "there, UDP stops toward the receiver": lambda copy: _stops(copy, True, COMES),
    "there, UDP stops toward the sender": lambda copy: _stops(copy, True, LEAVES),
    "back, UDP stops toward the receiver": lambda copy: _stops(copy, False, LEAVES),
    "back, UDP stops toward the sender": lambda copy: _stops(copy, False, COMES),
    "back, UDP stops in both directions": lambda copy: _stops(copy, False, COMES + LEAVES),
    f"an outage of {OUTAGE} s, also of ssh, is waited for": _outage,
    f"a disk of the far end that stands still for {OUTAGE} s is waited for": _stall,
}
