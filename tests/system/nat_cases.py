"""`farwrite` between machines behind address translation, and over paths whose MTU is smaller than
that of the interfaces at their ends."""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import subprocess
import time

from lib.ends import Ends
from lib.nat import A, B, FAR, Nat
from lib.nat_transfer import PORT, Transfer
from lib.veth import sh, until

#: Bytes that take 4 s at `SLOW`.
LONG, SLOW = 10_000_000, "20Mbit"


def run(report, program, directory):
    """`farwrite-rank` lies beside the program."""
    for number, (title, case) in enumerate(_CASES.items()):
        where = directory / f"nat-{number}"
        where.mkdir()
        with report.case(f"nat: {title}"):
            case(report, program, where)


def _kinds(report, program, where):
    for name, near, far in (("sender's", True, False), ("receiver's", False, True),
                            ("both", True, True)):
        with Nat() as nat:
            nat.route_openly()
            if near:
                nat.masquerade()
            if far:
                nat.forward()
            to = f"{FAR if far else B}:{PORT}"
            problems, _ = Transfer(nat, program, where / name, to).finish()
        report.check(f"translation at {name}: the file arrives", problems)


def _rewritten(report, program, where):
    with Nat() as nat:
        nat.masquerade()
        nat.forward(outer=14792, inner=PORT)
        transfer = Transfer(nat, program, where / "port", f"{FAR}:14792")
        with transfer.ends:
            ended = transfer.sender.end()
    problems = ended.problems("send", 3)
    text = " ".join(ended.errors + [str(ended.outcomes)])
    for word in (f"{B}:{PORT}", f"{FAR}:14792", "must keep ports"):
        if word not in text:
            problems.append(f"it does not say {word!r}")
    report.check("a receiver whose port is translated: refused with both addresses", problems)


def _rebinding(report, program, where):
    with Nat() as nat:
        nat.masquerade()
        nat.forward()
        transfer = Transfer(nat, program, where / "moved", f"{FAR}:{PORT}", "--rate", SLOW,
                            size=LONG, patience=30)
        until(lambda: nat.b.received_bytes("far") > LONG // 5, 60, "a transfer under way")
        before = _ports(nat)
        nat.rebind("30000-30999")
        problems, _ = transfer.finish()
        after = _ports(nat)
    report.check("a mapping that changes in the middle: the file arrives", problems)
    moved = any(20000 <= port < 21000 for port in before) and any(
        30000 <= port < 31000 for port in after)
    report.check("and it did change", None if moved else f"ports {before}, then {after}")


def _ports(nat):
    """Return the UDP ports that `near` has chosen, according to packets at `far`."""
    listing = nat.far.run("cat", "/proc/net/nf_conntrack")
    lines = [line.split() for line in listing.splitlines() if " udp " in line]
    words = [word for line in lines for word in line if word.startswith("sport=")]
    return {int(word.removeprefix("sport=")) for word in words} - {PORT}


def _sizes(report, program, where):
    for name, public, least, most in (("jumbo frames", 9000, 8912, 8912),
                                      ("Ethernet in the middle", 1500, 1412, 1412),
                                      ("a tunnel of 1420 bytes", 1420, 1332, 1332),
                                      ("3000 bytes in the middle", 3000, 2276, 2912)):
        with Nat(mtu=public, edge=9000) as nat:
            nat.route_openly()
            _drop_icmp(nat)
            where_to = where / name.replace(" ", "-")
            problems, result = Transfer(nat, program, where_to, f"{B}:{PORT}").finish()
        if not problems and not least <= result["mtu"] <= most:
            problems.append(f"the MTU is {result['mtu']}, {least} to {most} expected")
        report.check(f"{name}, ICMP dropped: the largest packets that pass are used", problems)


def _kept(report, program, where):
    # The size of unsealed packets: sealing takes 24 bytes of each.
    expected = [(1500, 1412, True), (1500, 1412, False), (1420, 1332, False), (1420, 1332, False)]
    cache = pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "farwrite" / "paths.toml"
    cache.unlink(missing_ok=True)
    found, kept = [], []
    with Nat(mtu=1500, edge=9000) as nat:
        nat.route_openly()
        _drop_icmp(nat)
        nat.near.nft("add table ip seen; add chain ip seen in { type filter hook prerouting priority 0; }; "
                     "add rule ip seen in iifname a meta l4proto udp ip length > 1500 counter")
        before = 0
        for number, (mtu, _, _) in enumerate(expected):
            for node, dev in ((nat.near, "far"), (nat.far, "near")):
                node.ip("link", "set", dev, "mtu", str(mtu))
            problems, result = Transfer(nat, program, where / str(number), f"{B}:{PORT}", learns=True).finish()
            report.check(f"transfer {number + 1}, {mtu} bytes in the middle: the file arrives", problems)
            large = int(re.search(r"packets (\d+)", nat.near.run("nft", "list", "table", "ip", "seen"))[1])
            found.append((mtu, result and result["mtu"], large > before))
            kept.append(re.findall(r"^mtu = (\d+)", cache.read_text(), re.MULTILINE) if cache.exists() else [])
            before = large
    cache.unlink(missing_ok=True)
    report.check("only the first one tries packets that the path never carried, and each uses the largest that pass",
                 None if found == expected else f"{found}; {expected} expected")
    report.check("the last size that was found is kept",
                 None if kept == [["1436"], ["1436"], ["1356"], ["1356"]] else f"{kept}")


def _described(report, program, where):
    link = where / "link.toml"
    link.write_text('rate = "20Mbit"\nrtt = "1ms"\nmtu = 8936\n')
    with Nat(mtu=1500, edge=9000) as nat:
        nat.route_openly()
        problems, result = Transfer(nat, program, where / "old", f"{B}:{PORT}", "--link",
                                    link).finish()
    if not problems and result["mtu"] != 1412:
        problems.append(f"the MTU is {result['mtu']}, 1412 expected")
    report.check("a path that carries less than its description says: smaller packets are used",
                 problems)


def _shrinking(report, program, where):
    fixed = ["--rate-control", "fixed", "--scheme", "ec-mds:32,8"]
    for name, args, shrink in (("adaptive", [], _drop_large), ("fixed, parity", fixed, _drop_large),
                               ("the sender's interface", [], _shrink_interface)):
        directory = where / f"shrinks-{name.replace(' ', '-')}"
        problems, result, said = _shrinks(program, directory, ["--rate", SLOW, *args], shrink)
        mtus = [result.get("first_mtu"), result.get("mtu")] if not problems else None
        if mtus and mtus != [8912, 1412]:
            problems.append(f"the MTU was {mtus[0]}, then {mtus[1]}; 8912, then 1412 expected")
        if not problems and not any("8912 bytes any more" in line for line in said):
            problems.append(f"it says {said[-2:]}")
        report.check(f"{name}: large packets are lost from the middle on, and the file arrives",
                     problems)


def _drop_large(nat):
    # The connection has packets of at most 1024 bytes of payload, so only data are dropped.
    nat.near.nft("add table ip hole; add chain ip hole pass "
                 "{ type filter hook forward priority 0; }; "
                 "add rule ip hole pass meta l4proto udp ip length > 1500 drop")


def _shrink_interface(nat):
    nat.a.ip("link", "set", "near", "mtu", "1500")


def _shrinks(program, where, args, shrink):
    """Send jumbo frames over a path that `shrink` makes smaller in the middle of the transfer."""
    with Nat(mtu=9000, edge=9000) as nat:
        nat.route_openly()
        _drop_icmp(nat)
        transfer = Transfer(nat, program, where, f"{B}:{PORT}", *args, size=LONG, patience=60)
        until(lambda: nat.b.received_bytes("far") > LONG // 5, 60, "a transfer under way")
        shrink(nat)
        problems, result = transfer.finish()
        return problems, result, transfer.sender.errors


def _shrinking_pipe(report, program, where):
    key, piped, limit = where / "key", where / "piped", 30
    sh(program, "keygen", str(key))
    data = random.Random(1).randbytes(LONG)
    with Nat(mtu=9000, edge=9000) as nat, piped.open("wb") as out:
        nat.route_openly()
        _drop_icmp(nat)

        def start(node, *words, **streams):
            command = [program, "--quiet", *words, "--psk-file", key, "--timeout", f"{limit}s"]
            return nat.own(subprocess.Popen(["ip", "netns", "exec", node.name, *command],
                                            stderr=subprocess.PIPE, **streams))

        receiver = start(nat.b, "recv", "-", "--listen", f"0.0.0.0:{PORT}", stdout=out)
        sender = start(nat.a, "send", "-", "--to", f"{B}:{PORT}", "--rate", SLOW, stdin=subprocess.PIPE)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            writing = pool.submit(sender.communicate, data)
            until(lambda: nat.b.received_bytes("far") > LONG // 5, 60, "a pipe under way")
            _drop_large(nat)
            said = [writing.result(120)[1].decode(), receiver.communicate(timeout=60)[1].decode()]
    codes = [sender.returncode, receiver.returncode]
    report.check("large packets are lost from the middle on: `send -` and `recv -` go on",
                 None if codes == [0, 0] else f"{codes}: {said}")
    report.check("and everything arrives once", None if piped.read_bytes() == data else "other bytes arrive")


def _flood(report, program, where):
    took = {}
    for name in ("quiet", "flooded"):
        with Nat() as nat, contextlib.ExitStack() as stack:
            nat.route_openly()
            if name == "flooded":
                stack.enter_context(nat.flood(PORT))
            before = nat.b.received_packets("far")
            start = time.monotonic()
            transfer = Transfer(nat, program, where / name, f"{B}:{PORT}", "--rate", "200Mbit",
                                size=50_000_000)
            problems, _ = transfer.finish(120)
            took[name] = time.monotonic() - start
            packets = nat.b.received_packets("far") - before
        report.check(f"{name}: the file arrives", problems)
    rate, factor = packets / took["flooded"], took["flooded"] / took["quiet"]
    # The flood takes processor time from both ends, and a busy machine may have no spare core. If
    # strangers' packets took the room of the peer's packets, most of the latter would be lost, and
    # the transfer would take many times as long. The benchmark `flood` measures the cost.
    report.check(f"with a stranger's {rate / 1000:.0f}k packets/s it takes {factor:.1f} times as long",
                 None if factor <= 8 else f"{took['quiet']:.1f} s, then {took['flooded']:.1f} s")


def _fixed(report, program, where):
    with Nat(mtu=1500, edge=9000) as nat:
        nat.route_openly()
        transfer = Transfer(nat, program, where / "fixed", f"{B}:{PORT}", "--mtu", "4096")
        with transfer.ends:
            ended = transfer.sender.end()
    problems = ended.problems("send", 2)
    if not any("--mtu 4096" in line for line in ended.errors):
        problems.append(f"it says {ended.errors[-2:]}")
    report.check("a size that was asked for and does not pass: refused", problems)


def _bleaching(report, program, where):
    for name, expected in (("carries", "kept"), ("clears", "cleared")):
        with Nat() as nat:
            nat.route_openly()
            if expected == "cleared":
                _bleach(nat)
            problems, result = Transfer(nat, program, where / name, f"{B}:{PORT}").finish()
        if not problems and result["ecn"] != expected:
            problems.append(f"the result says {result['ecn']!r}, {expected!r} expected")
        report.check(f"a path that {name} the ECN field: the sender finds this out", problems)


def _probe(report, program, where):
    link = where / "link.toml"
    with Nat(mtu=1500, edge=9000) as nat:
        nat.route_openly()
        nat.masquerade()
        # As after a forged ICMP message: the kernel knows a smaller MTU than that of the path.
        nat.a.ip("route", "add", B, "via", "10.1.0.1", "mtu", "1000")
        _bleach(nat)
        _drop_icmp(nat)
        with Ends(program, where, 20) as ends:
            ends.recv(where, at=f"0.0.0.0:{PORT}", host=nat.b)
            ended = ends.probe(f"{B}:{PORT}", "--max-rate", "200Mbit", "--time", "5s", "--save",
                               link, host=nat.a).end()
    problems = ended.problems("probe", 0)
    report.check("a probe of a receiver ends by itself", problems)
    if problems:
        return
    result = ended.outcomes[-1]["result"]
    found = {"ecn": result["ecn"], "translated": result["addresses"]["translated"],
             "mtu": result["mtu"]["ip_bytes"], "limit": result["mtu"]["limit"]}
    expected = {"ecn": "bleached", "translated": True, "mtu": 1500, "limit": "path"}
    report.check("it finds the path's MTU, the translation and the cleared ECN field",
                 None if found == expected else f"{found}; {expected} expected")
    planned = subprocess.run([program, "plan", "--link", link, "--size", "128MiB"],
                             capture_output=True, text=True)
    report.check("`plan` takes the description that it saved",
                 None if planned.returncode == 0 else planned.stderr)


def _group(report, program, where):
    operations = 60
    with Nat(mtu=1420, edge=9000) as nat:
        # 1:1 at rank 0, and another port at rank 1, which sends to rank 0 first.
        nat.masquerade()
        nat.forward()
        _drop_icmp(nat)
        rank = [pathlib.Path(program).with_name("farwrite-rank"), "--folder", where,
                "--operations", operations]
        zero = [*rank, "--rank", 0, "--bind", f"{B}:{PORT}", "--advertise", FAR]
        one = [*rank, "--rank", 1, "--bind", f"{A}:0"]
        with _Rank(nat.b, zero) as zero, _Rank(nat.a, one) as one:
            until(lambda: "reduced 5" in zero.lines(), 30, "all-reduces under way")
            before = _ports(nat)
            nat.rebind("30000-30999")
            ended = [zero.end(60), one.end(60)]
            after = _ports(nat)
    problems = []
    for number, (code, lines) in enumerate(ended):
        if code != 0 or lines[-1] != f"reduced {operations - 1}":
            problems.append(f"rank {number}: exit code {code}, {lines[-2:]}")
        # 1420 bytes without 64 of headers, in whole elements.
        elif lines[0] != "joined 1352":
            problems.append(f"rank {number}: {lines[0]}, 1352 bytes expected")
    report.check("both ranks use the largest packets, and all sums are right", problems)
    moved = any(20000 <= port < 21000 for port in before) and any(
        30000 <= port < 31000 for port in after)
    report.check("a mapping changes meanwhile", None if moved else f"ports {before}, then {after}")


class _Rank:
    """A running rank. Its output goes to a file."""

    def __init__(self, node, command):
        command = [str(word) for word in command]
        self.log = pathlib.Path(command[2]) / f"{command[command.index('--rank') + 1]}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", node.name, *command],
                                            stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def lines(self):
        """Return what the rank has said so far."""
        return self.log.read_text().splitlines()

    def end(self, seconds):
        """Wait for the rank. Return its exit code and what it said."""
        return self.process.wait(seconds), self.lines()


def _bleach(nat):
    """Make `near` clear the ECN field of UDP packets."""
    nat.near.nft("add table ip bleach; add chain ip bleach pass "
                 "{ type filter hook forward priority 0; }; "
                 "add rule ip bleach pass meta l4proto udp ip ecn set not-ect")


def _drop_icmp(nat):
    for router in (nat.near, nat.far):
        router.nft("add table ip mute; add chain ip mute out "
                   "{ type filter hook output priority 0; }; "
                   "add rule ip mute out meta l4proto icmp drop")


_CASES = {
    "at the sender, at the receiver, at both": _kinds,
    "a receiver whose port is translated": _rewritten,
    "a mapping that changes in the middle": _rebinding,
    "packet sizes": _sizes,
    "a packet size that was found is kept": _kept,
    "a packet size that the path does not carry": _fixed,
    "a description with larger packets than the path carries": _described,
    "large packets are lost from the middle on": _shrinking,
    "large packets of a pipe are lost from the middle on": _shrinking_pipe,
    "a path that clears the ECN field": _bleaching,
    "a probe": _probe,
    "a group of two ranks": _group,
    "a flood of strangers": _flood,
}
