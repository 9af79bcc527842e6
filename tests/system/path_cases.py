"""The effect of networks on a transfer: several paths, several addresses, small MTUs, loss,
outages."""

import ipaddress
import random
import time
from collections import Counter
from concurrent import futures

from lib import rocev2
from lib.capture import Capture
from lib.peer import PORT, Pair, PeerFailed
from lib.veth import Veth, impair, until

#: A rate in bits per second, and the number of bytes that take a second and a half at this rate.
SLOW = 100_000_000
LONG = SLOW // 8 * 3 // 2


def run(report, program, directory):
    for number, (title, case) in enumerate(_CASES.items()):
        where = directory / f"path-{number}"
        where.mkdir()
        with report.case(f"path: {title}"):
            case(report, program, where)


def _fresh(where, name):
    directory = where / name
    directory.mkdir()
    return directory


def _whole(transfer):
    """Return what went wrong with a transfer."""
    return transfer.problems + transfer.drops()


def _channels(report, program, where):
    with Veth(9000) as veth:
        wire = Capture(veth, veth.b, where / "wire.pcap", f"udp and dst host {veth.b.v4}")
        messages = [random.Random(1).randbytes(2_000_000)]
        transfer = Pair(veth, program, where, messages, channels=4, offload=False).finish()
        frames, problems = wire.stop(transfer.sender["sent"])
    report.check("the message arrives whole", _whole(transfer) + problems)
    packets = [rocev2.parse(frame) for frame in frames]
    ports = Counter()
    problems = []
    for packet in packets:
        if packet.opcode != rocev2.UC_WRITE_ONLY_WITH_IMMEDIATE:
            continue
        channel = transfer.data_qpns.index(packet.destination_qp) % 4
        ports[packet.destination_port] += 1
        if not packet.source_port == packet.destination_port == PORT + channel:
            problems.append(f"channel {channel} from port {packet.source_port} "
                            f"to {packet.destination_port}")
    report.check("each channel has ports of its own at both ends", problems)
    least = min(ports.values()) if len(ports) == 4 else 0
    report.check("all four carry about as much",
                 None if least > sum(ports.values()) // 8 else f"packets by port: {ports}")


def _gro(report, program, where):
    for family in (4, 6):
        with Veth(9000) as veth:
            # A veth joins packets of local sockets only with both settings.
            veth.b.run("ethtool", "-K", veth.b.dev, "gro", "on", "rx-udp-gro-forwarding", "on")
            # The time for which a packet waits for others to be joined with it.
            veth.b.run("sh", "-c", f"echo 200000 > /sys/class/net/{veth.b.dev}/gro_flush_timeout")
            directory = _fresh(where, str(family))
            wire = Capture(veth, veth.b, directory / "wire.pcap", "udp")
            messages = [random.Random(2).randbytes(2_000_000)]
            transfer = Pair(veth, program, directory, messages, family=family,
                            offload={veth.a: False, veth.b: True}).finish()
            frames, _ = wire.stop(enough=_are_joined)
        report.check(f"IPv{family}: the message arrives whole", _whole(transfer))
        report.check(f"IPv{family}: and the kernel did join packets",
                     None if _are_joined(frames) else f"no batch among {len(frames)}")


def _are_joined(frames):
    """Return whether a captured frame is longer than the MTU of the interface."""
    return any(len(frame) > 9014 for frame in frames)


def _wildcards(report, program, where):
    for bind, family in (("0.0.0.0", 4), ("::", 6), ("::", 4)):
        name = f"{'[::]' if bind == '::' else bind}, IPv{family}"
        with Veth(9000, segment=True) as veth:
            other = "10.77.0.101" if family == 4 else "fd77::101"
            subnet = "10.77.0.0/24" if family == 4 else "fd77::/64"
            prefix = subnet.split("/")[1]
            veth.a.ip("addr", "add", f"{other}/{prefix}", "dev", veth.a.dev, "nodad")
            # IPv6 prefers the newest address, so set the source address of the route.
            change = ["route", "change" if family == 4 else "replace", subnet, "dev", veth.a.dev]
            metric = ["metric", "256"] if family == 6 else []
            veth.a.ip(*change, *metric, "src", veth.a.address(family))
            directory = _fresh(where, f"{len(bind)}-{family}")
            wire = Capture(veth, veth.a, directory / "wire.pcap", "udp")
            messages = [random.Random(3).randbytes(LONG // 4)]
            pair = Pair(veth, program, directory, messages, family=family, bind=bind, rate=SLOW)
            until(lambda: veth.b.received_bytes() > LONG // 16, 60, "a transfer under way")
            veth.a.ip(*change, *metric, "src", other)
            now = veth.a.ip("route", "get", veth.b.address(family))
            transfer = pair.finish()
            frames, problems = wire.stop(transfer.sender["sent"] + transfer.receiver["sent"])
        report.check(f"{name}: the message arrives whole", _whole(transfer) + problems)
        report.check(f"{name}: the route did change", None if other in now else now.strip())
        report.check(f"{name}: yet every packet came from the address that the peer knows",
                     _sources(frames, veth, family))


def _sources(frames, veth, family):
    from_a = ipaddress.ip_address(veth.a.address(family)).packed
    from_b = ipaddress.ip_address(veth.b.address(family)).packed
    start, size = (26, 4) if family == 4 else (22, 16)
    sources = Counter(frame[start:start + size] for frame in frames)
    strangers = set(sources) - {from_a, from_b}
    return [f"{sources[s]} from {ipaddress.ip_address(s)}" for s in strangers]


def _mtus(report, program, where):
    for family, offload in ((4, True), (4, False), (6, True)):
        name = f"IPv{family}, {'with' if offload else 'without'} GSO"
        with Veth(1500) as veth:
            directory = _fresh(where, f"{family}-{offload}")
            pair = Pair(veth, program, directory, [bytes(100_000)], family=family, offload=offload)
            report.check(f"{name}: the sender says so", _refusal(pair))
    with Veth(9000) as veth:
        directory = _fresh(where, "later")
        # The rate is so low that the error comes in the middle even on a busy machine. The error
        # ends the transfer early.
        pair = Pair(veth, program, directory, [bytes(LONG)], rate=SLOW // 4)
        until(lambda: veth.b.received_bytes() > LONG // 24, 60, "a transfer under way")
        veth.a.ip("link", "set", veth.a.dev, "mtu", "1500")
        report.check("an interface whose MTU shrinks in the middle: the sender says so",
                     _refusal(pair))


def _refusal(pair):
    """Return what is wrong with the error of a sender whose path carries 1500 bytes."""
    try:
        pair.a.expect("sent", 60)
    except PeerFailed as failure:
        text = str(failure)
        if "1500" in text and "path MTU" in text and "4132" in text:
            return []
        return [f"it says {text!r}"]
    return ["it did not notice"]


def _loss(report, program, where):
    for scheme, family in (("sr-nack", 4), ("sr-rto", 6), ("gbn", 4), ("ec-xor:32,8", 6),
                           ("ec-mds:32,8", 4)):
        with Veth(9000, segment=True) as veth:
            done = impair(veth, 2)
            directory = _fresh(where, scheme)
            messages = [random.Random(n).randbytes(4_000_000) for n in range(3)]
            transfer = Pair(veth, program, directory, messages, family=family, immediate=5,
                            scheme=scheme).finish(120)
        problems = _whole(transfer)
        repaired = (transfer.receiver["rebuilt"] if scheme.startswith("ec-")
                    else transfer.sender["repeated"])
        if not repaired:
            problems.append("nothing was repaired: there was no loss")
        report.check(f"{scheme}, IPv{family}, {done}: three messages arrive whole", problems)


def _outages(report, program, where):
    """Run all outages at the same time, because they mostly wait."""
    # For IPv6, Linux removes the addresses of an interface that goes down, unless it is configured
    # to keep them.
    cases = [("receiver's", 4, "sr-nack", True), ("sender's", 4, "sr-rto", True),
             ("sender's", 6, "sr-nack", True), ("receiver's", 6, "gbn", True),
             ("sender's", 6, "sr-rto", False), ("receiver's", 6, "sr-nack", False)]
    with futures.ThreadPoolExecutor(len(cases)) as threads:
        running = [threads.submit(_outage, program, _fresh(where, str(number)), *case)
                   for number, case in enumerate(cases)]
    for (end, family, scheme, keep), ended in zip(cases, running):
        name = f"{end}, IPv{family}, {scheme}{'' if keep else ', addresses taken away'}"
        report.check(f"{name}: the message arrives whole", ended.result())


def _outage(program, directory, end, family, scheme, keep):
    """Run a transfer with an outage at one end in the middle. Return what went wrong."""
    with Veth(9000) as veth:
        host = veth.b if end == "receiver's" else veth.a
        if not keep:
            host.run("sysctl", "-qw", f"net.ipv6.conf.{host.dev}.keep_addr_on_down=0")
        # The rate is so low that the outage comes in the middle even on a busy machine.
        pair = Pair(veth, program, directory, [random.Random(7).randbytes(LONG)], family=family,
                    rate=SLOW // 4, scheme=scheme)
        until(lambda: veth.b.received_bytes() > LONG // 6, 60, "a transfer under way")
        host.link("down")
        time.sleep(2)
        host.link("up")
        if not keep:
            host.add_v6()
        return _survives(pair)


def _flapping(report, program, where):
    """Remove the sender's address and add it again 2,000 times: some system calls fail because it
    is missing, and it is there again when the sender looks for it."""
    with Veth(9000) as veth:
        pair = Pair(veth, program, where, [random.Random(8).randbytes(4 * LONG)], family=6, mtu=1024,
                    rate=2 * SLOW)
        until(lambda: veth.b.received_bytes() > LONG // 18, 60, "a transfer under way")
        flap = (f"addr del {veth.a.v6}/64 dev {veth.a.dev}\n"
                f"addr add {veth.a.v6}/64 dev {veth.a.dev} nodad\n")
        (where / "flaps").write_text(2000 * flap)
        veth.a.ip("-batch", str(where / "flaps"))
        problems = _survives(pair)
    report.check("IPv6: the message arrives whole", problems)


def _survives(pair):
    """Return what went wrong with a transfer that had an outage."""
    try:
        transfer = pair.finish(90)
    except PeerFailed as failure:
        return [str(failure)]
    if not transfer.sender["repeated"]:
        return transfer.problems + ["nothing was sent again: there was no outage"]
    return transfer.problems


_CASES = {
    "four channels": _channels,
    "packets that left one by one, joined by the receiver's kernel": _gro,
    "wildcard binds, and a route that changes its source address": _wildcards,
    "an MTU that the path does not carry": _mtus,
    "losses": _loss,
    "an interface that is down for 2 s in the middle": _outages,
    "a source address that comes and goes": _flapping,
}
