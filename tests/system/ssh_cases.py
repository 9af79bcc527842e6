"""Copies, a remote shell and a forward over a real ssh server: directly, through firewalls, and with what users get
wrong."""

import filecmp
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

import ssh_detour_cases
from lib.path import Path
from lib.sshd import PORT, Sshd
from lib.veth import Veth, until

#: Of a copy that goes through ssh.
THROUGH = "the data go through ssh"
#: Of a remote shell that goes through ssh.
GO_THROUGH = "go through ssh, because UDP does not pass"


def run(report, program, directory):
    # The server starts it in another directory.
    program = str(pathlib.Path(program).resolve())
    where = directory / "ssh"
    where.mkdir()
    with report.case("ssh: copies"), Veth(1500) as veth:
        _copies(report, program, where, veth)
    ssh_detour_cases.run(report, program, where)
    with report.case("ssh: a remote shell for rsync"), Veth(1500) as veth:
        _remote_shell(report, program, where, veth)
    with report.case("ssh: a forward for curl"), Path(program, "--rate", "100Mbit", "--rtt", "10ms", "--loss", "1%") as path:
        _forward(report, program, where, path)


def _copies(report, program, where, veth):
    shell = Sshd(veth, veth.b, where / "keys").shell
    tree = where / "tree"
    (tree / "it's a dir").mkdir(parents=True)
    (tree / "it's a dir" / "big").write_bytes(random.Random(1).randbytes(3_000_000))
    (tree / "small").write_bytes(b"x")

    def copy(*words, far=program):
        command = [program, "--json", "cp", "--rsh", shell, "--far-program", far, "--timeout", "15s", *words]
        done = subprocess.run(["ip", "netns", "exec", veth.a.name, *command], capture_output=True, text=True, timeout=90,
                              env=os.environ | {"XDG_CACHE_HOME": str(where / "cache")})
        return done, json.loads(done.stdout)

    def both_ways(name, is_through):
        """Copy the tree there and back. Return what is wrong."""
        there, here = where / f"there {name}", where / f"here {name}"
        there.mkdir()
        here.mkdir()
        problems = []
        for words in ([tree, f"{veth.b.v4}:{there}"], [f"{veth.b.v4}:{there}/tree", here]):
            done, told = copy(*map(str, words))
            if is_through and words[0] == tree:
                result = told["result"] or {}
                if result.get("peer") != veth.b.v4 or not any(THROUGH in line for line in result.get("warnings", [])):
                    problems.append(f"JSON does not tell the way: {result}")
                if done.stderr.count(THROUGH) != 1:
                    problems.append(f"one warning is expected: {done.stderr}")
            if done.returncode or told["error"]:
                problems.append(f"{done.returncode}: {done.stderr}")
            elif (THROUGH in done.stderr) != is_through:
                problems.append(f"through ssh or not: {done.stderr}")
        for copied in (there / "tree", here / "tree"):
            compared = filecmp.dircmp(tree, copied)
            files = ["it's a dir/big", "small"]
            if filecmp.cmpfiles(tree, copied, files, shallow=False)[0] != files or compared.right_only:
                problems.append(f"{copied} is another tree")
        return problems

    report.check("a tree goes there and back", both_ways("open", False))
    report.check("owners that the far end cannot set are counted at the near end", _owners(copy, program, where, veth))
    veth.b.run("nft", "add table inet no_udp; add chain inet no_udp in { type filter hook input priority 0; }; "
                      "add rule inet no_udp in iif != lo meta l4proto udp drop")
    report.check("where UDP does not pass, the data go through ssh", both_ways("no UDP", True))
    paths = where / "cache" / "farwrite" / "paths.toml"
    learned = paths.read_text() if paths.exists() else ""
    report.check("what ssh has carried tells nothing of a path", [learned] if "127.0.0.1" in learned else [])
    veth.b.run("nft", "delete table inet no_udp")
    for host in (veth.a, veth.b):
        host.run("nft", "add table inet shut; add chain inet shut in { type filter hook input priority 0; policy drop; };"
                        "add rule inet shut in iif lo accept; add rule inet shut in ct state established accept;"
                        f"add rule inet shut in tcp dport {PORT} accept")
    report.check("behind firewalls that let only ssh pass, too", both_ways("shut", True))
    problems = []
    for words, far, code, reason in [
        ([str(tree), f"{veth.b.v4}:{where}/none"], program, 9, "cannot use its files or directory"),
        ([str(tree), f"{veth.b.v4}:{where}"], "/none", 5, "has no program `farwrite` that it can run"),
        ([f"{veth.b.v4}:{where}/none", str(where)], program, 9, "cannot read"),
        ([str(tree), f"nobody@{veth.b.v4}:{where}"], program, 5, "ssh to nobody@"),
    ]:
        done, told = copy(*words, far=far)
        if done.returncode != code or reason not in done.stderr or told["error"] is None:
            problems.append(f"{reason}: {done.returncode}: {done.stderr}")
    report.check("what cannot be copied has its reason", problems)


def _owners(copy, program, where, veth):
    """Copy a tree of root to a far end of another user. Return what is wrong."""
    inbox, far = where / "not root", where / "far"
    inbox.mkdir()
    # The user may read and write everywhere, because the program can be in a directory of root.
    far.write_text("#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_override "
                   f"--ambient-caps +dac_override {program} \"$@\"\n")
    far.chmod(0o755)
    done, told = copy("-X", "--owner", str(where / "tree"), f"{veth.b.v4}:{inbox}", far=str(far))
    problems = [] if done.returncode == 0 else [f"{done.returncode}: {done.stderr}"]
    warnings = (told["result"] or {}).get("warnings", [])
    for what in ("2 files", "2 directories"):
        told_there = [line for line in warnings if f"cannot set the owner of {what}, the first is" in line]
        if len(told_there) != 1 or f"warning: {told_there[0]}" not in done.stderr:
            problems.append(f"{what}: {warnings}, and on the terminal {done.stderr}")
    if (inbox / "tree" / "small").stat().st_uid != 65534:
        problems.append("the far end did set the owner: this shows nothing")
    return problems


def _remote_shell(report, program, where, veth):
    shell = Sshd(veth, veth.b, where / "rsh-keys").shell
    # rsync makes the pipes of its remote shell non-blocking unless the program is named `rsh`. `farwrite` is not, so this
    # script is not either.
    script = where / "shell"
    script.write_text(f"#!/bin/sh\nexec {program} rsh --rsh '{shell}' --far-program {program} \"$@\"\n")
    script.chmod(0o755)
    tree, there = where / "source", where / "copy"
    (tree / "a dir").mkdir(parents=True)
    (tree / "a dir" / "big").write_bytes(random.Random(2).randbytes(4_000_000))
    # rsync does not see a change within the same second.
    os.utime(tree / "a dir" / "big", (1, 1))
    (tree / "link").symlink_to("a dir")

    def on_a(*words):
        command = ["ip", "netns", "exec", veth.a.name, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=90)

    def problems_of_pull():
        back = where / "back"
        done = on_a("rsync", "-a", "-e", script, f"{veth.b.v4}:{there}/", f"{back}/")
        problems = [f"{done.returncode}: {done.stderr}"] if done.returncode or done.stderr else []
        differing = on_a("rsync", "-ani", "--checksum", "--delete", f"{there}/", f"{back}/").stdout
        return problems + ([f"differs: {differing}"] if differing else [])

    def problems_of_rsync(is_through):
        done = on_a("rsync", "-a", "--delete", "-e", script, f"{tree}/", f"{veth.b.v4}:{there}/")
        problems = []
        if done.returncode:
            problems.append(f"{done.returncode}: {done.stderr}")
        if (GO_THROUGH in done.stderr) != is_through:
            problems.append(f"through ssh or not: {done.stderr}")
        differing = on_a("rsync", "-ani", "--checksum", "--delete", f"{tree}/", f"{there}/").stdout
        return problems + ([f"differs: {differing}"] if differing else [])

    report.check("rsync copies a tree", problems_of_rsync(False))
    with (tree / "a dir" / "big").open("r+b") as file:
        file.seek(2_000_000)
        file.write(b"changed")
    (tree / "link").unlink()
    report.check("rsync copies a change", problems_of_rsync(False))
    report.check("rsync copies the tree back", problems_of_pull())
    problems = []
    for words, code, output in [
        (["false"], 1, ""), (["sh -c 'exit 7'"], 7, ""), (["yes | head -c 1000000 | wc -c"], 0, "1000000\n"), (["cat"], 0, ""),
    ]:
        done = on_a(script, f"root@{veth.b.v4}", *words)
        if done.returncode != code or done.stdout != output or done.stderr:
            problems.append(f"{words}: {done.returncode}: {done.stdout!r} {done.stderr!r}")
    report.check("a command gives its output and its exit code", problems)
    veth.b.run("nft", "add table inet no_v4; add chain inet no_v4 in { type filter hook input priority 0; };"
                      "add rule inet no_v4 in iif != lo meta nfproto ipv4 meta l4proto udp drop")
    (tree / "newest").write_bytes(b"newest")
    report.check("where only UDP over IPv6 passes, rsync uses that", problems_of_rsync(False))
    veth.b.run("nft", "delete table inet no_v4")
    veth.b.run("nft", "add table inet one; add chain inet one in { type filter hook input priority 0; };"
                      "add rule inet one in meta l4proto udp ct state new drop")
    (tree / "new").write_bytes(b"new")
    report.check("the other end calls if only this one is reached", problems_of_rsync(False))
    veth.b.run("nft", "add rule inet one in meta l4proto udp drop")
    (tree / "new").write_bytes(b"newer")
    report.check("where UDP does not pass, rsync goes through ssh", problems_of_rsync(True))


def _forward(report, program, where, path):
    """curl gets files of a web server that only the other machine reaches, over a path that loses packets."""
    shell = Sshd(path, path.b, where / "forward-keys").shell
    site = where / "site"
    site.mkdir()
    for name, length in (("long", 2_000_000), ("short", 100_000)):
        (site / name).write_bytes(random.Random(3).randbytes(length))
    server = [sys.executable, "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", str(site)]
    path.own(path.b.popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    until(lambda: ":8000" in path.b.run("ss", "-tln"), 20, "the web server listens")

    # UDP to this port does not pass, and the far end does not reach the near one either.
    path.b.run("nft", "add table inet shut; add chain inet shut in { type filter hook input priority 0; }; "
                      "add rule inet shut in iif != lo udp dport 4999 drop")
    path.a.run("nft", "add table inet shut; add chain inet shut in { type filter hook input priority 0; }; "
                      "add rule inet shut in iif != lo meta l4proto udp ct state new drop")

    def start(port, *options):
        command = [program, "forward", "--rsh", shell, "--far-program", program, "-L", f"{port}:localhost:8000"]
        return path.own(path.a.popen([*command, *options, path.b.v4], text=True, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE))

    def problems_of(near, port, name, is_through):
        told = near.stdout.readline()
        get = ["curl", "--silent", "--show-error", "--max-time", "30", f"http://127.0.0.1:{port}/{name}"]
        done = subprocess.run(["ip", "netns", "exec", path.a.name, *get], capture_output=True)
        near.send_signal(signal.SIGINT)
        _, errors = near.communicate(timeout=20)
        problems = []
        if done.stdout != (site / name).read_bytes():
            problems.append(f"{told!r}, and curl ends with {done.returncode}: {done.stderr}")
        if (GO_THROUGH in errors) != is_through or near.returncode != 130:
            problems.append(f"the near end ends with {near.returncode}: {errors}")
        return problems

    # Both at the same time, since the second one waits for UDP for some seconds.
    over_udp, through_ssh = start(8080), start(8081, "--port", "4999")
    report.check("a file comes over UDP", problems_of(over_udp, 8080, "long", False))
    report.check("where UDP does not pass, it comes through ssh", problems_of(through_ssh, 8081, "short", True))
