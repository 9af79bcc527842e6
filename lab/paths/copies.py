"""Trees and long files: `farwrite cp` beside what people use over ssh, and beside rsync over TCP BBR."""

import contextlib
import os
import pathlib
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import time

import ends
import table
from lib.sshd import Sshd
from lib.veth import until

MB = 1_000_000
RATE = "1Gbit"
RTTS_MS = (25, 150)
LOSSES = ("0", "0.1%", "1%")
#: A copy that takes longer is stopped, and its ratios are bounds. It is not run again.
LIMIT_S = float(os.environ.get("FARWRITE_COPY_SECONDS", "60"))
TREE_BYTES = 200 * MB
FILE_BYTES = 1 << 30
OVER_SSH = ("rsync, ssh", "scp", "tar, ssh")
FARWRITE, BBR = "farwrite cp", "rsync, bbr"


def run(programs):
    """Prints seconds and ratios by path and program. The programs take turns."""
    scale = min(1.0, programs.scale)
    tree, file = _tree(programs, int(TREE_BYTES * scale)), programs.file(int(FILE_BYTES * scale))
    for source, name in ((tree, "a tree"), (file, "a file")):
        _copies(programs, source, f"{name} of {_bytes(source) / MB:.0f} MB")
    _changes(programs, tree)
    _cold(programs)
    _round_trips(programs)


def _conditions():
    return (f"{RATE}/s, 1500-byte packets, queue of one round trip, loss both ways, files in memory, an unknown path; medians. "
            f">: stopped after {LIMIT_S:g} s.\nLate: the worst run's lateness of the link, in ms")


def _copies(programs, source, name):
    programs_by_name = {FARWRITE: _farwrite, "rsync, ssh": _rsync, "scp": _scp, "tar, ssh": _tar,
                        BBR: lambda *args: _daemon(*args, "bbr")}
    rows = []
    for rtt_ms in RTTS_MS:
        for loss in LOSSES:
            taken, late = _turns(programs, programs_by_name, source, rtt_ms, loss)
            best = min(taken[one] for one in OVER_SSH)
            rows.append([f"{rtt_ms} ms, loss {loss}", *map(_seconds, taken.values()),
                         _ratio(taken[FARWRITE], best), _ratio(taken[FARWRITE], taken[BBR]), ends.shown(*late)])
    table.show(f"Seconds to copy {name}, from the start of the command to its end", _conditions(),
               ["path", *programs_by_name, "of best ssh", "of bbr", "late"], rows)


def _changes(programs, tree):
    """An rsync that finds most of a tree."""
    ways = {"rsync, farwrite rsh": lambda *args: _rsync(*args, is_farwrite=True, has_old=True),
            "rsync, ssh": lambda *args: _rsync(*args, has_old=True)}
    rows = []
    for rtt_ms in RTTS_MS:
        for loss in LOSSES[:2]:
            taken, late = _turns(programs, ways, tree, rtt_ms, loss)
            rows.append([f"{rtt_ms} ms, loss {loss}", *map(_seconds, taken.values()),
                         _ratio(*taken.values()), ends.shown(*late)])
    table.show("Seconds of rsync of the tree, a tenth of whose files the other end has not", _conditions(),
               ["path", *ways, "ratio", "late"], rows)


def _cold(programs):
    """The start: one small file, beside a command that does nothing."""
    file = programs.file(MB)
    ways = {FARWRITE: _farwrite, "ssh host true": _nothing, "scp": _scp}
    rows = []
    for rtt_ms in RTTS_MS:
        taken, late = _turns(programs, ways, file, rtt_ms, "0")
        goal = (taken["ssh host true"] or 0) + 4 * rtt_ms / 1000 + MB * 8 / 1e9
        rows.append([f"{rtt_ms} ms", *map(_seconds, taken.values()), goal, _ratio(taken[FARWRITE], goal), ends.shown(*late)])
    table.show("Seconds to copy 1 MB. Goal: ssh host true, 4 round trips and the bytes", _conditions(),
               ["path", *ways, "goal", "of goal", "late"], rows)


def _round_trips(programs):
    """The round trips of the smallest file."""
    file = programs.directory / "byte"
    file.write_bytes(b"1")
    taken = {0: [], 200: []}
    for seed in range(programs.runs):
        for rtt_ms, seconds in taken.items():
            with programs.path("--rtt", f"{rtt_ms}ms", "--seed", seed) as path:
                seconds.append(ends.move(programs, path, file))
    near, far = map(statistics.median, taken.values())
    table.show("Round trips of `send` with a file of 1 byte", "200 ms, without the time that it takes over 0 ms; medians",
               ["program", "round trips"], [["farwrite send", (far - near) / 0.2]])


def _turns(programs, ways, source, rtt_ms, loss):
    """Returns the median seconds of each program, and the lateness of the links. Infinity: it was stopped."""
    taken, late = {name: [] for name in ways}, []
    for seed in range(programs.runs):
        for name, copy in ways.items():
            if float("inf") in taken[name]:
                continue
            with programs.path("--rate", RATE, "--rtt", f"{rtt_ms}ms", "--loss", loss, "--seed", seed) as path:
                target = programs.directory / "copies-in"
                shutil.rmtree(target, ignore_errors=True)
                target.mkdir()
                try:
                    taken[name].append(copy(programs, path, source, target))
                except subprocess.TimeoutExpired:
                    taken[name].append(float("inf"))
                finally:
                    _end_all(path)
                late.append(ends.lateness(path.stop()))
    shutil.rmtree(programs.directory / "copies-in", ignore_errors=True)
    medians = {name: float("inf") if float("inf") in each else statistics.median(each) for name, each in taken.items()}
    return medians, late


def _end_all(path):
    """Ends what still runs in the namespaces: ends of ssh that wait for each other."""
    for host in (path.a, path.b):
        listed = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout
        for pid in map(int, listed.split()):
            if pid != path.link.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _farwrite(programs, path, source, target):
    shell = _sshd(programs, path).shell
    return _time(programs, path, [programs.farwrite, "--quiet", "cp", "--rsh", shell, "--far-program", programs.farwrite,
                                  str(source), f"{path.b.v4}:{target}"], source, target)


def _rsync(programs, path, source, target, is_farwrite=False, has_old=False):
    shell = _sshd(programs, path).shell
    if is_farwrite:
        script = programs.directory / "rsh"
        script.write_text(f"#!/bin/sh\nexec {programs.farwrite} --quiet rsh --rsh '{shell}' --far-program "
                          f"{programs.farwrite} \"$@\"\n")
        script.chmod(0o755)
        shell = str(script)
    if has_old:
        _copy_most(source, target / source.name)
    return _time(programs, path, ["rsync", "-aH", "-e", shell, str(source), f"{path.b.v4}:{target}/"], source, target)


def _scp(programs, path, source, target):
    words = shlex.split(_sshd(programs, path).shell)[1:]
    words[words.index("-p")] = "-P"
    return _time(programs, path, ["scp", "-q", "-r", "-p", *words, str(source), f"{path.b.v4}:{target}/"], source, target,
                 keeps_links=False)


def _tar(programs, path, source, target):
    shell = _sshd(programs, path).shell
    line = (f"set -o pipefail; tar c -C {shlex.quote(str(source.parent))} {shlex.quote(source.name)} | "
            f"{shell} {path.b.v4} tar x -C {shlex.quote(str(target))}")
    return _time(programs, path, ["bash", "-c", line], source, target)


def _daemon(programs, path, source, target, cc):
    """rsync to its daemon, in clear, over TCP with another congestion control."""
    config = programs.directory / "rsyncd.conf"
    config.write_text(f"use chroot = no\nuid = 0\ngid = 0\n[in]\npath = {target}\nread only = no\n")
    daemon = path.own(path.b.popen(["rsync", "--daemon", "--no-detach", f"--config={config}", "--port=8730",
                                    f"--address={path.b.v4}"], stderr=subprocess.DEVNULL))
    until(lambda: ":8730" in path.b.run("ss", "-tln"), 10, "rsync listens")
    try:
        return _time(programs, path, ["rsync", "-aH", str(source), f"rsync://{path.b.v4}:8730/in/"], source, target, cc=cc)
    finally:
        daemon.terminate()
        daemon.wait(timeout=10)


def _nothing(programs, path, _source, _target):
    shell = _sshd(programs, path).shell
    return _time(programs, path, [*shlex.split(shell), path.b.v4, "true"], None, None)


def _sshd(programs, path):
    return Sshd(path, path.b, programs.directory / "ssh")


def _time(programs, path, command, source, target, keeps_links=True, cc="cubic"):
    """Returns the seconds of a command on `a`, and checks what it has copied."""
    ends.use_congestion_control(path, cc)
    # No knowledge of earlier transfers.
    cache = programs.directory / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**os.environ, "HOME": str(cache), "XDG_CACHE_HOME": str(cache)}
    start = time.monotonic()
    process = path.own(path.a.popen(command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL))
    try:
        code = process.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        raise
    seconds = time.monotonic() - start
    if code != 0:
        raise ends.Failed(f"{command[0]} ended with {code}")
    if target is not None and keeps_links and _list(source) != _list(target / source.name):
        raise ends.Failed(f"{command[0]}: the copy is another tree")
    return seconds


def _tree(programs, size):
    """Makes a source tree: many small files, some of a megabyte, and links."""
    root = programs.directory / "tree"
    draw = random.Random(1)
    number = 0
    while size > 0:
        directory = root / f"part{number // 500}" / f"module{number // 50 % 10}"
        directory.mkdir(parents=True, exist_ok=True)
        length = min(size, MB if number % 60 == 0 else draw.randrange(200, 12_000))
        (directory / f"file{number}.c").write_bytes(os.urandom(length))
        if number % 50 == 7:
            (directory / "link").symlink_to(f"file{number}.c")
        if number % 50 == 8:
            (directory / "same.c").hardlink_to(directory / f"file{number}.c")
        size -= length
        number += 1
    return root


def _copy_most(source, target):
    """Copies nine tenths of the files of a tree."""
    shutil.copytree(source, target, symlinks=True)
    for number, path in enumerate(sorted(target.rglob("*"))):
        if number % 10 == 0 and path.is_file() and not path.is_symlink():
            path.unlink()


def _list(root):
    """The paths of a tree, with the lengths of files."""
    root = pathlib.Path(root)
    if not root.is_dir():
        return root.stat().st_size
    return {str(path.relative_to(root)): path.is_symlink() or (path.stat().st_size if path.is_file() else None)
            for path in root.rglob("*")}


def _bytes(source):
    if source.is_file():
        return source.stat().st_size
    return sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())


def _seconds(seconds):
    return f">{LIMIT_S:g}" if seconds == float("inf") else seconds


def _ratio(ours, theirs):
    """The ratio of two times, of which each may be a bound."""
    if ours == float("inf"):
        return "?" if theirs == float("inf") else f">{LIMIT_S / theirs:.2f}"
    return f"<{ours / LIMIT_S:.2f}" if theirs == float("inf") else f"{ours / theirs:.2f}"
