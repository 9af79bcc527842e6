"""One transfer over short and thin paths, and below a maximum rate, beside TCP and QUIC on the same path."""

import contextlib
import functools
import itertools
import os
import time

import ends
import sharing
import table
from lib.path import Path
from lib.veth import sh
from meter import Meter

MBIT = 1_000_000
SIZE = 200_000_000
#: Rate of the path and round trip in ms (None: a pair of veth with the kernel's token bucket), loss, and the maximum
#: rate of the sender.
_PATHS = [
    *[(1000 * MBIT, rtt, 0, None) for rtt in (0.5, 1, 2, 5, 10)],
    *[(200 * MBIT, rtt, 0, None) for rtt in (2, 10)],
    *[(1000 * MBIT, 2, 0, rate) for rate in (100 * MBIT, 500 * MBIT)],
    *[(1000 * MBIT, rtt, 1e-3, None) for rtt in (1, 10)],
    *[(1000 * MBIT, None, 0, rate) for rate in (None, 500 * MBIT, 200 * MBIT)],
]
#: Of the rate of TCP CUBIC, and of the maximum rate of the sender.
_LEAST = 0.95
#: Of the bytes without random loss.
_MOST_AGAIN = 0.01
_IP_MTU = 1500
#: A row counts if the link is late (p99) by less than this part of the round trip.
_LATE_PART = 0.2
_numbers = itertools.count()


class Shaped(Path):
    """Hosts `a` and `b` joined by a pair of veth, whose rate the kernel's token bucket limits on both sides."""

    def __init__(self, rate):
        super().__init__(None)
        self.rate = rate
        tag = f"fws{os.getpid()}-{next(_numbers)}"
        for host, side in ((self.a, "a"), (self.b, "b")):
            host.name, host.dev = f"{tag}{side}", "veth0"

    def __enter__(self):
        try:
            for host in (self.a, self.b):
                sh("ip", "netns", "add", host.name)
            sh("ip", "-n", self.a.name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns",
               self.b.name)
            for host in (self.a, self.b):
                host.ip("addr", "add", f"{host.v4}/24", "dev", host.dev)
                host.ip("link", "set", "lo", "up")
                host.link("up")
                host.run("tc", "qdisc", "add", "dev", host.dev, "root", "tbf", "rate", str(self.rate), "burst",
                         "64kb", "limit", "256kb")
        except BaseException:
            self.__exit__()
            raise
        return self

    def stop(self):
        """There is no link to end."""
        return None


def run(programs):
    """Prints a row for each path. Returns how many goals are missed."""
    rows, missed = [], 0
    for rate, rtt, loss, most in _PATHS:
        where = "veth, tbf" if rtt is None else f"{rtt:g} ms"
        title = f"{rate // MBIT} Mbit/s, {where}{f', loss {loss:g}' if loss else ''}"
        on_path = functools.partial(open_path, programs, rate, rtt, loss)
        ours, late = _median(programs, on_path, functools.partial(_ours, programs, most))
        beside = {}
        for name, flow in _others(programs):
            beside[name], _ = _median(programs, on_path, flow)
        counts = rtt is None or late is None or late < _LATE_PART * rtt
        # Headers count in a maximum, and in no other rate here.
        wire = ours["bps"] * _IP_MTU / ours["result"]["mtu"]
        of = wire / most if most else ours["bps"] / beside["TCP cubic"]["bps"]
        failed = counts and not loss and (of < _LEAST or ours["again"] > _MOST_AGAIN)
        missed += failed
        blast = None if rtt is None else programs.fill(rate, _IP_MTU, "--rtt", _us(rtt), "--loss", loss) * rate / MBIT
        rows.append([title, f"{most // MBIT}" if most else None, blast, ours["bps"] / MBIT,
                     *[flow["bps"] / MBIT for flow in beside.values()], of,
                     f"{100 * ours['again']:.1f} %", None if late is None else f"{late:.2f}",
                     "missed" if failed else "" if counts else "does not count"])
    table.show(
        "One transfer of 200 MB, start-up included, in Mbit/s",
        f"Medians of {programs.runs} runs. TCP and QUIC send for {max(1.0, 2 * programs.scale):g} s. of: our rate divided "
        "by that of TCP CUBIC,\nor our rate with headers divided by the maximum "
        f"(goal {_LEAST}). again: bytes sent again (goal {100 * _MOST_AGAIN:g} % without loss).\nlate: p99 of the link's "
        "lateness in ms; from a fifth of the round trip on, a row does not count.\nUDP: a blast of UDP datagrams, 1.1 "
        "times as fast as the path.",
        ["path", "maximum", "UDP", "farwrite", *[name for name, _ in _others(programs)], "of", "again", "late",
         "goal"], rows)
    _together(programs)
    return missed


def _together(programs):
    """Prints the shares of two flows over 1 Gbit/s and 1 ms, and what the queue dropped."""
    seconds = max(4, 10 * programs.scale)
    rows = []
    for other in ("farwrite", "TCP cubic"):
        with open_path(programs, 1000 * MBIT, 1, 0, 1) as path:
            flows = [("udp", ends.PORT),
                     ("udp", ends.PORT + 10) if other == "farwrite" else ("tcp", 7000)]
            own = sharing.Flows(programs, path)
            with Meter(path.b, flows) as meter:
                if other == "farwrite":
                    own.start()
                else:
                    path.start(path.b, "tcp-sink")
                    path.start(path.a, "tcp-source", "--to", path.b.v4, "--cc", "cubic", "--seconds", seconds + 5)
                own.start()
                time.sleep(seconds)
            own.check_run()
            first, second = meter.rates(seconds / 4, seconds)
            report = path.stop()
        way = report["forward"]
        rows.append([f"farwrite and {other}", first / MBIT, second / MBIT,
                     f"{100 * way['queue_dropped'] / max(1, way['offered']):.2f} %",
                     f"{ends.lateness(report)[0]:.2f}"])
    table.show("Two flows over 1 Gbit/s and 1 ms, in Mbit/s",
               f"Seconds {seconds / 4:g} to {seconds:g} of one run. dropped: packets of both that the queue dropped. "
               "late: p99 of\nthe link's lateness in ms.",
               ["", "first", "second", "dropped", "late"], rows)


def _us(rtt):
    return f"{round(1000 * rtt)}us"


def open_path(programs, rate, rtt, loss, seed):
    """Returns a path with a round trip in ms. Without one, it is a pair of veth with the kernel's token bucket."""
    if rtt is None:
        return Shaped(rate)
    return programs.path("--rate", rate, "--rtt", _us(rtt), "--ip-mtu", _IP_MTU, "--loss", loss, "--seed",
                         seed)


def _median(programs, on_path, flow):
    """Returns the run of median rate, and the worst lateness of the link in ms."""
    runs, late = [], None
    for seed in range(programs.runs):
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(on_path(seed))
            runs.append(flow(path))
            report = path.stop()
            if report is not None:
                late = max(late or 0, ends.lateness(report)[0])
    runs.sort(key=lambda run: run["bps"])
    return runs[len(runs) // 2], late


def _ours(programs, most, path):
    size = round(SIZE * programs.scale)
    options = ["--rate", str(most)] if most else []
    seconds, _, _, result = ends.move_counted(programs, path, programs.file(size), *options)
    return {"bps": 8 * size / seconds, "again": result["retransmitted_share"] or 0.0, "result": result}


def _others(programs):
    seconds = max(1.0, 2 * programs.scale)
    for cc in ("cubic", "bbr"):
        if cc in programs.congestion_controls:
            yield f"TCP {cc}", lambda path, cc=cc: {"bps": ends.tcp_flow(path, seconds, cc)}
    if programs.quinn:
        yield "quinn bbr", lambda path: {"bps": ends.quinn_flow(programs, path, seconds, "bbr")[0]}
