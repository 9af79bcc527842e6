"""Time of messages on a path: the first message, and later ones."""

import json
import math
import statistics
import subprocess

import ends
import table

RATE = 10_000_000_000
RTT = 0.025
LOSSES = (0, 1e-4, 1e-3, 1e-2)
MIB = 1 << 20


def run(programs):
    """Prints milliseconds by size, loss and program."""
    rows = []
    for size, count in ((8 * MIB, 40), (128 * MIB, 12)):
        count = max(2, int(count * programs.scale))
        for loss in LOSSES:
            for name, exchange in _contestants(programs):
                for cold in (True, False):
                    # A cold message needs a new connection.
                    with programs.path("--rate", RATE, "--rtt", "25ms", "--mtu", 9000, "--loss",
                                       loss) as path:
                        times = exchange(path, size, max(2, count // 2) if cold else count, cold)
                        late = ends.shown(ends.lateness(path.stop()))
                    least = size * 8 / RATE + RTT
                    rows.append([f"{size // MIB} MiB, loss {loss:g}", name,
                                 "cold" if cold else "warm", statistics.mean(times) * 1e3,
                                 _quantile(times, 0.99) * 1e3, statistics.mean(times) / least, late])
    table.show(
        "Milliseconds for a message, from its posting to the sender's knowing that it has arrived",
        "10 Gbit/s, 25 ms, MTU 9000, offloads, queue of one round trip, loss both ways. Cold: the "
        "first of a connection, for TCP\nwith its handshake. Warm: one after the other, without the "
        "first. Least: size / rate + round trip. Late: p99 in ms.",
        ["message", "program", "", "mean", "p99", "of the least", "late"], rows)


def _quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered), math.ceil(len(ordered) * share)) - 1]


def _contestants(programs):
    yield "farwrite", lambda *arguments: _ours(programs, *arguments)
    if "bbr" in programs.congestion_controls:
        yield "TCP bbr", _tcp


def _tcp(path, size, count, cold):
    common = ["--bytes", size, "--messages", count if cold else count + 1]
    receiver = path.start(path.b, "tcp-answer", *common)
    sender = path.start(path.a, "tcp-ask", "--to", path.b.v4, "--cc", "bbr", *common,
                        *(["--cold"] if cold else []))
    seconds = path.result(sender, 300)["seconds"]
    path.result(receiver)
    return seconds if cold else seconds[1:]


def _ours(programs, path, size, count, cold):
    if cold:
        return [_connection(programs, path, size, 1)[0] for _ in range(count)]
    return _connection(programs, path, size, count + 1)[1:]


def _connection(programs, path, size, count):
    """Connects two ends: passes the information of each end to the other."""
    ends_of = []
    for host, role in ((path.b, "take"), (path.a, "send")):
        ends_of.append(path.own(host.popen(
            [programs.messages, role, "--bind", f"{host.v4}:4791", "--bytes", str(size),
             "--messages", str(count)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)))
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
