"""RC packets of our NICs, between namespaces and in a simulated network, as tshark reads them."""

import csv
import decimal
import struct
import subprocess

from lib import capture, expected, rocev2, tshark
from lib.capture import Capture
from lib.chain import Chain
from lib.rig import BYTES, LOSS, Rig

#: Opcodes of reliable connections (IBTA volume 1, table 38), and those with an RETH or an AETH.
SEND_FIRST, SEND_MIDDLE, SEND_LAST = 0, 1, 2
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMMEDIATE = 6, 7, 8, 9
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, ACKNOWLEDGE = 12, 13, 14, 15, 17
WITH_RETH = (WRITE_FIRST, READ_REQUEST)
WITH_AETH = (READ_FIRST, READ_LAST, ACKNOWLEDGE)
#: The opcode of a congestion notification packet (IBTA A17.9.3).
NOTIFICATION = 0x81
#: Bytes of a message of the NICs.
MESSAGE = 1 << 18
#: The highest bits of the syndrome of a negative acknowledgement (IBTA 9.7.5.2).
NEGATIVE = 3

PLAN = """
[topology.rack]
shape = "star"
hosts = 4
cable = { rate = "10Gbit", delay = "2us", loss = 0.05 }

[workload.incast]
pattern = "incast"
senders = 3
size = "2MB"
"""

#: In PLAN without losses, the switch marks and the receiver answers marks with notifications. The
#: first flow is a WRITE with immediate, because a trigger waits for its end at the receiver.
IMMEDIATE_PLAN = """
[topology.rack]
shape = "star"
hosts = 4
cable = { rate = "10Gbit", delay = "2us" }

[workload.incast]
file = "immediate.cm"
"""
MATRIX = """Nodes 4
Connections 4
Triggers 1
1->3 id 1 start 0 size 2000000 recv_done_trigger 1
0->3 id 2 start 0 size 2000000
2->3 id 3 start 0 size 2000000
3->0 id 4 trigger 1 size 9000
trigger id 1 oneshot
"""


def run(report, programs, directory):
    with report.case("rc: SEND and READ between namespaces, one packet in fifty lost"):
        _real(report, Rig(programs, directory), directory)
    with report.case("rc: WRITE in a simulated network, captured at a sender"):
        _simulated(report, str(programs / "farwrite"), directory)
    with report.case("rc: WRITE with immediate and CNPs in a simulated network"):
        _notified(report, str(programs / "farwrite"), directory)


def _real(report, rig, directory):
    path, out = directory / "rc.pcap", directory / "rc-read"
    with Chain() as chain, rig.boxes(chain, "--forward"):
        chain.lose(LOSS)
        wire = Capture(chain, chain.b, path, "udp port 4791")
        wrong, _ = rig.send(chain)
        report.check("the bytes sent arrive", wrong)
        rig.nics(chain, ["--serve", rig.data], ["--read", f"{out}={BYTES}"])
        same = out.read_bytes() == rig.data.read_bytes()
        report.check("the bytes read are those served", None if same else "they differ")
        frames, _ = wire.stop(enough=_has_last_response)
    packets = [rocev2.parse(frame) for frame in frames]
    bad = [f"frame {at}" for at, packet in enumerate(packets) if packet.icrc != rocev2.icrc(packet)]
    report.check(f"an independent ICRC matches in each of {len(packets)} packets", bad)
    rows = tshark.decode(path)
    report.check("tshark reads all as RoCEv2, with our opcodes, queue pairs, PSNs, pad counts",
                 expected.headers(rows, packets))
    report.check("tshark reads our RETH and AETH", _extensions(rows, packets))
    wanted = {SEND_FIRST, SEND_MIDDLE, SEND_LAST, READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST,
              ACKNOWLEDGE}
    seen = {packet.opcode for packet in packets}
    report.check("the capture has each kind of packet: SEND and READ, first to last, and ACK",
                 None if wanted <= seen else f"opcodes {sorted(seen)}")
    negative = [row for row in rows if row["opcode"] == str(ACKNOWLEDGE)
                and expected.number(row["syndrome"]) >> 5 == NEGATIVE]
    report.check("the receiver sends negative acknowledgements", None if negative else "none")


def _has_last_response(frames):
    at = rocev2.ETHERNET_BYTES + 20 + rocev2.UDP_BYTES
    return sum(frame[at] == READ_LAST for frame in frames) >= BYTES // MESSAGE


def _extensions(rows, packets):
    """Return where tshark and the bytes differ in the headers after the BTH."""
    problems = []
    for at, (row, packet) in enumerate(zip(rows, packets)):
        if packet.opcode in WITH_RETH:
            ours = struct.unpack_from("!QII", packet.body)
            theirs = tuple(expected.number(row[name]) for name in ("address", "rkey", "length"))
        elif packet.opcode in WITH_AETH:
            word, = struct.unpack_from("!I", packet.body)
            ours = (word >> 24, word & 0xFFFFFF)
            theirs = tuple(expected.number(row[name]) for name in ("syndrome", "msn"))
        else:
            continue
        if ours != theirs:
            problems.append(f"frame {at}: tshark has {theirs}, not {ours}")
    return problems


def _simulated(report, program, directory):
    plan, out = directory / "rc.toml", directory / "rc-sim"
    plan.write_text(PLAN)
    # The plan's receiver is host 3.
    subprocess.run([program, "--quiet", "sim", str(plan), "--out", str(out), "--capture", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    with (out / "flows.csv").open() as file:
        flow, = (flow for flow in csv.DictReader(file) if flow["src"] == "1")
    path = out / "capture.pcap"
    rows = tshark.decode(path)
    kept = len(capture.read(path))
    report.check(f"tshark reads all {kept} packets as RoCEv2",
                 [f"frame {at}: {row['protocols']}" for at, row in enumerate(rows)
                  if row["protocols"].split(":")[3:5] != ["udp", "infiniband"]]
                 or (None if len(rows) == kept else f"it shows {len(rows)}"))
    data = [row for row in rows
            if row["opcode"] in map(str, (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST))]
    report.check("the capture has each packet that the NIC sent",
                 None if len(data) == int(flow["packets"]) else f"{len(data)}, {flow}")
    repeated = len(data) - len({row["psn"] for row in data})
    report.check("packets with a PSN that was sent before are those that the NIC repeated",
                 None if repeated == int(flow["repeated"]) > 0 else f"{repeated}, {flow}")
    first, last = (decimal.Decimal(row["time"]) for row in (rows[0], rows[-1]))
    took_ns = int((last - first) * 10**9)
    report.check("the flow takes the time from its first packet to its last acknowledgement",
                 None if took_ns == int(flow["fct_ns"]) and rows[-1]["opcode"] == str(ACKNOWLEDGE)
                 else f"{took_ns} ns, {flow}")


def _notified(report, program, directory):
    plan, out = directory / "immediate.toml", directory / "rc-immediate"
    plan.write_text(IMMEDIATE_PLAN)
    (directory / "immediate.cm").write_text(MATRIX)
    subprocess.run([program, "--quiet", "sim", str(plan), "--out", str(out), "--capture", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    rows = tshark.decode(out / "capture.pcap")
    bad = [f"frame {at}: {row['protocols']}" for at, row in enumerate(rows)
           if row["protocols"].split(":")[3:5] != ["udp", "infiniband"]]
    report.check(f"tshark reads all {len(rows)} packets as RoCEv2", bad)
    ends = [row for row in rows if row["opcode"] == str(WRITE_LAST_IMMEDIATE)]
    report.check("the WRITE ends with one packet with an immediate of 0, which tshark shows",
                 None if len(ends) == 1 and expected.number(ends[0]["immediate"]) == 0
                 else f"{ends}")
    notices = [row for row in rows if row["opcode"] == str(NOTIFICATION)]
    report.check("the sender gets CNPs, whose PSN is 0",
                 None if notices and all(expected.number(row["psn"]) == 0 for row in notices)
                 else f"{notices[:3]}")
