"""One transfer on a busy machine, beside a blast of UDP datagrams and TCP BBR, and whether its rate leaves the path."""

import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import time

import ends
import short
import table
from goals import Goals

RATE = 1000 * short.MBIT
#: Loops that compute beside the transfer, for each core.
LOOPS = 8
#: Transfers over each path at scale 1.
RUNS = 50
#: Of a blast with the same processor time.
LEAST = 0.9
#: No transfer sends more than this share again, or ends with more than this multiple of the rate of the path.
MOST_AGAIN = 0.05
MOST_RATE = 2
#: Names and round trips in ms. None is a pair of veth with the kernel's token bucket, which needs no process.
_PATHS = {"veth, tbf": None, "link of 1 ms": 1}
#: Runs over a link that was late (p99) by at least a fifth of the round trip do not count.
_LATE_MS = 0.2
#: Payload of a datagram of 1500 bytes, and its headers: Ethernet, IPv4, UDP.
_PAYLOAD = 1472
_IP_UDP = 28
_ETHERNET = 14
_LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@dataclasses.dataclass
class _Flow:
    """What one flow did."""

    bps: float
    #: Bytes that arrived, and processor seconds of the sending and of the receiving end.
    bytes: int
    sent_s: float
    received_s: float
    #: Of a transfer: what `farwrite send` prints, and the seconds from its start to its end.
    result: dict | None = None
    seconds: float | None = None
    #: What the queue toward `b` dropped, as a share, and the p99 of the link's lateness.
    dropped: float | None = None
    late_ms: float | None = None

    def bytes_a_core_second(self):
        """Bytes by the processor time of both ends."""
        return self.bytes / (self.sent_s + self.received_s)


class _Loops:
    """Loops that compute while the `with` block runs."""

    def __enter__(self):
        # A loop ends with this process, also where nothing else ends it.
        self.processes = [subprocess.Popen([sys.executable, "-I", "-c", _LOOP]) for _ in range(LOOPS * os.cpu_count())]
        time.sleep(1)

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def run(programs):
    """Prints rates and processor time, and each goal beside its number. Returns how many goals are missed."""
    goals, compared, transfers = Goals(), [], []
    count = max(programs.runs, round(RUNS * programs.scale))
    with _Loops():
        for where, rtt in _PATHS.items():
            flows = {name: [] for name in _contestants(programs)}
            for number in range(count):
                # The others take turns with the first transfers.
                for name, flow in _contestants(programs).items():
                    if number < programs.runs or name == "farwrite":
                        flows[name].append(_one(programs, rtt, number, flow))
            compared += _compare(programs, where, flows, goals)
            transfers.append(_transfers(where, flows["farwrite"], goals))
    table.show(
        f"Flows over 1 Gbit/s beside {LOOPS} loops a core, start-up included",
        f"The run of median rate of {programs.runs} in turn; a file of {short.SIZE * programs.scale / 1e6:g} MB; blast and TCP "
        f"send for {_seconds(programs):g} s. fixed: a transfer at\n0.96 of the path, without control. CPU: seconds of "
        "processors for 100 MB. equal time: what the blast carries in the processor\ntime of this flow, at most what the "
        "path carries; of: the rate divided by it. late: p99 of the link's lateness in ms.",
        ["path", "flow", "Mbit/s", "of the blast", "CPU sends", "CPU receives", "MB a core-second", "equal time", "of",
         "late"], compared)
    table.show(
        "All transfers with the adaptive rate",
        "Median, and least to most. again: bytes sent again. dropped: bytes that the queue dropped. path: `path_rate_bps` "
        f"divided by the\nrate of the path. Runs whose link was late (p99) by {_LATE_MS:g} ms do not count.",
        ["path", "runs", "Mbit/s", "again, %", "dropped, %", "path", "late, ms", "do not count"], transfers)
    return goals.show("Goals on a busy machine")


def _contestants(programs):
    """Names, and functions that run a flow over a path."""
    found = {
        "farwrite": _transfer,
        "fixed": functools.partial(_transfer, options=("--rate-control", "fixed", "--rate", str(96 * RATE // 100))),
        "blast": _blast,
    }
    if "bbr" in programs.congestion_controls:
        found["TCP bbr"] = _tcp
    return found


def _one(programs, rtt, seed, flow):
    """Runs a flow over a path of its own."""
    with short.open_path(programs, RATE, rtt, 0, seed) as path:
        path.a.run("nft", "add table inet busy; add counter inet busy datagrams; "
                   "add chain inet busy out { type filter hook output priority 0; }; "
                   "add rule inet busy out meta l4proto udp counter name datagrams")
        done = flow(programs, path)
        report = path.stop()
        if report is None:
            done.dropped = _dropped(path)
        else:
            done.late_ms, _ = ends.lateness(report)
            way = report["forward"]
            done.dropped = way["queue_dropped"] / max(1, way["offered"])
    return done


def _dropped(path):
    """Returns the share of UDP that the token bucket of `a` dropped. It counts a dropped train as one packet, so bytes are
    compared: those that left the sockets, and those that left the queue."""
    listed = json.loads(path.a.run("nft", "-j", "list", "counters"))["nftables"]
    [udp] = [entry["counter"] for entry in listed if "counter" in entry]
    queues = json.loads(path.a.run("tc", "-s", "-j", "qdisc", "show", "dev", path.a.dev))
    [queue] = [queue for queue in queues if queue["kind"] == "tbf"]
    return _missing(udp["bytes"], udp["packets"], queue["bytes"], queue["packets"])


def _missing(offered_bytes, trains, left_bytes, packets):
    """Returns the share of payload that is missing. What is offered has headers once a train, what left once a packet.

    >>> _missing(2 * (4000 + 28), 2, 4 * (1000 + 42), 4)
    0.5
    """
    offered = offered_bytes - _IP_UDP * trains
    left = left_bytes - (_IP_UDP + _ETHERNET) * packets
    return max(0.0, 1 - left / max(1, offered))


def _transfer(programs, path, options=()):
    file = programs.file(round(short.SIZE * programs.scale))
    seconds, sent, received, result = ends.move_counted(programs, path, file, *options)
    size = file.stat().st_size
    return _Flow(8 * size / seconds, size, sent, received, result, seconds)


def _seconds(programs):
    return max(1.0, 4 * programs.scale)


def _blast(programs, path):
    taken, sent = path.exchange(
        ["udp-sink"],
        ["udp-blast", "--rate", 1.1 * RATE, "--payload", _PAYLOAD, "--segments", 60_000 // _PAYLOAD, "--seconds",
         _seconds(programs)])
    return _Flow(8 * taken["bytes"] / taken["seconds"], taken["bytes"], sent["processor_seconds"],
                 taken["processor_seconds"])


def _tcp(programs, path):
    taken, sent = ends.tcp_exchange(path, _seconds(programs), "bbr")
    tenths = taken["flows"][0]
    return _Flow(ends.tcp_bps(tenths), sum(tenths), sent["processor_seconds"], taken["processor_seconds"])


def _compare(programs, where, flows, goals):
    """Returns a row for each flow of this path."""
    medians = {}
    for name, done in flows.items():
        in_turn = sorted(_counted(done[:programs.runs]), key=lambda flow: flow.bps)
        if in_turn:
            medians[name] = in_turn[len(in_turn) // 2]
    blast, rows, of = medians.get("blast"), [], {}
    for name, flow in medians.items():
        equal = None
        if blast is not None and flow.seconds is not None:
            cores = (flow.sent_s + flow.received_s) / flow.seconds
            equal = _at_equal_time(blast.bytes_a_core_second(), cores, RATE * _PAYLOAD / (_PAYLOAD + _IP_UDP))
            of[name] = flow.bps / equal
        hundreds = flow.bytes / 1e8
        rows.append([where, name, flow.bps / short.MBIT, blast and flow.bps / blast.bps, flow.sent_s / hundreds,
                     flow.received_s / hundreds, flow.bytes_a_core_second() / 1e6, equal and equal / short.MBIT,
                     of.get(name), flow.late_ms])
    goals.at_least(f"{where}: of a blast with the same processor time", of.get("farwrite"), LEAST)
    return rows


def _at_equal_time(bytes_a_core_second, cores, most_bps):
    """Returns the bits a second of a blast that has so many cores, at most those that the path carries.

    >>> _at_equal_time(200e6, 0.25, 1e9), _at_equal_time(200e6, 2, 1e9)
    (400000000.0, 1000000000.0)
    """
    return min(most_bps, 8 * bytes_a_core_second * cores)


def _counted(flows):
    """Flows over paths that were not late."""
    return [flow for flow in flows if flow.late_ms is None or flow.late_ms < _LATE_MS]


def _transfers(where, flows, goals):
    """Returns a row for all transfers of this path."""
    counted = _counted(flows)
    again = [flow.result["retransmitted_share"] or 0.0 for flow in counted]
    rates = [flow.result["path_rate_bps"] / RATE for flow in counted if flow.result["path_rate_bps"]]
    goals.at_most(f"{where}: most bytes sent again in a run", max(again, default=None), MOST_AGAIN)
    goals.at_most(f"{where}: highest rate of the path in a run", max(rates, default=None), MOST_RATE)
    dropped = [100 * flow.dropped for flow in counted]
    late = [flow.late_ms for flow in flows if flow.late_ms is not None]
    return [where, len(counted), _spread([flow.bps / short.MBIT for flow in counted]),
            _spread([100 * share for share in again]), _spread(dropped), _spread(rates), _spread(late),
            len(flows) - len(counted)]


def _spread(values):
    if not values:
        return None
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
