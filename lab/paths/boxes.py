"""The cost of a box that forwards frames: processor time per frame, packets of a saturated core, and delay."""

import json
import os
import statistics
import subprocess

from lib.chain import Chain

from ends import REAL_TIME, Failed
from table import show

#: Bytes that a software RDMA NIC sends through the boxes at scale 1.
BYTES = 256 << 20
ECHOES = 2000
#: How long packets flood a box at scale 1.
FLOOD_MS = 3000
#: A box is saturated if it does not read this share of the packets.
UNREAD = 0.02
#: One-packet messages that a NIC sends for a delay at scale 1, each after the acknowledgement of the
#: one before.
MESSAGES = 5000
_WAYS = {
    "forwarding alone": ["lowar", "--forward"],
    "LoWAR(32, 1)": ["lowar", "--ip-mtu", "4400", "--coding", "32,1"],
    "LoWAR(8, 1)": ["lowar", "--ip-mtu", "4400", "--coding", "8,1"],
    "LoWAR, adaptive": ["lowar", "--ip-mtu", "4400"],
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
#: Notes when the kernel sees each SEND of one packet, by PSN. It sleeps while they pass, so that it takes
#: no core from the boxes.
_WATCH = """
import json, socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)  # SO_RCVBUFFORCE
s.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
print("ready", flush=True)
sys.stdin.read()
s.setblocking(False)
times = {}
try:
    while True:
        frame, control, *_ = s.recvmsg(64, 64)
        # IPv4 without options, UDP to the port of RoCEv2, an RC SEND of position Only.
        if frame[12:14] == b"\\x08\\x00" and frame[23] == 17 and frame[36:38] == b"\\x12\\xb7" and frame[42] == 4:
            seconds, ns = struct.unpack("qq", control[0][2])
            times.setdefault(int.from_bytes(frame[51:54], "big"), seconds * 10**9 + ns)
except BlockingIOError:
    print(json.dumps(times))
"""


def run(programs):
    """Prints four tables."""
    _costs(programs)
    _saturated(programs)
    _datagrams(programs)
    _packets(programs)


def _costs(programs):
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


def _saturated(programs):
    rows = []
    for mtu in (1024, 4096):
        base = None
        for name, options in _WAYS.items():
            # Losses behind the box would change an adaptive shape.
            if name == "LoWAR, adaptive":
                continue
            rates = sorted(_flooded(programs, mtu, options) for _ in range(programs.runs))
            rate = statistics.median(rates)
            base = base or rate
            rows.append([name, str(mtu), rate / 1e6, rate / base, rates[0] / 1e6, rates[-1] / 1e6])
    show("Data packets a second that a sending box forwards on one saturated core, in millions",
         "the box alone on core 0, with the kernel's work for the frames that it receives and sends; on core 1, a "
         f"sender without pauses for {FLOOD_MS * programs.scale / 1000:g} s, and the other box; medians of "
         f"{programs.runs} runs, and their range",
         ["box", "MTU", "packets", "ratio", "least", "most"], rows)


def _flooded(programs, mtu, options):
    """Returns the data packets that the sending box forwards per second. NetRT's sending half needs no answers. Where
    it stands, the other box only forwards, because packets that it lost would be repeated."""
    far = ["lowar", "--forward"] if options[0] == "netrt" else options
    milliseconds = max(200, int(FLOOD_MS * programs.scale))
    with Chain(mtu=4400, host_mtu=4300) as chain:
        box = start(programs, chain, chain.near_a, *options, "--no-backpressure", prefix=("taskset", "-c", "0"))
        # The sender has more of its core, but the other box enough to answer.
        start(programs, chain, chain.near_b, *far, "--no-backpressure",
             prefix=("taskset", "-c", "1", "nice", "-n", "5"))
        out = chain.a.run("taskset", "-c", "1", programs.rc_host, "--interface", "veth0", "--node", "0", "--peer", "1",
                          "--peer-mac", chain.mac(chain.b), "--mtu", str(mtu), "--flood-ms", str(milliseconds))
        sent = json.loads(out.splitlines()[-1])["sent"]
        found = stop(box)
    if found["near_unread"] < UNREAD * sent:
        raise Failed(f"the sender is too slow for the box: {sent} packets, {found['near_unread']} of them not read")
    if options[0] == "lowar" and "--forward" not in options and found["coded"] < 0.8 * found["near_received"]:
        raise Failed(f"the other box does not answer: {found}")
    return found["near_received"] / (milliseconds / 1000)


def _datagrams(programs):
    plain = _delay(programs, None)
    rows = [[name, 1e6 * (_delay(programs, options) - plain) / 4] for name, options in _WAYS.items()]
    show("Delay of a box for a small datagram, in us",
         f"median of {ECHOES} round trips through two boxes, minus {1e6 * plain:.0f} us through two "
         "bridges of the kernel, divided by 4 passages",
         ["box", "delay"], rows)


def _packets(programs):
    rows = []
    for mtu in (1024, 4096):
        bridge = _passages(programs, mtu, None)
        # Of one box, where the packets pass two.
        delays = {name: [(box - plain) / 2 for box, plain in
                         zip(_passages(programs, mtu, options), bridge)]
                  for name, options in _WAYS.items()}
        forward = delays["forwarding alone"]
        rows += [[name, str(mtu), 1e6 * median, median / forward[0], 1e6 * p99]
                 for name, (median, p99) in delays.items()]
    show("Delay of a box for an RDMA packet, in us",
         f"SENDs of one packet, {MESSAGES} in turn, from NIC to NIC through two boxes, minus the same "
         "through two bridges of the kernel, divided by 2; boxes and NICs at a real-time priority; medians "
         "of the runs; ratio of the medians to forwarding alone",
         ["box", "MTU", "median", "ratio", "p99"], rows)


def _median(programs, mtu, options):
    runs = [_rates(programs, mtu, options) for _ in range(programs.runs)]
    return tuple(statistics.median(box) for box in zip(*runs))


def _rates(programs, mtu, options):
    """Returns the number of frames that each box forwards per second of its processor time."""
    size = max(1 << 20, int(BYTES * programs.scale))
    data, out = programs.file(size), programs.directory / "box-out"
    with Chain(mtu=4400, host_mtu=4300) as chain:
        boxes = [start(programs, chain, host, *options) for host in (chain.near_a, chain.near_b)]
        _nics(programs, chain, mtu, ["--send", str(data)], ["--recv", f"{out}={size}"])
        seconds = [processor_seconds(box) for box in boxes]
        found = [stop(box) for box in boxes]
    frames = [counters["near_received"] + counters["far_received"] for counters in found]
    return [carried / used for carried, used in zip(frames, seconds)]


def _nics(programs, chain, mtu, of_a, of_b, prefix=()):
    """Runs an RDMA NIC at each host until both have done their work."""
    nics = []
    for host, peer, node, work in ((chain.b, chain.a, 1, of_b), (chain.a, chain.b, 0, of_a)):
        command = [*prefix, programs.rc_host, "--interface", "veth0", "--node", str(node), "--peer",
                   str(1 - node), "--peer-mac", chain.mac(peer), "--mtu", str(mtu), *work]
        nic = chain.own(host.popen(command, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE))
        nic.stdout.readline()
        nics.append(nic)
    if any(nic.stdout.readline() != "done\n" for nic in nics):
        raise Failed("an RDMA NIC did not end its work")


def start(programs, chain, host, kind, *options, prefix=()):
    """Starts a box in the namespace of `host`."""
    command = [*prefix, programs.farwrite, "--json", kind, "--near", "near", "--far", "far", "--every", "0s",
               "--no-key", *options]
    box = chain.own(host.popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    line = box.stderr.readline()
    if "Carrying" not in line:
        raise Failed(f"farwrite {kind}: {line}")
    return box


def stop(box):
    """Ends a box and returns its counters."""
    box.terminate()
    return json.loads(box.communicate(timeout=20)[0])["result"]


def processor_seconds(process):
    """Returns the user and system time (proc(5), `stat`)."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _delay(programs, options):
    """Returns a round trip in seconds. Without options, kernel bridges forward the frames."""
    # The path MTU that the options of LoWAR have.
    with Chain(mtu=4400) as chain:
        _forwarders(programs, chain, options)
        for host in (chain.a, chain.b):
            host.ip("addr", "add", f"{host.v4}/24", "dev", "veth0")
        echo = chain.own(chain.b.popen(["python3", "-c", _SERVER, chain.b.v4], text=True,
                                       stdout=subprocess.PIPE))
        echo.stdout.readline()
        return float(chain.a.run("python3", "-c", _CLIENT, chain.b.v4, str(ECHOES)))


def _forwarders(programs, chain, options, prefix=()):
    """Puts boxes between the hosts; without options, bridges of the kernel."""
    for host in (chain.near_a, chain.near_b):
        if options is None:
            host.ip("link", "add", "bridge", "mtu", str(chain.mtu), "type", "bridge")
            for device in ("near", "far"):
                host.ip("link", "set", device, "master", "bridge")
            host.ip("link", "set", "bridge", "up")
        else:
            start(programs, chain, host, *options, prefix=prefix)


def _passages(programs, mtu, options):
    """Returns the median and the 99th percentile of the seconds from NIC to NIC."""
    return [statistics.median(run) for run in
            zip(*(_passage(programs, mtu, options) for _ in range(programs.runs)))]


def _passage(programs, mtu, options):
    count = max(100, int(MESSAGES * programs.scale))
    data, out = programs.file(count * mtu), programs.directory / "box-out"
    with Chain(mtu=4400, host_mtu=4300) as chain:
        # As the systemd units run boxes.
        _forwarders(programs, chain, options, REAL_TIME)
        watches = []
        for host in (chain.a, chain.b):
            watch = chain.own(host.popen(["python3", "-c", _WATCH, "veth0"], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            watch.stdout.readline()
            watches.append(watch)
        common = ["--message", str(mtu)]
        _nics(programs, chain, mtu, [*common, "--outstanding", "1", "--send", str(data)],
              [*common, "--recv", f"{out}={data.stat().st_size}"], REAL_TIME)
        left, came = (json.loads(watch.communicate(timeout=60)[0]) for watch in watches)
    delays = sorted((came[psn] - left[psn]) / 1e9 for psn in left if psn in came)
    if len(delays) < count * 0.9:
        raise Failed(f"the kernel noted {len(delays)} of {count} packets at both ends")
    return delays[len(delays) // 2], delays[len(delays) * 99 // 100]
