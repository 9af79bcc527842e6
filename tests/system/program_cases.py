"""The `farwrite` program between two machines: trees of files, keys, losses, outages."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path

from lib import rocev2
from lib.capture import Capture
from lib.veth import Veth, impair, until

PORT = 4792
_ICMP = Path(__file__).with_name("lib") / "icmp.py"
_COPIES = Path(__file__).with_name("lib") / "copies.py"


def run(report, program, directory):
    for number, (title, case) in enumerate(_CASES.items()):
        where = directory / f"program-{number}"
        where.mkdir()
        with report.case(f"program: {title}"):
            case(report, Program(program, where))


class Program:
    """The program, with a key and a tree of files to send."""

    def __init__(self, path, where):
        self.path = path
        self.where = where
        self.key = where / "key"
        subprocess.run([path, "keygen", str(self.key)], check=True, capture_output=True)
        self.tree = where / "tree"
        _plant(self.tree)

    def fresh(self, name):
        """Make a new directory to receive into."""
        directory = self.where / name
        directory.mkdir()
        return directory

    def recv(self, veth, listen, directory, key=None):
        """Start `farwrite recv` on `b`."""
        return self._start(veth, veth.b, "recv", "--listen", f"{listen}:{PORT}", "--once",
                           "--dir", str(directory), "--psk-file", str(key or self.key))

    def send(self, veth, to, *more, what=None):
        """Start `farwrite send` on `a`."""
        return self._start(veth, veth.a, "send", "--to", f"{to}:{PORT}", "--psk-file",
                           str(self.key), *more, str(what or self.tree))

    def _start(self, veth, host, *arguments):
        command = [self.path, "--json", "--quiet", *arguments]
        return veth.own(host.popen(command, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE))


def _plant(root):
    """Make files with sizes near that of a packet and larger ones, nested, empty and executable
    files, and files with unusual names."""
    sizes = {"empty": 0, "one": 1, "packet-1": 4095, "packet": 4096, "packet+1": 4097,
             "sub/large": 6_000_000, "sub/deep/er/name with ü and 'quotes'": 77_777,
             "-leading-dash": 12, "sub/run": 500}
    for name, size in sizes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
    (root / "sub/run").chmod(0o755)
    (root / "sub/nothing").mkdir()


def _listing(root):
    """Return the contents of a tree, by path: kind, whether it is executable, and checksum."""
    found = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            found[name] = "directory"
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = f"{bool(path.stat().st_mode & 0o100)} {digest}"
    return found


def _differences(sent, received):
    want, got = _listing(sent), _listing(received)
    return [f"{name}: {got.get(name)} arrived, {want.get(name)} sent"
            for name in sorted(want.keys() | got.keys()) if want.get(name) != got.get(name)]


def _ends(sender, receiver, seconds=90, lossy=False):
    """Wait for both ends. Return what went wrong according to their output. With `lossy`, the
    sender must have retransmitted something, or the receiver must have rebuilt something."""
    problems, repaired = [], False
    for name, process in (("send", sender), ("recv", receiver)):
        out, err = process.communicate(timeout=seconds)
        if process.returncode != 0:
            problems.append(f"{name}: exit code {process.returncode}: {err.strip()}")
        elif json.loads(out)["exit_code"] != 0:
            problems.append(f"{name}: {out}")
        else:
            result = json.loads(out)["result"]
            repaired |= bool(result["retransmitted_share"] or result["rebuilt_chunks"])
    if lossy and not repaired and not problems:
        problems.append("nothing was repaired: nothing was lost")
    return problems


def _trees(report, program):
    for listen, family in (("v4", 4), ("v6", 6), ("0.0.0.0", 4), ("[::]", 6), ("[::]", 4)):
        with Veth(9000 if family == 4 else 1500) as veth:
            own = veth.b.v4 if family == 4 else f"[{veth.b.v6}]"
            where = own if listen.startswith("v") else listen
            directory = program.fresh(f"{listen}-{family}")
            receiver = program.recv(veth, where, directory)
            _listening(veth)
            problems = _ends(program.send(veth, own), receiver)
        problems += _differences(program.tree, directory / "tree")
        report.check(f"recv on {where}, send over IPv{family}: the tree arrives", problems)


    with Veth(9000) as veth:
        directory = program.fresh("late")
        sender = program.send(veth, veth.b.v4)
        time.sleep(1)
        early = sender.poll() is not None
        problems = _ends(sender, program.recv(veth, veth.b.v4, directory))
    problems += ["it had ended before recv started"] if early else []
    problems += _differences(program.tree, directory / "tree")
    report.check("send is started first: the tree arrives", problems)


def _listening(veth):
    """Wait until the receiver listens."""
    until(lambda: f":{PORT}" in veth.b.run("ss", "-uln"), 60, "recv listens")


def _sealed(report, program):
    with Veth(9000, segment=True) as veth:
        directory = program.fresh("sealed")
        # Route packets (P6.2) begin with 0x1E and those of handshakes (P12.3) with 0x1B: they are not RoCE packets.
        roce = f"udp port {PORT} and udp[8] != 0x1e and udp[8] != 0x1b"
        wire = Capture(veth, veth.b, program.where / "wire.pcap", roce)
        receiver = program.recv(veth, veth.b.v4, directory)
        _listening(veth)
        problems = _ends(program.send(veth, veth.b.v4), receiver)
        size = sum(path.stat().st_size for path in program.tree.rglob("*") if path.is_file())
        frames, _ = wire.stop(enough=lambda frames: _carried(frames) >= size)
    report.check("the tree arrives", problems + _differences(program.tree, directory / "tree"))
    packets = [rocev2.parse(frame) for frame in frames]
    wrong = [f"frame {at}" for at, packet in enumerate(packets)
             if packet.icrc != rocev2.icrc(packet)]
    report.check(f"an independent ICRC matches in all {len(packets)} packets", wrong)
    carried = _carried(frames)
    report.check("all bytes of the files went in RoCEv2 writes",
                 None if carried >= size else f"{carried} of {size}")
    large = (program.tree / "sub/large").read_bytes()
    pieces = [large[at:at + 32] for at in range(1000, len(large), 100_000)]
    readable = sum(any(piece in frame for piece in pieces) for frame in frames)
    report.check("none of these bytes can be read on the path",
                 f"in {readable} packets" if readable else None)


def _carried(frames):
    """Return the payload bytes of the RoCEv2 writes among the frames."""
    return sum(len(rocev2.write(packet).payload) for packet in map(rocev2.parse, frames)
               if packet.opcode == rocev2.UC_WRITE_ONLY_WITH_IMMEDIATE)


def _keys(report, program):
    wrong = program.where / "other"
    subprocess.run([program.path, "keygen", str(wrong)], check=True, capture_output=True)
    with Veth(9000) as veth:
        directory = program.fresh("refused")
        receiver = program.recv(veth, veth.b.v4, directory, key=wrong)
        _listening(veth)
        sender = program.send(veth, veth.b.v4)
        _, err = sender.communicate(timeout=90)
        report.check("a sender with another key ends with exit code 3 and says why",
                     None if sender.returncode == 3 and "key" in err
                     else f"{sender.returncode}: {err}")
        receiver.terminate()
        receiver.communicate(timeout=60)
    report.check("and nothing was written", [str(path) for path in directory.rglob("*")])


def _losses(report, program):
    for scheme in ("auto", "sr-nack", "sr-rto", "gbn", "ec-xor:32,8", "ec-mds:20,4"):
        with Veth(9000, segment=True) as veth:
            done = impair(veth, 2)
            directory = program.fresh(f"loss-{scheme}")
            receiver = program.recv(veth, veth.b.v4, directory)
            _listening(veth)
            sender = program.send(veth, veth.b.v4, "--scheme", scheme, "--rate", "400Mbit")
            problems = _ends(sender, receiver, lossy=True)
        problems += _differences(program.tree, directory / "tree")
        report.check(f"{scheme}, {done}: the tree arrives", problems)


def _outage(report, program):
    big = program.where / "big"
    big.write_bytes(random.Random(5).randbytes(20_000_000))
    families = (4, 6)
    with futures.ThreadPoolExecutor(len(families)) as threads:
        running = [threads.submit(_with_outage, program, big, family) for family in families]
    for family, ended in zip(families, running):
        report.check(f"IPv{family}: the file arrives", ended.result())


def _with_outage(program, big, family):
    """Send a file with an outage in the middle. Return what went wrong."""
    with Veth(9000) as veth:
        own = veth.b.v4 if family == 4 else f"[{veth.b.v6}]"
        directory = program.fresh(f"outage-{family}")
        receiver = program.recv(veth, own, directory)
        _listening(veth)
        # The rate is so low that the outage comes in the middle even on a busy machine.
        sender = program.send(veth, own, "--rate", "50Mbit", what=big)
        until(lambda: veth.b.received_bytes() > 3_000_000, 60, "a transfer under way")
        veth.b.link("down")
        time.sleep(2)
        veth.b.link("up")
        problems = _ends(sender, receiver, lossy=True)
    return problems + _changes(big, directory)


def _changes(file, directory):
    """Return what is wrong with a file that was received into a directory."""
    arrived = directory / file.name
    if arrived.exists() and arrived.read_bytes() == file.read_bytes():
        return []
    return [f"in {directory.name}: {os.listdir(directory)}"]


def _copies(report, program):
    """An attacker repeats one captured data packet 30,000 times, faster than its sender sends. The
    packet is sealed, so its copies change nothing."""
    big = program.where / "copied"
    big.write_bytes(random.Random(7).randbytes(4_000_000))
    with Veth(1500, segment=True, checksums=True) as veth:
        directory = program.fresh("copies")
        receiver = program.recv(veth, veth.b.v4, directory)
        _listening(veth)
        attacker = veth.own(veth.a.popen(
            [sys.executable, str(_COPIES), veth.a.dev, str(PORT), "30000", "15000"],
            text=True, stdout=subprocess.PIPE))
        sender = program.send(veth, veth.b.v4, "--rate", "16Mbit", "--scheme", "ec-mds:32,8",
                              "--sealed", what=big)
        out, err = sender.communicate(timeout=60)
        receiver.communicate(timeout=60)
        copied, _ = attacker.communicate(timeout=60)
        read = _read_datagrams(veth.b)
    problems = [] if sender.returncode == 0 and "sent" in copied else [f"{sender.returncode}: {err}"]
    if not problems:
        # Parity that was not needed is stale too.
        stale = json.loads(out)["result"]["stale_packets"]
        problems += [f"{stale} copies count"] if stale > 5000 else []
        # The file and its parity are less than 4000 packets. So most of those read were copies.
        problems += [f"only {read} packets were read"] if read < 10_000 else []
    report.check("copies of a data packet change nothing", problems + _changes(big, directory))


def _read_datagrams(host):
    """Return how many UDP datagrams programs of a host have read."""
    names, counts = (line.split() for line in host.run("cat", "/proc/net/snmp").splitlines()
                     if line.startswith("Udp:"))
    return int(counts[names.index("InDatagrams")])


def _forged_icmp(report, program):
    big = program.where / "big-icmp"
    big.write_bytes(random.Random(6).randbytes(20_000_000))
    for family in (4, 6):
        with Veth(9000) as veth:
            own = veth.b.v4 if family == 4 else f"[{veth.b.v6}]"
            directory = program.fresh(f"icmp-{family}")
            receiver = program.recv(veth, own, directory)
            _listening(veth)
            sender = program.send(veth, own, "--rate", "25Mbit", what=big)
            until(lambda: veth.b.received_bytes() > 1_000_000, 60, "a transfer under way")
            forged = [_forge(host) for host in (veth.a, veth.b) for _ in range(2)]
            problems = [] if sender.poll() is None else ["the transfer was over"]
            problems += _ends(sender, receiver)
        problems += _changes(big, directory)
        if not all(forged):
            problems.append(f"connected sockets: {forged}")
        report.check(f"IPv{family}: messages that its packets are too large end nothing", problems)


def _forge(host):
    """Forge an ICMP message about each connected UDP socket of a host. Return how many."""
    # Queues, the local address and port, and those of the peer.
    sockets = [line.split() for line in host.run("ss", "-Hun").splitlines()]
    for _, _, *ends in sockets:
        places = (end.replace("[", "").replace("]", "").rpartition(":") for end in ends)
        words = [word for address, _, port in places for word in (address, port)]
        host.run(sys.executable, str(_ICMP), *words)
    return len(sockets)


def _shown(report, program):
    """Move the tree at 8 Mbit/s, which takes 6 s: people see a line of progress each second."""
    with Veth(9000) as veth:
        receiver = program.recv(veth, veth.b.v4, program.fresh("shown"))
        _listening(veth)
        sender = veth.own(veth.a.popen(
            [program.path, "send", "--to", f"{veth.b.v4}:{PORT}", "--psk-file", str(program.key),
             "--rate", "8Mbit", str(program.tree)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        out, err = sender.communicate(timeout=90)
        receiver.communicate(timeout=30)
    shown = re.compile(r"^ +sending +(\d+) % ([\d.]+) Mbit/s +\d+ s left \(--rate\) +\d+ % lost RTT [\d.]+ .s "
                       r"[\w:,-]+ mean [\d.]+ Mbit/s \d+ files ", re.MULTILINE)
    lines = [(int(share), float(rate)) for share, rate in shown.findall(err)]
    problems = [] if sender.returncode == 0 else [f"exit code {sender.returncode}"]
    if not lines or lines != sorted(lines, key=lambda line: line[0]):
        problems.append("the lines of progress are missing, or go back")
    problems += [f"{rate} Mbit/s at {share} %" for share, rate in lines if not 0 < rate < 9]
    if max((rate for _, rate in lines), default=0) < 4:
        problems.append("no line shows 4 Mbit/s or more")
    last = out.splitlines()[-1] if out else ""
    if not re.fullmatch(r"sent \d+ files, [\d.]+ MiB, in [\d.]+ s: [\d.]+ Mbit/s, limited by --rate", last):
        problems.append("the last line does not say what was sent, how fast, and what limited the rate")
    report.check("progress of send: share, rate, time left, losses, round trip, and the limit",
                 [f"{problem}: {err}{out}" for problem in problems])


_CASES = {
    "trees of files": _trees,
    "what it puts on the wire": _sealed,
    "another key": _keys,
    "losses": _losses,
    "an interface that is down for 2 s in the middle": _outage,
    "copies of a packet": _copies,
    "forged ICMP": _forged_icmp,
    "what people see": _shown,
}
