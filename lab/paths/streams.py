"""Byte streams beside TCP and QUIC: writes of 1 MiB, over loopback and over a path."""

import json
import statistics
import subprocess

import ends
import table

MBIT = 1_000_000
#: Name, options of `farwrite link` (None: loopback), payload bytes of our packets (24 more are for sealing), and our
#: buffers of 256 KiB.
_PATHS = (
    ("loopback", None, 8192, 32),
    ("1 Gbit/s, 25 ms, no loss", "--rate 1Gbit --rtt 25ms --ip-mtu 1500", 1384, 64),
    ("the same, loss 1e-3", "--rate 1Gbit --rtt 25ms --ip-mtu 1500 --loss 0.1%", 1384, 64),
)
SECONDS = 5.0


def run(programs):
    """Prints a row for each path and program. The programs take turns."""
    rows = []
    seconds = max(1.0, SECONDS * programs.scale)
    for title, options, payload, buffers in _PATHS:
        contestants = dict(_contestants(programs, payload, buffers))
        goodputs = {name: [] for name in contestants}
        late = {name: [] for name in contestants}
        for seed in range(programs.runs):
            for name, flow in contestants.items():
                with programs.path(*(options or "--rate 1Gbit").split(), "--seed", seed) as path:
                    goodputs[name].append(flow(path, seconds, options is None))
                    late[name].append(ends.lateness(path.stop()))
        for name, values in goodputs.items():
            shown = None if options is None else ends.shown(*late[name])
            rows.append([title, name, statistics.median(values) / MBIT, min(values) / MBIT, max(values) / MBIT,
                         shown])
    table.show(
        "Mbit/s of a byte stream, in writes of 1 MiB, from the first byte that is read to the last",
        f"{seconds:g} s, {programs.runs} runs, offloads, queue of one round trip, loss both ways, an unknown path. "
        "farwrite: encrypted, unless\nunsealed, and copied to the reader. quinn: encrypted, copied to the reader. "
        "TCP: in clear, discarded in the kernel. All share\nthe cores with both ends and the link. Late: p99 of the "
        "link's lateness in ms, the worst run; rows with ! do not count.",
        ["path", "program", "median", "least", "most", "late"], rows)


def _contestants(programs, payload, buffers):
    def ours(path, seconds, loopback, *options):
        options = ("--mtu", payload, "--messages", buffers, *options)
        return _ours(programs, path, seconds, loopback, options)

    yield "farwrite", lambda *arguments: ours(*arguments, "--sealed")
    yield "farwrite, auto", lambda *arguments: ours(*arguments, "--sealed", "--scheme", "auto")
    yield "farwrite, unsealed", ours
    if programs.quinn:
        for cc in ("bbr", "cubic"):
            yield f"quinn {cc}", (lambda path, seconds, loopback, cc=cc:
                                  ends.quinn_flow(programs, path, seconds, cc, loopback)[0])
    for cc in programs.congestion_controls:
        yield f"TCP {cc}", (lambda path, seconds, loopback, cc=cc: _tcp(path, seconds, cc, loopback))


def _ours(programs, path, seconds, loopback, options):
    """Connects two ends: passes the information of each end to the other."""
    addresses = ((path.a, "127.0.0.1:4792"), (path.a, "127.0.0.1:4791")) if loopback else (
        (path.b, f"{path.b.v4}:4791"), (path.a, f"{path.a.v4}:4791"))
    processes = []
    for (host, address), role in zip(addresses, ("take", "send")):
        processes.append(path.own(host.popen(
            [programs.streams, role, "--bind", address, "--seconds", str(seconds), *map(str, options)],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)))
    infos = [process.stdout.readline() for process in processes]
    for process, info in zip(processes, reversed(infos)):
        process.stdin.write(info)
        process.stdin.flush()
    receiver, sender = processes
    taken = json.loads(receiver.stdout.readline())
    if sender.stdout.readline() != "delivered\n":
        raise ends.Failed("a stream was not delivered")
    for process in processes:
        process.stdin.close()
        if process.wait(timeout=30) != 0:
            raise ends.Failed("a stream did not end well")
    return 8 * taken["bytes"] / taken["seconds"]


def _tcp(path, seconds, cc, loopback):
    if not loopback:
        return ends.tcp_flow(path, seconds, cc)
    sink = path.start(path.a, "tcp-sink", "--at", "127.0.0.1")
    source = path.start(path.a, "tcp-source", "--to", "127.0.0.1", "--cc", cc, "--seconds", seconds)
    path.result(source, seconds + 60)
    return ends.tcp_bps(path.result(sink, 60)["flows"][0])
