"""Boxes that strangers attack, boxes that fail, and what a running box may do."""

import contextlib
import os
import socket
import subprocess
import time
from functools import partial

from lib.chain import Chain
from lib.rig import KINDS, LOSS, METRICS, REPEATED_SHARE, Rig
from lib.veth import until

#: The user that a box becomes when root starts it.
_NOBODY = 65534
#: SCHED_OTHER and SCHED_RR.
_NORMAL, _REAL_TIME = 0, 2
#: Gives up all privileges, and sends from many invented queue pairs, each packet with a right ICRC: RC WRITE Only with immediate. Arguments:
#: source, destination, queue pairs, seconds.
_INVENT = r"""
import ipaddress, os, socket, struct, sys, time, zlib
os.setgroups([])
os.setresgid(*[65534] * 3)
os.setresuid(*[65534] * 3)
source, target, pairs, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 2)
s.bind((source, 50000))
addresses = b"".join(ipaddress.ip_address(a).packed for a in (source, target))
def packet(pair, psn):
    body = struct.pack(">BBHII", 0x0B, 0x40, 0xFFFF, pair, psn) + bytes(12) + struct.pack(">I", 64) + bytes(4 + 64)
    masked = body[:4] + b"\xff" + body[5:]
    bytes_ = 28 + len(body) + 4
    ip = struct.pack(">BBHHHBBH", 0x45, 0xFF, bytes_, 0, 0x4000, 0xFF, 17, 0xFFFF) + addresses
    udp = struct.pack(">HHHH", 50000, 4791, bytes_ - 20, 0xFFFF)
    return body + struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked))
packets = [packet(16 + pair, 0) for pair in range(pairs)]
end = time.monotonic() + seconds
while time.monotonic() < end:
    for number, data in enumerate(packets):
        s.sendto(data, (target, 4791))
        if number % 32 == 31:
            time.sleep(0.005)
    print("sent", flush=True)
"""


def run(report, programs, directory):
    for title, case in _CASES.items():
        with report.case(f"boxes: {title}"):
            case(report, Rig(programs, directory))


def _invented(report, rig, kind):
    """A program without privileges on the host of a NIC invents more connections than a table has places."""
    with Chain() as chain:
        chain.lose(LOSS)
        # The NIC has the address of the host, and the program another one of it.
        chain.a.ip("addr", "add", "10.0.0.66/24", "dev", "veth0")
        chain.a.ip("neigh", "add", chain.b.v4, "lladdr", chain.mac(chain.b), "dev", "veth0")
        with rig.boxes(chain, "--forward"):
            _, (bare, _) = rig.repeats(chain)
        with rig.boxes(chain, *KINDS[kind], "--connections", "64", kind=kind) as boxes:
            command = ["python3", "-c", _INVENT, "10.0.0.66", chain.b.v4, "512", "3600"]
            stranger = chain.own(chain.a.popen(command, text=True, stdout=subprocess.PIPE))
            stranger.stdout.readline()
            time.sleep(0.5)
            wrong, (sender, _) = rig.repeats(chain)
            ended = stranger.poll()
            stranger.kill()
        report.check("the bytes arrive", wrong)
        report.check("the program sent until the end", None if ended is None else f"it ended with {ended}")
        report.check("the program met the limit",
                     None if boxes[0]["connections_full"] > 500 and boxes[0]["damaged"] == 0
                     else f"{boxes[0]}")
        report.check("losses of the NIC are repaired all the same, so that it repeats less",
                     None if sender["repeated"] < REPEATED_SHARE * bare["repeated"]
                     else f"{sender} beside {bare}, {boxes}")


def _threads(process):
    """Return the scheduling policies of the threads of a process by name, and their status fields."""
    policies, statuses = {}, []
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        folder = f"/proc/{process.pid}/task/{thread}"
        with open(f"{folder}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        policies[name] = int(rest.split()[38])
        with open(f"{folder}/status") as file:
            statuses.append(dict(line.split(":", 1) for line in file.read().splitlines()))
    return policies, statuses


def _privileges(report, rig):
    with Chain() as chain:
        chain.near_a.ip("link", "set", "lo", "up")
        box = rig.box(chain, chain.near_a, "--metrics", METRICS)
        other = rig.box(chain, chain.near_b, "--forward")
        rig.metrics(chain.near_a)
        policies, statuses = _threads(box)
        sets = {status[name].strip() for status in statuses for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
        report.check("no thread keeps a capability", None if sets == {"0" * 16} else f"{sets}")
        users = {status[name].strip() for status in statuses for name in ("Uid", "Gid")}
        report.check("none is root", None if users == {"\t".join([str(_NOBODY)] * 4)} else f"{users}")
        # The two threads that print text are older.
        free = sum(status["NoNewPrivs"].strip() == "0" for status in statuses)
        report.check("none but those that print can become it by a program",
                     None if free <= 2 < len(statuses) else f"{free} of {len(statuses)}")
        urgent = {name for name, policy in policies.items() if policy != _NORMAL}
        report.check("only the packet thread has real-time priority",
                     None if urgent == {"bridge"} and policies["bridge"] == _REAL_TIME and len(policies) > 2
                     else f"{policies}")
        wrong, _ = rig.send(chain)
        report.check("and it carries frames", wrong)
        rig.stop(box)
        rig.stop(other)


def _watchdog(report, rig):
    path = rig.directory / "notify"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager, Chain() as chain:
        manager.bind(str(path))
        manager.settimeout(30)
        environment = {**os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}
        command = [rig.program, "--quiet", "lowar", "--near", "near", "--far", "far", "--no-key"]
        box = chain.own(chain.near_a.popen(command, env=environment, stdout=subprocess.DEVNULL))
        messages = [manager.recv(100) for _ in range(4)]
        report.check("a box without traffic says that it runs, again and again",
                     None if messages == [b"READY=1", *[b"WATCHDOG=1"] * 3] else f"{messages}")
        box.terminate()
        box.wait(timeout=60)
        while (last := manager.recv(100)) == b"WATCHDOG=1":
            pass
        report.check("and that it ends", None if last == b"STOPPING=1" else f"{last}")
        bad = chain.near_a.popen(command, env={**environment, "NOTIFY_SOCKET": "/nowhere/notify"}, text=True,
                                 stderr=subprocess.PIPE)
        err = bad.communicate(timeout=60)[1]
        report.check("a socket that is not there is named",
                     None if bad.returncode == 1 and "NOTIFY_SOCKET" in err else f"{bad.returncode}: {err}")


def _dead(report, rig):
    """A dead box is a cut cable until a bridge joins its interfaces. The commands are those of docs/boxes.md."""
    with Chain() as chain:
        for host in (chain.a, chain.b):
            host.ip("addr", "add", f"{host.v4}/24", "dev", "veth0")
        dies = rig.box(chain, chain.near_a)
        other = rig.box(chain, chain.near_b)
        pings = partial(chain.a.popen, ["python3", "-c", _CONNECT, chain.b.v4], stderr=subprocess.DEVNULL)
        report.check("a box carries frames", None if pings().wait() == 0 else "it does not")
        dies.kill()
        dies.wait()
        report.check("a dead box does not", None if pings().wait() != 0 else "it does")
        for command in ("link add bypass type bridge mcast_snooping 0", "link set eth1 master bypass",
                        "link set eth2 master bypass", "link set bypass up"):
            chain.near_a.ip(*command.replace("eth1", "near").replace("eth2", "far").split())
        until(lambda: pings().wait() == 0, 20, "a bridge carries frames")
        wrong, _ = rig.send(chain)
        report.check("NICs work over the bridge and the other box", wrong)
        chain.near_a.ip("link", "del", "bypass")
        again = rig.box(chain, chain.near_a)
        chain.lose(LOSS)
        wrong, _ = rig.send(chain)
        report.check("without the bridge, a new box carries them", wrong)
        report.check("and repairs losses", None if rig.stop(other)["recovered"] > 10 else "it does not")
        rig.stop(again)


#: Exits with 0 if the host answers: with a refusal, because nothing listens.
_CONNECT = """
import socket, sys
s = socket.socket()
s.settimeout(2)
try:
    s.connect((sys.argv[1], 9))
except ConnectionRefusedError:
    sys.exit(0)
except OSError:
    sys.exit(1)
"""

_CASES = {
    "invented connections": partial(_invented, kind="lowar"),
    "invented connections, NetRT": partial(_invented, kind="netrt"),
    "what a running box may do": _privileges,
    "the watchdog": _watchdog,
    "a dead box, and a bridge in its place": _dead,
}
