"""`farwrite lowar` and `farwrite netrt` between software RDMA NICs, over a lossy path."""

import filecmp
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from functools import partial

from lib.chain import Chain
from lib.rig import BYTES, KINDS, LOSS, METRICS, NETRT, REPEATED_SHARE, SENDS, Rig
from lib.veth import CommandFailed, until


def run(report, programs, directory):
    for title, case in _CASES.items():
        with report.case(f"boxes: {title}"):
            case(report, Rig(programs, directory))


def _repair(report, rig):
    with Chain() as chain:
        chain.lose(LOSS)
        with rig.boxes(chain, "--forward") as plain:
            wrong, (bare, _) = rig.repeats(chain)
        report.check("without repair packets, all arrives by repeats",
                     wrong or (None if bare["repeated"] else f"{bare}"))
        report.check("the bridges carried it", None if plain[0]["far_sent"] > 4000 else f"{plain}")
        for options, vlan in ((["--coding", "8,1"], None), (["--coding", "8,1"], 5), ([], None)):
            with rig.boxes(chain, *options) as boxes:
                wrong, (sender, _) = rig.repeats(chain, vlan=vlan)
            name = f"{' '.join(options) or 'adaptive'}{', in a VLAN' if vlan else ''}"
            report.check(f"{name}: the bytes arrive", wrong)
            report.check(f"{name}: losses are recovered",
                         None if boxes[1]["recovered"] > 10 else f"{boxes}")
            report.check(f"{name}: so the NIC repeats less",
                         None if sender["repeated"] < REPEATED_SHARE * bare["repeated"]
                         else f"{sender} beside {bare}, {boxes}")


def _retransmission(report, rig):
    with Chain() as chain:
        chain.lose(LOSS)
        with rig.boxes(chain, "--forward"):
            wrong, (bare, _) = rig.repeats(chain)
        report.check("without the boxes, all arrives by repeats", wrong)
        for vlan in (None, 5):
            with rig.boxes(chain, *NETRT, kind="netrt") as boxes:
                wrong, (sender, _) = rig.repeats(chain, vlan=vlan)
            name = "in a VLAN" if vlan else "without VLAN"
            report.check(f"{name}: the bytes arrive", wrong)
            report.check(f"{name}: losses are repeated by the boxes",
                         None if min(boxes[0]["repeated"], boxes[1]["recovered"]) > 10 * SENDS
                         else f"{boxes}")
            report.check(f"{name}: so the NIC repeats less",
                         None if sender["repeated"] < REPEATED_SHARE * bare["repeated"]
                         else f"{sender} beside {bare}, {boxes}")
        lone = rig.box(chain, chain.near_a, *NETRT, kind="netrt")
        other = rig.box(chain, chain.near_b, "--forward")
        wrong, _ = rig.send(chain)
        report.check("with one box alone, all arrives", wrong)
        for process in (lone, other):
            rig.stop(process)


#: Work of the NICs at `a`, which has the data, and at `b`, which gets it. The data crosses the lossy direction
#: in both: as responses, when `b` reads.
_READ = ("--serve", "--read")
_WRITE = ("--write", "--expose")


def _one_sided(report, rig, kind, work):
    has, gets = work
    with Chain() as chain:
        chain.lose(LOSS)
        out = rig.directory / f"box{gets}-{kind}"
        with rig.boxes(chain, *KINDS[kind], kind=kind) as boxes:
            rig.nics(chain, [has, rig.data], [gets, f"{out}={BYTES}"])
        same = filecmp.cmp(rig.data, out, shallow=False)
        report.check("the bytes arrive", None if same else "they differ")
        report.check("losses are recovered", None if boxes[1]["recovered"] > 10 else f"{boxes}")


def _foreign(report, rig, kind):
    """Check that boxes forward all other traffic unchanged."""
    with Chain() as chain, rig.boxes(chain, *KINDS[kind], kind=kind):
        for host in (chain.a, chain.b):
            host.run("sysctl", "-qw", "net.ipv6.conf.veth0.disable_ipv6=0")
            host.ip("addr", "add", f"{host.v4}/24", "dev", "veth0")
            host.ip("addr", "add", f"{host.v6}/64", "dev", "veth0", "nodad")
        for target in (chain.b.v4, chain.b.v6):
            report.check(f"UDP echoes to {target}, fragments among them", _echoes(chain, target))
        report.check("TCP, whose packets come in trains", _tcp(chain, chain.b.v4, rig.data))


def _echoes(chain, target):
    """Send datagrams to `b`, which sends them back. Return what is wrong with them."""
    server = ("import socket,sys\n"
              "s=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET,"
              "socket.SOCK_DGRAM)\n"
              "s.bind((sys.argv[1],5002))\nprint('ready',flush=True)\n"
              "while 1: s.sendto(*s.recvfrom(65535))\n")
    client = ("import os,socket,sys\n"
              "s=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET,"
              "socket.SOCK_DGRAM)\n"
              "s.settimeout(60)\n"
              "for size in (1,56,1452,4000):\n"
              "    data=os.urandom(size)\n"
              "    s.sendto(data,(sys.argv[1],5002))\n"
              "    assert s.recv(65535)==data, size\n")
    echo = chain.own(chain.b.popen(["python3", "-c", server, target], text=True,
                                   stdout=subprocess.PIPE))
    echo.stdout.readline()
    failed = _try(chain.a, "python3", "-c", client, target)
    echo.kill()
    return failed


def _tcp(chain, target, data):
    """Send a file over TCP from `a` to `b`. Return what is wrong with the received file."""
    server = ("import socket,sys,hashlib\n"
              "s=socket.create_server((sys.argv[1],5001))\nprint('ready',flush=True)\n"
              "c,_=s.accept()\nh=hashlib.sha256()\n"
              "while b:=c.recv(1<<16): h.update(b)\nprint(h.hexdigest())\n")
    client = ("import socket,sys\nc=socket.create_connection((sys.argv[1],5001),60)\n"
              "c.sendall(open(sys.argv[2],'rb').read())\n")
    receiver = chain.own(chain.b.popen(["python3", "-c", server, target], text=True,
                                       stdout=subprocess.PIPE))
    receiver.stdout.readline()
    failed = _try(chain.a, "python3", "-c", client, target, str(data))
    if failed:
        return failed
    digest = receiver.communicate(timeout=60)[0].strip()
    want = hashlib.sha256(data.read_bytes()).hexdigest()
    return None if digest == want else f"{digest} and not {want}"


def _try(host, *command):
    """Return what went wrong with a command."""
    try:
        host.run(*command)
        return None
    except CommandFailed as error:
        return str(error)


def _one_box(report, rig):
    with Chain() as chain:
        chain.lose(LOSS)
        lone = rig.box(chain, chain.near_a, "--coding", "8,1")
        forward = rig.box(chain, chain.near_b, "--forward")
        wrong, _ = rig.send(chain)
        report.check("with one box alone, all arrives", wrong)
        counters = rig.stop(lone)
        report.check("and no repair packet is sent",
                     None if counters["repairs_sent"] == 0 else f"{counters}")
        rig.stop(forward)


def _narrow(chain, rate, device="far", burst="20kb", queue=("latency", "200ms")):
    """Limit the rate from `a` to `b` behind the box of `a`, or the rate of another interface of
    this box."""
    chain.near_a.run("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate,
                     "burst", burst, *queue)


def _restart(report, rig, kind):
    with Chain() as chain:
        chain.lose(LOSS)
        # The path is slow, so that the restart happens in the middle of the transfer.
        _narrow(chain, "20mbit")
        sending = rig.box(chain, chain.near_a, *KINDS[kind], kind=kind)
        receiving = [rig.box(chain, chain.near_b, *KINDS[kind], kind=kind)]
        results = []

        def restart():
            until(lambda: chain.b.received_bytes() > BYTES // 8, 60, "a transfer under way")
            results.append(rig.stop(receiving[0]))
            receiving[0] = rig.box(chain, chain.near_b, *KINDS[kind], kind=kind)

        restarting = threading.Thread(target=restart)
        wrong, _ = rig.send(chain, when_ready=restarting.start)
        restarting.join()
        results.append(rig.stop(receiving[0]))
        rig.stop(sending)
        report.check("a box that is restarted in mid-flow damages nothing", wrong)
        passed = [result["near_sent"] > 100 for result in results]
        report.check("packets passed before the restart and after it",
                     None if passed == [True, True] else f"{results}")


def _backpressure(report, rig):
    """The NIC and the repair packets exceed the rate of the path, so the box pauses the NIC."""
    with Chain() as chain:
        _narrow(chain, "50mbit")
        with rig.boxes(chain, "--coding", "8,1") as boxes:
            # No packet should be lost. With a long timeout, a NIC that waits for another process
            # does not repeat packets either.
            wrong, (sender, _) = rig.send(chain, timeout_ms=10_000)
        report.check("all arrives over a narrow path", wrong)
        report.check("PFC frames pause the NIC, which obeys them",
                     None if sender["paused"] > 0 and boxes[0]["pauses"] > 0
                     else f"{sender}, {boxes[0]}")
        report.check("so the box loses nothing, and the NIC repeats nothing",
                     None if boxes[0]["far_unsent"] == 0 and sender["repeated"] == 0
                     else f"{sender}, {boxes[0]}")


def _full_queues(report, rig):
    """The kernel's queues are shorter than the one at which the box pauses the NIC, so the kernel
    refuses frames. The queue towards the NIC is full too, of acknowledgements."""
    with Chain() as chain:
        _narrow(chain, "50mbit", queue=("limit", "22kb"))
        _narrow(chain, "200kbit", device="near", burst="2kb", queue=("limit", "500b"))
        with rig.boxes(chain, "--coding", "8,1") as boxes:
            wrong, (sender, _) = rig.send(chain, timeout_ms=30_000)
        dropped = [int(json.loads(chain.near_a.run("tc", "-s", "-j", "qdisc", "show", "dev", device))
                       [0]["drops"]) for device in ("far", "near")]
        report.check("the queues of both interfaces refuse frames",
                     None if min(dropped) > 0 else f"{dropped}")
        report.check("all arrives", wrong)
        report.check("a frame that the kernel refuses is sent again",
                     None if boxes[0]["far_unsent"] == boxes[0]["near_unsent"] == 0
                     and sender["repeated"] == 0 else f"{sender}, {boxes[0]}")
        report.check("and so is a PFC frame",
                     None if sender["paused"] > 0 and boxes[0]["pauses"] > 0
                     else f"{sender}, {boxes[0]}")


def _metrics(report, rig):
    with Chain() as chain:
        box = rig.box(chain, chain.near_a, "--metrics", METRICS)
        text = rig.metrics(chain.near_a)
        wanted = ("# HELP farwrite_lowar_recovered", "farwrite_lowar_repairs_sent_total 0", "# EOF")
        missing = [line for line in wanted if line not in text]
        report.check("Prometheus text", f"no {missing} in {text}" if missing else None)
        rig.stop(box)


def _live(report, rig):
    """A box prints a row of rates for each time, with the names of its columns above."""
    with Chain() as chain:
        box = rig.box(chain, chain.near_a, every="100ms")
        other = rig.box(chain, chain.near_b, "--forward")
        wrong, _ = rig.send(chain)
        report.check("the bytes arrive", wrong)
        # Until the row after them.
        time.sleep(0.5)
        box.send_signal(signal.SIGINT)
        out, err = box.communicate(timeout=60)
        lines = [line.split() for line in err.splitlines()]
        # Names of two words take two lines.
        heads = [at for at, line in enumerate(lines) if line[:1] == ["time"]]
        rows = [line for line in lines if line and re.fullmatch(r"[\d.]+s", line[0])]
        above, names = (lines[heads[0] - 1], lines[heads[0]][1:-2]) if heads else ([], [])
        report.check("the table names its columns, the received frames first",
                     None if above[:2] == ["near", "far"] and names[:2] == ["received"] * 2 else f"{err}")
        uneven = [row for row in rows if len(row) != len(names) + 1]
        report.check("each row has a rate for each column",
                     None if rows and not uneven else f"{uneven} of {err}")
        carried = json.loads(out)["result"]["near_received"]
        most = max((int(row[1]) for row in rows), default=0)
        report.check("and rows show the frames that passed", None if most > 0 else f"{err}, {carried}")
        rig.stop(other)


def _gone(report, rig):
    with Chain() as chain:
        box = rig.box(chain, chain.near_a)
        chain.near_a.ip("link", "del", "far")
        _, err = box.communicate(timeout=60)
        report.check("an interface that is deleted ends the box with an error",
                     None if box.returncode == 1 and "far" in err else f"{box.returncode}: {err}")


def _far_interface(report, rig):
    """Say what is wrong with the interface where the path is."""
    with Chain() as chain:
        command = [rig.program, "lowar", "--near", "near", "--far", "far", "--no-key", "--for", "100ms"]
        long = str(chain.mtu + 1)
        done = chain.near_a.popen([*command, "--ip-mtu", long], text=True, stderr=subprocess.PIPE)
        err = done.communicate(timeout=60)[1]
        report.check("a path MTU above that of the interface is refused",
                     None if done.returncode == 2 and f"whose MTU is {chain.mtu}" in err
                     else f"{done.returncode}: {err}")
        chain.near_a.ip("link", "set", "far", "down")
        done = chain.near_a.popen(command, text=True, stdout=subprocess.PIPE)
        out = done.communicate(timeout=60)[0]
        report.check("an interface that is down is named",
                     None if done.returncode == 0 and "ip link set far up" in out
                     else f"{done.returncode}: {out}")


def _refusals(report, rig):
    def refused(*arguments, environment=None):
        done = subprocess.run([rig.program, "lowar", *arguments], capture_output=True, text=True,
                              timeout=60)
        return done.returncode, done.stderr.strip()

    for arguments, code, words in (
            (["--near", "fwno0", "--far", "fwno1", "--no-key"], 2, "fwno0"),
            (["--near", "lo", "--far", "lo", "--no-key"], 2, "both sides"),
            (["--near", "lo", "--far", "fwno1", "--no-key"], 2, "no Ethernet frames"),
            (["--near", "fwno0", "--far", "fwno1", "--no-key", "--hold", "0s"], 2, "like 4ms"),
            (["--near", "fwno0", "--far", "fwno1"], 2, "--no-key"),
            (["--near", "fwno0", "--far", "fwno1", "--no-key", "--coding", "0,1"], 2, "coding"),
            (["--near", "fwno0", "--far", "fwno1", "--no-key", "--coding", "x"], 2, "32,1"),
            (["--near", "fwno0", "--far", "fwno1", "--no-key", "--pause", "8"], 2, "0..=7")):
        got = refused(*arguments)
        report.check(f"refused: {' '.join(arguments)}",
                     None if got[0] == code and words in got[1] else f"{got}")


_CASES = {
    "losses between boxes": _repair,
    "retransmission between boxes": _retransmission,
    "responses to READs": partial(_one_sided, kind="lowar", work=_READ),
    "responses to READs, NetRT": partial(_one_sided, kind="netrt", work=_READ),
    "WRITEs": partial(_one_sided, kind="lowar", work=_WRITE),
    "WRITEs, NetRT": partial(_one_sided, kind="netrt", work=_WRITE),
    "other traffic": partial(_foreign, kind="lowar"),
    "other traffic, NetRT": partial(_foreign, kind="netrt"),
    "a box without another one": _one_box,
    "a box that is restarted": partial(_restart, kind="lowar"),
    "a NetRT box that is restarted": partial(_restart, kind="netrt"),
    "a path narrower than the NIC": _backpressure,
    "full queues in the kernel": _full_queues,
    "metrics": _metrics,
    "the live table": _live,
    "an interface that goes away": _gone,
    "the interface of the path": _far_interface,
    "what makes no sense": _refusals,
}
