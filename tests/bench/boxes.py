"""The cost of a box that forwards frames: processor time per frame, and delay."""

import json
import os
import statistics
import subprocess

from lib.chain import Chain

from ends import Failed
from table import show

#: Bytes that a software RDMA NIC sends through the boxes at scale 1.
BYTES = 256 << 20
ECHOES = 2000
_WAYS = {
    "forwarding alone": ["lowar", "--forward"],
    "LoWAR(32, 1)": ["lowar", "--path-mtu", "4400", "--coding", "32,1"],
    "LoWAR(8, 1)": ["lowar", "--path-mtu", "4400", "--coding", "8,1"],
    "LoWAR, adaptive": ["lowar", "--path-mtu", "4400"],
    "NetRT": ["netrt", "--rate", "10Gbit", "--rtt", "1ms"],
}
_CLIENT = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
times = []
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    s.sendto(bytes(64), (sys.argv[1], 5002))
    s.recv(2048)
    times.append(time.perf_counter() - start)
print(sorted(times)[len(times) // 2])
"""
_SERVER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 5002))
print("ready", flush=True)
while True:
    s.sendto(*s.recvfrom(2048))
"""


def run(programs):
    """Prints two tables."""
    rows = []
    for mtu in (1024, 4096):
        base = None
        for name, options in _WAYS.items():
            sending, receiving = _median(programs, mtu, options)
            base = base or (sending, receiving)
            rows.append([name, str(mtu), sending / 1e6, sending / base[0], receiving / 1e6,
                         receiving / base[1]])
    show("Frames a second of processor time, in millions",
         "SENDs of 256 KiB between two RDMA NICs in software, two boxes between them, no loss; user "
         "and system time of each box; ratio to forwarding alone",
         ["box", "MTU", "sending box", "ratio", "receiving box", "ratio"], rows)
    plain = _delay(programs, None)
    rows = [[name, 1e6 * (_delay(programs, options) - plain) / 4] for name, options in _WAYS.items()]
    show("Delay of a box for a small datagram, in us",
         f"median of {ECHOES} round trips through two boxes, minus {1e6 * plain:.0f} us through two "
         "bridges of the kernel, divided by 4 passages",
         ["box", "delay"], rows)


def _median(programs, mtu, options):
    runs = [_rates(programs, mtu, options) for _ in range(programs.runs)]
    return tuple(statistics.median(box) for box in zip(*runs))


def _rates(programs, mtu, options):
    """Returns the number of frames that each box forwards per second of its processor time."""
    size = max(1 << 20, int(BYTES * programs.scale))
    data, out = programs.file(size), programs.directory / "box-out"
    with Chain(mtu=4400, host_mtu=4300) as chain:
        boxes = [_box(programs, chain, host, *options) for host in (chain.near_a, chain.near_b)]
        nics = []
        for host, peer, node, work in ((chain.b, chain.a, 1, ["--recv", f"{out}={size}"]),
                                       (chain.a, chain.b, 0, ["--send", str(data)])):
            command = [programs.rc_host, "--interface", "veth0", "--node", str(node), "--peer",
                       str(1 - node), "--peer-mac", chain.mac(peer), "--mtu", str(mtu), *work]
            nic = chain.own(host.popen(command, text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE))
            nic.stdout.readline()
            nics.append(nic)
        if any(nic.stdout.readline() != "done\n" for nic in nics):
            raise Failed("an RDMA NIC did not end its work")
        seconds = [_processor_seconds(box) for box in boxes]
        frames = [_stop(box) for box in boxes]
    return [carried / used for carried, used in zip(frames, seconds)]


def _box(programs, chain, host, kind, *options):
    command = [programs.farwrite, "--json", kind, "--near", "near", "--far", "far", "--every", "0s",
               "--no-key", *options]
    box = chain.own(host.popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    line = box.stderr.readline()
    if "Carrying" not in line:
        raise Failed(f"farwrite {kind}: {line}")
    return box


def _stop(box):
    """Ends a box and returns the number of frames that it received."""
    box.terminate()
    result = json.loads(box.communicate(timeout=20)[0])["result"]
    return result["near_received"] + result["far_received"]


def _processor_seconds(process):
    """Returns the user and system time (proc(5), `stat`)."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _delay(programs, options):
    """Returns a round trip in seconds. Without options, kernel bridges forward the frames."""
    with Chain() as chain:
        if options is None:
            for host in (chain.near_a, chain.near_b):
                host.ip("link", "add", "bridge", "type", "bridge")
                for device in ("near", "far"):
                    host.ip("link", "set", device, "master", "bridge")
                host.ip("link", "set", "bridge", "up")
        else:
            for host in (chain.near_a, chain.near_b):
                _box(programs, chain, host, *options)
        for host in (chain.a, chain.b):
            host.ip("addr", "add", f"{host.v4}/24", "dev", "veth0")
        echo = chain.own(chain.b.popen(["python3", "-c", _SERVER, chain.b.v4], text=True,
                                       stdout=subprocess.PIPE))
        echo.stdout.readline()
        return float(chain.a.run("python3", "-c", _CLIENT, chain.b.v4, str(ECHOES)))
