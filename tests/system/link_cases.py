"""`farwrite link` between two namespaces, seen by the kernel's own protocols."""

import json
import pathlib
import signal
import subprocess
import tempfile
import time

from lib.path import REAL_TIME, Path
from lib.veth import sh, until

#: A rate in bits per second that a busy machine can carry.
RATE = 50_000_000


def run(report, program):
    for title, case in _CASES.items():
        with report.case(f"link: {title}"):
            case(report, program)


def _ping(path, **options):
    """Measure the round trips of 100-byte datagrams from `a` to `b` and back, by number."""
    flags = [text for key, value in options.items() for text in (f"--{key}", value)]
    path.start(path.b, "udp-echo")
    ping = path.start(path.a, "udp-ping", "--to", path.b.v4, "--payload", 100, *flags)
    found = path.result(ping)
    return found["sent"], found["echoes"]


def _delay(report, program):
    with Path(program, "--rtt", "60ms") as path:
        sent, echoes = _ping(path, rate=1e5, seconds=2)
        link = path.stop()
    trips = sorted(seconds for _, seconds in echoes)
    report.check("every echo arrives", None if len(echoes) == sent else f"{len(echoes)} of {sent}")
    report.check("no round trip is shorter than the link's",
                 None if trips[0] >= 0.06 else f"{trips[0]} s")
    # The processes may run late. The bound still excludes that a packet passes the delay twice.
    report.check("half of them are hardly longer",
                 None if trips[len(trips) // 2] < 0.11 else f"{trips[len(trips) // 2]} s")
    report.check("they are in order", None if echoes == sorted(echoes) else f"{echoes}")
    counts = [link[way]["delivered"] >= sent for way in ("forward", "backward")]
    report.check("the report counts them", None if all(counts) else f"{link}")


def _faults(report, program):
    with Path(program, "--rtt", "4ms", "--loss", "20%", "--back", "loss=0", "--reorder", "30%:20ms",
              ) as path:
        sent, echoes = _ping(path, rate=1e6, seconds=3)
        link = path.stop()
    share = len(echoes) / sent
    # There are about 2900 datagrams, so the bounds are seven standard deviations.
    report.check("a fifth of the datagrams is lost",
                 None if 0.74 < share < 0.86 else f"{share} arrived")
    lost = link["forward"]["lost"], link["backward"]["lost"]
    report.check("on the way that loses", None if lost[0] > 0 and lost[1] == 0 else f"{lost}")
    numbers = [number for number, _ in echoes]
    report.check("others overtake those held back",
                 None if numbers != sorted(numbers) else "all came in order")


def _varying(report, program):
    """Slots of half a second with another delay each, on the way there only."""
    with Path(program, "--rtt", "20ms", "--vary", "uniform:80ms/500ms", "--back", "vary=none",
              "--step", "4s:forward.vary=none") as path:
        sent, echoes = _ping(path, rate=2e5, seconds=6)
        link = path.stop()
    report.check("every echo arrives, in order",
                 None if len(echoes) == sent and echoes == sorted(echoes) else f"{len(echoes)} of {sent}")
    # The link runs for some time before the first datagram. The seed draws the delays.
    trips = [seconds for _, seconds in echoes]
    early, late = trips[:len(trips) // 4], trips[-len(trips) // 4:]
    report.check("the delay varies, until the step",
                 None if max(early) > 0.04 and min(early) >= 0.02 and sorted(late)[len(late) // 2] < 0.04
                 else f"{min(early)} to {max(early)} s, then {sorted(late)[len(late) // 2]} s")
    report.check("nothing is held back or dropped",
                 None if not any(link["forward"][key] for key in ("held_back", "policed", "lost"))
                 else f"{link}")


def _policer(report, program):
    """A policer drops what is above its rate, and a trace limits the way back."""
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory, "trace")
        # 12 Mbit/s, in pieces of a tenth of a second.
        trace.write_text("100\n" * 100)
        with Path(program, "--rate", str(RATE), "--police", "10Mbit:24kB", "--back",
                  f"police=none,trace={trace}", prefix=REAL_TIME) as path:
            taken, sent = path.exchange(
                ["udp-sink"], ["udp-blast", "--rate", 20e6, "--segments", 1, "--seconds", 2])
            path.start(path.b, "udp-echo")
            ping = path.start(path.a, "udp-ping", "--to", path.b.v4, "--payload", 100, "--rate", 1e5,
                              "--seconds", 2)
            echoes = path.result(ping)["echoes"]
            forward = path.stop()["forward"]
    share = forward["delivered_bytes"] * 8 / 2
    report.check("10 of 20 Mbit/s pass a policer",
                 None if 8e6 < share < 12e6 and forward["policed"] > 100 else f"{forward}")
    trips = sorted(seconds for _, seconds in echoes)
    report.check("a trace that delivers every 100 ms delays what waits for it",
                 None if trips[len(trips) // 10] < 0.05 < trips[-len(trips) // 10] < 0.2
                 else f"{trips[0]} to {trips[-1]} s")


def _goodput(flow):
    """Return the rate of a flow in bits per second from its first quarter to its end, without the
    slowest and the fastest quarter of the tenths of a second. A process that stalls makes some
    tenths slow and the next one fast."""
    middle = sorted(flow[len(flow) // 4:-1])
    kept = middle[len(middle) // 4:-(len(middle) // 4)]
    return sum(kept) * 80 / len(kept)


def _tcp(report, program):
    for family, offload in ((4, True), (4, False), (6, True)):
        options = ["--rate", RATE, "--rtt", "20ms", "--loss", "0"]
        options += [] if offload else ["--no-offload"]
        name = f"IPv{family}, {'with' if offload else 'without'} offloads"
        with Path(program, *map(str, options), prefix=REAL_TIME) as path:
            receiver = path.start(path.b, "tcp-sink", "--at", path.b.address(family))
            sender = path.start(path.a, "tcp-source", "--to", path.b.address(family),
                                "--seconds", 4)
            path.result(sender)
            flow = path.result(receiver)["flows"][0]
            forward = path.stop()["forward"]
        rate = _goodput(flow)
        # TCP carries 0.96 of the rate. On a busy machine a part of that is lost, and tenths that
        # remain after the trimming may still be fast. The bounds exclude a link that drops packets
        # that fit, and one that does not keep its rate. Tests in virtual time check the rate
        # exactly.
        report.check(f"{name}: TCP fills the rate",
                     None if 0.75 * RATE < rate < 1.1 * RATE else f"{rate / 1e6} Mbit/s")
        trains = forward["offered"] > 1.5 * forward["reads"]
        report.check(f"{name}: packets pass {'in trains' if offload else 'one by one'}",
                     None if trains == offload else f"{forward}")


def _lossy_trains(report, program):
    """A train that loses some of its packets still arrives, in parts that the kernel accepts."""
    for cc in ("cubic", "bbr"):
        if cc not in sh("sysctl", "-n", "net.ipv4.tcp_available_congestion_control"):
            report.skip(f"TCP {cc}", "this kernel does not have it")
            continue
        with Path(program, "--rate", "1Gbit", "--rtt", "4ms", "--loss", "1%", "--ecn", "1ms",
                  "--reorder", "1%:1ms") as path:
            taken, sent = path.exchange(["tcp-sink"], ["tcp-source", "--cc", cc, "--seconds", 2])
            forward = path.stop()["forward"]
        arrived = sum(taken["flows"][0])
        report.check(f"TCP {cc} at 1% loss: all bytes that were sent arrive",
                     None if arrived == sent["bytes"] and sent["cc"] == cc else f"{arrived}, {sent}")
        report.check(f"TCP {cc}: packets were lost and parts of trains passed",
                     None if forward["lost"] and forward["offered"] > forward["reads"]
                     else f"{forward}")


def _marks(report, program):
    for segments, offload in ((1, False), (10, True)):
        name = f"{segments} datagrams in one piece"
        options = [] if offload else ["--no-offload"]
        with Path(program, "--rate", str(RATE), "--rtt", "2ms", "--queue", "40ms", "--ecn", "5ms",
                  *options) as path:
            for tos, wanted in ((2, "marked"), (0, "unmarked")):
                taken, _ = path.exchange(
                    ["udp-sink"], ["udp-blast", "--rate", 1.5 * RATE, "--tos", tos,
                                   "--segments", segments, "--seconds", 1])
                ecn = taken["ecn"]
                marked, rest = ecn[3], ecn[tos]
                # The queue exceeds 5 ms within the first 10 ms of a second, and again each time
                # after it has become empty because a process stalled.
                good = marked > 2 * rest > 0 if tos else marked == 0 and rest > 0
                report.check(f"{name}, ECN field {tos}: beyond 5 ms of queue they are {wanted}",
                             None if good else f"{ecn}")
            forward = path.stop()["forward"]
        report.check(f"{name}: the queue drops what does not fit",
                     None if forward["queue_dropped"] > 100 else f"{forward}")


def _steps(report, program):
    with Path(program, "--rate", str(RATE), "--rtt", "10ms", "--step",
              f"4s:rate={RATE // 5},rtt=60ms") as path:
        receiver = path.start(path.b, "tcp-sink")
        sender = path.start(path.a, "tcp-source", "--to", path.b.v4, "--seconds", 8)
        path.start(path.b, "udp-echo")
        ping = path.start(path.a, "udp-ping", "--to", path.b.v4, "--payload", 100, "--rate", 1e4,
                          "--seconds", 7)
        echoes = path.result(ping)["echoes"]
        path.result(sender)
        flow = path.result(receiver)["flows"][0]
        path.stop()
    # The flow begins later than the link's clock, so the step is at 4 s of the flow or earlier.
    before = sum(flow[5:25]) * 80 / 20
    after = sum(flow[55:75]) * 80 / 20
    # The new rate limits TCP from above, except for bytes that wait in a stalled process and count
    # when it continues. How much of the rate TCP uses in two seconds depends on its recovery from
    # the losses of the step, so the lower bound only excludes a much lower rate.
    report.check("a step of the rate: TCP gets the old one before, the new one after",
                 None if before > 0.5 * RATE and 0.3 * RATE / 5 < after < 1.6 * RATE / 5
                 else f"{before / 1e6} and {after / 1e6} Mbit/s")
    early = min(seconds for number, seconds in echoes if number < 20)
    late = min(seconds for number, seconds in echoes if number > 50)
    report.check("a step of the round trip",
                 None if 0.01 <= early < 0.05 and late >= 0.06 else f"{early} s, then {late} s")


def _refusals(report, program):
    def refused(*arguments):
        done = subprocess.run([program, "link", *arguments], capture_output=True, text=True,
                              timeout=60)
        return done.returncode, done.stderr.strip()

    code, text = refused("--namespaces", "fw-none-a", "fw-none-b")
    report.check("a namespace that is not there", None if code == 1 and "ip netns add" in text
                 and "fw-none-a" in text else f"{code}: {text}")
    code, text = refused("--devices", "fwnone0", "fwnone1")
    report.check("devices that are not there", None if code == 1 and "ip tuntap add" in text
                 else f"{code}: {text}")
    with Path(program) as path:
        names = path.a.name, path.b.name
        code, text = refused("--namespaces", *names)
        report.check("a device that is there already",
                     None if code == 1 and "far0" in text and "another name" in text
                     else f"{code}: {text}")
        code, text = refused("--namespaces", *names, "--devices", "far1", "far1", "--rate", "1Gbit",
                             "--addresses", "10.78.0.1/24", "10.78.0.2/24", "--for", "100ms")
        report.check("a second link beside the first", None if code == 0 else f"{code}: {text}")


def _ends(report, program):
    """The devices are removed when the program ends, for any reason."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with Path(program) as path:
            path.link.send_signal(number)
            path.link.communicate(timeout=60)
            hosts = (path.a, path.b)
            gone = all("far0" not in host.run("cat", "/proc/net/dev") for host in hosts)
            code = path.link.returncode
        report.check(f"after {number.name} no device is left", None if gone else "one is left")
        if number != signal.SIGKILL:
            report.check(f"{number.name} is a way to end well", None if code == 0 else f"{code}")
    with Path(program) as path:
        path.a.ip("link", "del", "far0")
        until(lambda: path.link.poll() is not None, 60, "the link notices")
        _, err = path.link.communicate(timeout=60)
        report.check("a device that is deleted ends the link with an error",
                     None if path.link.returncode == 1 and "far0" in err else f"{err}")


def _attached(report, program):
    """The link also works with devices that other programs made. Here both are in one namespace:
    packets leave through one and arrive through the other."""
    with Path(program) as path:
        for device in ("tap0", "tap1"):
            path.a.ip("tuntap", "add", "dev", device, "mode", "tun")
            path.a.ip("link", "set", device, "up")
        path.a.ip("addr", "add", "10.79.0.1/24", "dev", "tap0")
        link = path.own(path.a.popen([program, "--json", "--quiet", "link", "--devices", "tap0",
                                      "tap1"], text=True, stdout=subprocess.PIPE))
        until(lambda: "LOWER_UP" in path.a.ip("link", "show", "tap0"), 60, "the relay is attached")
        blast = path.start(path.a, "udp-blast", "--to", "10.79.0.2", "--seconds", 0.2,
                           "--rate", 1e6)
        sent = path.result(blast)["datagrams"]
        link.send_signal(signal.SIGINT)
        out, _ = link.communicate(timeout=60)
        kept = path.a.ip("link", "show", "tap0")
    # The count has these datagrams, the empty ones that end a receiver, and some packets of IPv6
    # itself.
    delivered = json.loads(out)["result"]["forward"]["delivered"] if out else 0
    passed = link.returncode == 0 and delivered >= sent > 0
    report.check("packets pass", None if passed else out)
    report.check("the devices stay", None if "tap0" in kept else kept)


def _files(report, program):
    """The steps of docs/files.md, on machines without a default route."""
    with Path(program) as path, tempfile.TemporaryDirectory() as directory:
        key, data, inbox = (str(pathlib.Path(directory, name)) for name in ("key", "data", "in"))
        subprocess.run([program, "--quiet", "keygen", key], check=True, stdout=subprocess.DEVNULL)
        pathlib.Path(data).write_bytes(bytes(100_000))
        pathlib.Path(inbox).mkdir()
        receiver = path.own(path.b.popen(
            [program, "recv", "--dir", inbox, "--psk-file", key, "--once"], text=True,
            stdout=subprocess.PIPE))
        lines = []
        while not any("other addresses" in line for line in lines):
            lines.append(receiver.stdout.readline())
            if not lines[-1]:
                raise RuntimeError(f"recv: {lines}")
        words = next(line for line in lines if "farwrite send" in line).split()
        report.check("the receiver names its address in the network",
                     None if "10.77.0.2:4792" in words else f"{words}")
        report.check("and the other one",
                     None if "[fd77::2]:4792" in lines[-1] else f"{lines[-1]}")

        def send(*arguments):
            start = time.monotonic()
            sent = path.a.popen([program, "send", "--no-path-cache", *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            _, text = path.own(sent).communicate(timeout=100)
            return sent.returncode, text.strip(), time.monotonic() - start

        code, text, seconds = send("--to", "10.99.0.1", "--psk-file", key, data)
        told = code == 5 and "no route to 10.99.0.1" in text and seconds < 30
        report.check("without a route, the sender says so and does not wait",
                     None if told else f"{code} after {seconds} s: {text}")
        code, text, _ = send(*words[2:-1], data)
        receiver.communicate(timeout=60)
        report.check("the printed command works",
                     None if (code, receiver.returncode) == (0, 0) else f"{code}: {text}")


def _rate_file(report, program):
    """The maximum rate of a transfer changes while it runs."""
    with Path(program, "--rate", str(RATE), "--rtt", "20ms") as path, \
            tempfile.TemporaryDirectory() as directory:
        key, data, inbox, rate = (pathlib.Path(directory, name) for name in ("key", "data", "in", "rate"))
        subprocess.run([program, "--quiet", "keygen", str(key)], check=True, stdout=subprocess.DEVNULL)
        data.write_bytes(bytes(range(256)) * 8192)
        inbox.mkdir()
        rate.write_text("500kbit\n")
        path.own(path.b.popen([program, "recv", "--dir", str(inbox), "--psk-file", str(key), "--once"],
                              stdout=subprocess.DEVNULL))
        start = time.monotonic()
        sender = path.own(path.a.popen(
            [program, "send", "--no-path-cache", "--to", path.b.v4, "--psk-file", str(key), "--rate-file",
             str(rate), str(data)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        lines = [""]

        def told(wanted):
            while wanted not in lines[-1]:
                lines.append(sender.stdout.readline())
                if not lines[-1]:
                    raise RuntimeError(f"send: {lines}")

        told("at most 500 kbit/s")
        time.sleep(2)
        arrived = path.b.run("cat", "/proc/net/dev").split("far0:")[1].split()[0]
        for text, wanted in (("fast", "stays 500 kbit/s"), ("20Mbit", "the maximum rate is 20 Mbit/s")):
            rate.write_text(text)
            sender.send_signal(signal.SIGHUP)
            told(wanted)
        report.check("SIGHUP changes the rate; a file without a rate does not", None)
        _, text = sender.communicate(timeout=100)
        seconds = time.monotonic() - start
        whole = (inbox / "data").exists() and (inbox / "data").read_bytes() == data.read_bytes()
    report.check("until then, the old rate holds", None if int(arrived) < 400_000 else f"{arrived} bytes")
    # At the first rate it takes 34 s.
    report.check("the transfer ends soon after the rate is raised",
                 None if sender.returncode == 0 and whole and seconds < 20 else f"{seconds} s: {text}")


_CASES = {
    "delay": _delay,
    "losses and reordering": _faults,
    "delay that varies": _varying,
    "policers and traces": _policer,
    "TCP": _tcp,
    "trains that lose packets": _lossy_trains,
    "marks": _marks,
    "steps": _steps,
    "what it refuses": _refusals,
    "how it ends": _ends,
    "devices that are there already": _attached,
    "a maximum rate in a file": _rate_file,
    "files between machines without a default route": _files,
}
