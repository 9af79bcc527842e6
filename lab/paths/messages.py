"""Time of messages on a path: the first message, and later ones."""

import json
import math
import statistics
import subprocess
import time

import ends
import table

RATE = 10_000_000_000
RTT = 0.025
LOSSES = (0, 1e-4, 1e-3, 1e-2)
#: Seconds after which the messages of one cell are stopped.
LIMIT_S = 60
BESIDE_RATE = 1_000_000_000
BESIDE_MESSAGES = 30
#: Payload bytes of our packets where the MTU is 1500.
BESIDE_PAYLOAD = 1408
MIB = 1 << 20


def run(programs):
    """Prints milliseconds by size, loss and program."""
    rows = []
    for size, count in ((8 * MIB, 40), (128 * MIB, 12)):
        count = max(2, int(count * programs.scale))
        for loss in LOSSES:
            for name, exchange in (*_contestants(programs), *_more_contestants(programs)):
                for cold in (True, False):
                    # A cold message needs a new connection.
                    with programs.path("--rate", RATE, "--rtt", "25ms", "--ip-mtu", 9000, "--loss",
                                       loss) as path:
                        try:
                            times = exchange(path, size, max(2, count // 2) if cold else count, cold)
                        except (subprocess.TimeoutExpired, ends.Failed):
                            rows.append([f"{size // MIB} MiB, loss {loss:g}", name, "cold" if cold else "warm",
                                         *["-"] * 4])
                            continue
                        times = times if cold else times[1:]
                        late = ends.shown(ends.lateness(path.stop()))
                    least = size * 8 / RATE + RTT
                    rows.append([f"{size // MIB} MiB, loss {loss:g}", name,
                                 "cold" if cold else "warm", statistics.mean(times) * 1e3,
                                 _quantile(times, 0.99) * 1e3, statistics.mean(times) / least, late])
    table.show(
        "Milliseconds for a message, from its posting to the sender's knowing that it has arrived",
        "10 Gbit/s, 25 ms, MTU 9000, offloads, queue of one round trip, loss both ways. Cold: the "
        "first of a connection, for TCP\nwith its handshake. Warm: one after the other, without the "
        f"first. Least: size / rate + round trip. -: broke off, or took more than {LIMIT_S} s in all. Late: p99 in ms.",
        ["message", "program", "", "mean", "p99", "of the least", "late"], rows)


def run_beside(programs):
    """Prints milliseconds of messages beside a bulk TCP flow, by size, pause, loss and program."""
    if "bbr" not in programs.congestion_controls:
        print("beside: this kernel has no BBR; load its module tcp_bbr")
        return
    rows = []
    count = max(2, int(BESIDE_MESSAGES * programs.scale))
    for loss in (0, 0.01):
        for size in (MIB // 4, MIB, 8 * MIB):
            for pause_ms in (10, 150):
                for name, exchange in _contestants(programs):
                    with programs.path("--rate", BESIDE_RATE, "--rtt", "40ms", "--ip-mtu", 1500,
                                       "--loss", loss) as path:
                        _start_bulk_flow(path)
                        first, *later = exchange(path, size, count, False, pause_ms,
                                                 BESIDE_PAYLOAD)
                        late = ends.shown(ends.lateness(path.stop()))
                    fair = size * 8 / (BESIDE_RATE / 2) + 0.04
                    row = f"{size / MIB:g} MiB, pause {pause_ms} ms, loss {loss:g}"
                    rows.append([row, name, first * 1e3, statistics.median(later) * 1e3,
                                 _quantile(later, 0.9) * 1e3, max(later) * 1e3, fair * 1e3, late])
    table.show(
        "Milliseconds for a message beside one TCP BBR flow that always has data",
        f"1 Gbit/s, 40 ms, MTU 1500, offloads, queue of one round trip, loss both ways, {count} "
        "messages.\nFair: size / half of the rate + round trip. Late: p99 in ms.",
        ["message", "program", "first", "median", "p90", "longest", "fair", "late"], rows)


def _start_bulk_flow(path):
    """Starts a TCP flow in the direction of the messages, and waits until it fills the path."""
    path.start(path.b, "tcp-sink", "--port", 7100)
    path.start(path.a, "tcp-source", "--to", path.b.v4, "--port", 7100, "--cc", "bbr",
               "--seconds", 3600)
    time.sleep(3)


def _quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered), math.ceil(len(ordered) * share)) - 1]


def _contestants(programs):
    yield "farwrite", lambda *arguments: _ours(programs, *arguments)
    if "bbr" in programs.congestion_controls:
        yield "TCP bbr", _tcp


def _more_contestants(programs):
    yield "farwrite, 2 channels", lambda *arguments: _ours(programs, *arguments, options=("--channels", "2"))
    yield ("farwrite, a receive thread",
           lambda *arguments: _ours(programs, *arguments, options=("--receive-threads",)))
    if programs.quinn:
        for cc in ("cubic", "bbr"):
            yield f"quinn {cc}", lambda *arguments, cc=cc: _quinn(programs, cc, *arguments)


def _quinn(programs, cc, path, size, count, cold):
    receiver = ends.quinn_receiver(programs, path, cc, role="answer")
    sender = path.own(path.a.popen(
        [*ends.quinn_command(programs, cc), "ask", f"{path.b.v4}:4433", "--bytes", str(size),
         "--messages", str(count if cold else count + 1), *(["--cold"] if cold else [])],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    seconds, _ = sender.communicate(timeout=LIMIT_S)
    receiver.terminate()
    receiver.wait(timeout=10)
    if sender.returncode != 0:
        raise ends.Failed(f"quinn ended with {sender.returncode}")
    return json.loads(seconds)["seconds"]


def _tcp(path, size, count, cold, pause_ms=0, _payload=None):
    common = ["--bytes", size, "--messages", count if cold else count + 1]
    receiver = path.start(path.b, "tcp-answer", *common)
    sender = path.start(path.a, "tcp-ask", "--to", path.b.v4, "--cc", "bbr", *common,
                        "--pause", pause_ms / 1e3, *(["--cold"] if cold else []))
    seconds = path.result(sender, 300)["seconds"]
    path.result(receiver)
    return seconds


def _ours(programs, path, size, count, cold, pause_ms=150, payload=8192, options=()):
    if cold:
        return [_connection(programs, path, size, 1, pause_ms, payload, options)[0] for _ in range(count)]
    return _connection(programs, path, size, count + 1, pause_ms, payload, options)


def _connection(programs, path, size, count, pause_ms, payload, options):
    """Connects two ends: passes the information of each end to the other."""
    ends_of = []
    for host, role in ((path.b, "take"), (path.a, "send")):
        ends_of.append(path.own(host.popen(
            [programs.messages, role, "--bind", f"{host.v4}:4791", "--bytes", str(size),
             "--messages", str(count), "--pause-ms", str(pause_ms), "--mtu", str(payload), *options],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)))
    receiver, sender = ends_of
    infos = [process.stdout.readline() for process in ends_of]
    for process, info in zip(ends_of, reversed(infos)):
        process.stdin.write(info)
        process.stdin.flush()
    seconds = json.loads(sender.stdout.readline())["seconds"]
    for process in ends_of:
        process.stdin.close()
        if process.wait(timeout=30) != 0:
            raise ends.Failed("messages did not end well")
    return seconds
