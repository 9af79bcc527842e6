"""Packets as a wire carries them, checked by tshark and by our own ICRC implementation."""

import dataclasses
import random

from lib import capture, control, expected, rocev2, tshark
from lib.capture import Capture
from lib.peer import Pair
from lib.veth import Veth

#: Family, MTU of the link, MTU of the queue pair, offload.
CASES = [
    (4, 9000, 4096, True),
    (4, 9000, 4096, False),
    (6, 9000, 4096, True),
    (6, 9000, 4096, False),
    (4, 1500, 512, True),
    (6, 1500, 1024, True),
]


def run(report, program, directory):
    for family, link_mtu, mtu, offload in CASES:
        name = f"IPv{family}, link {link_mtu}, MTU {mtu}, {'with' if offload else 'without'} GSO"
        where = directory / f"wire-{family}-{link_mtu}-{offload}"
        where.mkdir()
        with report.case(f"wire: {name}"):
            with Veth(link_mtu, segment=True, checksums=not offload) as veth:
                moved = _move(veth, program, where, family, mtu, offload)
            seen = _judge(report, where, moved, family, mtu, offload)
            if mtu == 4096 and offload:
                _doubt_icrc(report, seen)
                _doubt_tshark(report, where, seen, mtu)


def _move(veth, program, where, family, mtu, offload):
    """Move three messages with immediates: a long one with an odd length, a short one, an empty
    one."""
    messages = [random.Random(family).randbytes(700_001), b"short", b""]
    wire = Capture(veth, veth.b, where / "wire.pcap")
    transfer = Pair(veth, program, where, messages, family=family, mtu=mtu, offload=offload,
                    immediate=0xDEADBEE0).finish()
    frames, problems = wire.stop(transfer.sender["sent"] + transfer.receiver["sent"])
    return transfer, frames, problems


@dataclasses.dataclass
class Seen:
    """A capture, parsed by our own code and by tshark."""

    transfer: object
    packets: list
    rows: list
    clearances: dict


def _judge(report, where, moved, family, mtu, offload):
    transfer, frames, problems = moved
    report.check("three messages with immediates arrive whole", transfer.problems)
    report.check("neither end dropped a packet", transfer.drops())
    report.check(f"all {len(frames)} packets of both ends were captured", problems)
    packets = [rocev2.parse(frame) for frame in frames]
    bad = [f"frame {at}: ICRC {packet.icrc.hex()}, should be {rocev2.icrc(packet).hex()}"
           for at, packet in enumerate(packets) if packet.icrc != rocev2.icrc(packet)]
    report.check("an independent ICRC matches in each", bad)
    if not offload:
        bad = [f"frame {at}" for at, packet in enumerate(packets)
               if not rocev2.udp_checksum_is_right(packet)]
        report.check("the UDP checksum holds in each", bad)
    if family == 4:
        most = 0 if not offload else min(64, 65_507 // (mtu + 36)) - 1
        report.check(f"IPv4 identifications count from 0 to {most} at most in each batch, Don't Fragment is set",
                     _identifications(packets, most))
    rows = tshark.decode(where / "wire.pcap")
    report.check("tshark reads all as RoCEv2, with our opcodes, queue pairs, PSNs, pad counts",
                 expected.headers(rows, packets))
    report.check("PSNs of each queue pair go up by one", expected.psns(rows))
    report.check("the others are SENDs between the control queue pairs",
                 expected.controls(rows, transfer))
    texts = [control.payload(p) for p in packets if p.opcode == rocev2.UC_SEND_ONLY]
    report.check("control packets read as P4 says, and tell lengths, clearances, completion",
                 _controls(texts, transfer))
    clearances = control.clearances(texts)
    report.check("queue pair, address, key, length, immediate, payload of each write are those sent",
                 expected.writes(rows, transfer, clearances, mtu))
    return Seen(transfer, packets, rows, clearances)


def _identifications(packets, most):
    """Return the identifications that do not start at 0 or do not increase by one in a sender's
    batch, or that no batch has. The rate decides how long batches are."""
    problems, last, highest = [], {}, 0
    for at, packet in enumerate(packets):
        want = (0, last.get(packet.source, -1) + 1)
        last[packet.source] = packet.identification
        highest = max(highest, packet.identification)
        if packet.identification not in want:
            problems.append(f"frame {at}: identification {packet.identification}, not of {want}")
    if highest > most or highest < most // 2:
        problems.append(f"the highest identification is {highest}")
    return problems


def _controls(texts, transfer):
    lengths, over = {}, set()
    for text in texts:
        for kind, body in control.messages(text):
            message = int.from_bytes(body[:8], "big")
            if kind == control.OFFER:
                lengths[message] = int.from_bytes(body[8:16], "big")
            elif kind == control.RECEIVE_COMPLETE and body[8] == 0:
                over.add(message)
    problems = []
    numbers = range(len(transfer.messages))
    if lengths != {n: len(transfer.messages[n]) for n in numbers}:
        problems.append(f"offers told of lengths {lengths}")
    if sorted(control.clearances(texts)) != list(numbers):
        problems.append(f"clearances: {control.clearances(texts)}")
    if over != set(numbers):
        problems.append(f"told as complete: {sorted(over)}")
    return problems


def _doubt_icrc(report, seen):
    """Check that every byte affects the ICRC, except those that P2.5 replaces by ones."""
    packet = max(seen.packets, key=lambda p: len(p.frame))
    start, udp, bth = rocev2.ETHERNET_BYTES, packet.udp_at, packet.bth_at
    # For these bytes, the bits that may change on the path.
    free = {udp + 6: 0xFF, udp + 7: 0xFF, bth + 4: 0xFF}
    if packet.version == 4:
        free |= {start + 1: 0xFF, start + 8: 0xFF, start + 10: 0xFF, start + 11: 0xFF}
    else:
        free |= {start: 0x0F, start + 1: 0xFF, start + 2: 0xFF, start + 3: 0xFF, start + 7: 0xFF}
    unseen, upset = [], []
    for at in range(start, len(packet.frame) - rocev2.ICRC_BYTES):
        for bits in {free.get(at, 0), ~free.get(at, 0) & 0xFF} - {0}:
            frame = bytearray(packet.frame)
            frame[at] ^= bits
            right = rocev2.icrc(dataclasses.replace(packet, frame=bytes(frame))) == packet.icrc
            if right and not free.get(at, 0) & bits:
                unseen.append(f"byte {at} of the frame")
            if not right and free.get(at, 0) & bits:
                upset.append(f"byte {at} of the frame")
    report.check(f"a change of any of {len(packet.frame) - start} bytes breaks the ICRC", unseen)
    report.check("fields that routers may change do not", upset)


#: The fields of a write to change, with their offset from the BTH, or from the end of the frame.
_DAMAGE = {"queue pair": 7, "PSN": 11, "address": 18, "rkey": 23, "length": 27, "immediate": 31,
           "payload": 32, "end of the payload": -5}


def _doubt_tshark(report, where, seen, mtu):
    """Check that changed packets and missing packets are detected."""
    writes = [at for at, packet in enumerate(seen.packets)
              if packet.opcode == rocev2.UC_WRITE_ONLY_WITH_IMMEDIATE]
    victims = dict(zip(_DAMAGE, writes[3::5]))
    frames = [bytearray(packet.frame) for packet in seen.packets]
    for what, victim in victims.items():
        offset = _DAMAGE[what]
        frames[victim][seen.packets[victim].bth_at + offset if offset > 0 else offset] ^= 1
    capture.write(where / "changed.pcap", frames)
    rows = tshark.decode(where / "changed.pcap")

    def judge(rows):
        return expected.psns(rows) + expected.writes(rows, seen.transfer, seen.clearances, mtu)
    problems = judge(rows)
    for what, victim in victims.items():
        found = any(problem.startswith(f"frame {victim}:") for problem in problems)
        report.check(f"a changed {what} is noticed", None if found else "it was not")
    lost = seen.rows[:writes[3]] + seen.rows[writes[3] + 1:]
    report.check("a missing packet is noticed", None if judge(lost) else "it was not")
