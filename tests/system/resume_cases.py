"""Transfers that go on: after one end was killed, through an outage, and from another address.

FARWRITE_KILLS sets how often each end is killed, twice without it."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from concurrent import futures

from lib.ends import Ends, free_address
from lib.veth import Veth, until

# Names, and the sizes of their files.
SIZES = {f"tree/small/{n:03}": 5000 + n for n in range(100)} | {
    "tree/a": 20_000_000, "tree/b": 3_000_000, "tree/large": 60_000_000, "tree/z/last": 20_000_000}
TOTAL = sum(SIZES.values())
# What may be sent again after each end was killed. A killed receiver had not yet written all that had arrived.
AGAIN = {"sender": 16 << 20, "receiver": 32 << 20}
TIMEOUT = 30
# The transfer takes two seconds.
RATE = ("--rate", "400Mbit")


def run(report, program, directory):
    where = directory / "resume"
    where.mkdir()
    for name, size in SIZES.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
    with futures.ThreadPoolExecutor() as threads:
        waiting = [(title, threads.submit(case, program, where)) for title, case in _NETWORKS.items()]
        _kills(report, program, where)
        with report.case("resume: networks"):
            for title, problems in waiting:
                report.check(title, problems.result())


def _kills(report, program, where):
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
    """Kill one end some time after the start, and give the same commands again. Return what is wrong, how
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
    if again > AGAIN[which]:
        problems.append(f"{again} bytes came twice, {arrived} had arrived: {result}")
    problems += [f"{name} differs" for name in SIZES
                 if (inbox / name).read_bytes() != (where / name).read_bytes()][:3]
    # A receiver that is killed between making a file and naming it leaves an empty one (docs/security.md).
    problems += [f"left: {path}" for path in inbox.rglob(".farwrite-*.part")]
    return problems, again, is_running


#: Of the cases with networks. The transfer takes 7 s.
NETWORK_RATE = "24Mbit"
NETWORK_FILE = "tree/a"
PORT = 4792


def _outage(program, where):
    """The path is cut for 5 s in the middle of a file, and of a pipe."""
    def cut(veth):
        veth.b.link("down")
        time.sleep(5)
        veth.b.link("up")
    return _files(program, where, cut, "outage") + _pipe(program, where, cut)


def _files(program, where, change, name, told=()):
    """Send a file while something happens to the network. Return what is wrong. `told` is what the sender
    warns of."""
    inbox = where / name
    inbox.mkdir()
    with Veth(1500) as veth:
        key = where / f"{name}.key"
        subprocess.run([program, "--quiet", "keygen", key], check=True, capture_output=True)
        common = ["--psk-file", str(key)]
        veth.own(veth.b.popen([program, "--quiet", "recv", "--listen", f"{veth.b.v4}:{PORT}", "--dir", str(inbox),
                               *common], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        until(lambda: f":{PORT}" in veth.b.run("ss", "-uln"), 10, "it listens")
        sender = veth.own(veth.a.popen(
            [program, "--json", "--quiet", "send", "--to", f"{veth.b.v4}:{PORT}", "--rate", NETWORK_RATE, *common,
             str(where / NETWORK_FILE)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        until(lambda: veth.b.received_bytes() > 14_000_000, 60, "a transfer under way")
        change(veth)
        out, err = sender.communicate(timeout=60)
    problems = [f"exit code {sender.returncode}"] if sender.returncode else []
    warnings = [line for line in err.splitlines() if "warning" in line]
    problems += [f"no warning of {word}" for word in told if not any(word in line for line in warnings)]
    if len(warnings) != len(told):
        problems.append(f"warnings: {warnings}")
    if not problems and told and json.loads(out)["result"]["resumed_bytes"] < 8_000_000:
        problems.append(f"it starts again: {out}")
    if not problems and (inbox / "a").read_bytes() != (where / NETWORK_FILE).read_bytes():
        problems.append("the file differs")
    return problems + ([err] if problems else [])


def _pipe(program, where, change):
    """Do the same with a pipe."""
    source, target = where / NETWORK_FILE, where / f"pipe-{random.randrange(1 << 32)}"
    with Veth(1500) as veth, open(source, "rb") as data, open(target, "wb") as copy:
        key = target.with_suffix(".key")
        subprocess.run([program, "--quiet", "keygen", key], check=True, capture_output=True)
        common = ["--psk-file", str(key), "--timeout", "30s"]
        receiver = veth.own(veth.b.popen([program, "--quiet", "recv", "--listen", f"{veth.b.v4}:{PORT}", *common, "-"],
                                         stdout=copy, stderr=subprocess.PIPE, text=True))
        sender = veth.own(veth.a.popen([program, "--quiet", "send", "--to", f"{veth.b.v4}:{PORT}", "--rate", NETWORK_RATE,
                                        *common, "-"], stdin=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        until(lambda: veth.b.received_bytes() > 14_000_000, 60, "a transfer under way")
        change(veth)
        _, err = sender.communicate(timeout=60)
        _, of_receiver = receiver.communicate(timeout=60)
    problems = [f"exit codes {sender.returncode}, {receiver.returncode}: {err}"] if sender.returncode or receiver.returncode else []
    problems += [line for line in (err + of_receiver).splitlines() if "warning" in line]
    if not problems and target.read_bytes() != source.read_bytes():
        problems.append("the pipe gives other bytes")
    return [f"pipe: {problem}" for problem in problems]


def _move(veth):
    """Give the sender's machine another address, after a second without a network."""
    veth.a.ip("addr", "del", f"{veth.a.v4}/24", "dev", veth.a.dev)
    time.sleep(1)
    veth.a.ip("addr", "add", "10.77.0.9/24", "dev", veth.a.dev)


_NETWORKS = {
    "an outage of 5 s passes without a warning": _outage,
    "a file goes on when the address of the sender changes":
        lambda program, where: _files(program, where, _move, "moved", ["continues from another address"]),
    "a pipe goes on when the address of the sender changes": lambda program, where: _pipe(program, where, _move),
}
