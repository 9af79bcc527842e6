"""Flows that share a path."""

import statistics
import time

import ends
import table
from meter import Meter

RATE = 200_000_000
#: Queues in round trips, and losses, in addition to the conditions that have a mark.
_OTHERS = [(0.25, 0), (4, 0), (1, 0.001)]


def _path(programs, queue=1, loss=0):
    return programs.path("--rate", RATE, "--rtt", "40ms", "--queue", f"{int(40_000 * queue)}us",
                         "--no-offload", "--loss", loss)


class Flows:
    """Flows of `farwrite send` on a path. They run until the path ends."""

    def __init__(self, programs, path):
        self.programs = programs
        self.path = path
        self.source = programs.zeros(ends.LONG)
        self.receivers = []

    def start(self):
        """Starts another flow, on the next port."""
        directory = ends.empty(self.programs.directory / f"flow-{len(self.receivers)}")
        port = ends.PORT + 10 * len(self.receivers)
        self.receivers.append(ends.receive(self.programs, self.path, directory, port))
        ends.send(self.programs, self.path, self.source, port=port)

    def check_run(self):
        """Raises an error if a flow has ended."""
        for receiver in self.receivers:
            ends.check_runs(receiver)


def run(programs):
    """Prints the share of each flow."""
    _beside_tcp(programs)
    _beside_own(programs)


def _beside_tcp(programs):
    seconds = max(8, 80 * programs.scale)
    rows = []
    for queue, loss in [(1, 0), *_OTHERS]:
        for cc in programs.congestion_controls:
            # Only the conditions that have a mark are repeated.
            runs = programs.runs if (queue, loss) == (1, 0) else 1
            pairs, late = zip(*(_pair(programs, queue, loss, cc, seconds) for _ in range(runs)))
            shares = sorted(ours / max(1.0, ours + theirs) for ours, theirs in pairs)
            ours, theirs = (statistics.median(rates) for rates in zip(*pairs))
            rows.append([f"{cc}, queue {queue:g} round trips, loss {loss:g}", ours / 1e6,
                         theirs / 1e6, statistics.median(shares),
                         f"{shares[0]:.2f} to {shares[-1]:.2f}", ends.shown(*late)])
    table.show(
        "farwrite send beside one TCP flow",
        f"200 Mbit/s, 40 ms, 1500-byte packets one by one; seconds {seconds / 4:g} to {seconds:g}; "
        f"medians of {programs.runs}, the rows below the first two of one run.\n"
        "Late: p99 of the link's lateness in ms.",
        ["beside", "ours, Mbit/s", "TCP, Mbit/s", "our share", "of all runs", "late"], rows)


def _pair(programs, queue, loss, cc, seconds):
    """Returns the rates of both flows in one run, and the link's lateness."""
    with _path(programs, queue, loss) as path:
        flows = [("udp", ends.PORT), ("tcp", 7000)]
        with Meter(path.b, flows) as meter:
            path.start(path.b, "tcp-sink")
            path.start(path.a, "tcp-source", "--to", path.b.v4, "--cc", cc, "--seconds",
                       seconds + 5)
            own = Flows(programs, path)
            own.start()
            time.sleep(seconds)
        own.check_run()
        return meter.rates(seconds / 4, seconds), ends.lateness(path.stop())


def _beside_own(programs):
    seconds = max(8, 40 * programs.scale)
    rows = []
    for count in (2, 4, 8):
        with _path(programs) as path:
            flows = [("udp", ends.PORT + 10 * number) for number in range(count)]
            own = Flows(programs, path)
            with Meter(path.b, flows) as meter:
                for _ in flows:
                    own.start()
                time.sleep(seconds)
            own.check_run()
            rates = meter.rates(seconds / 4, seconds)
            late = ends.shown(ends.lateness(path.stop()))
        jain = sum(rates) ** 2 / max(1.0, count * sum(rate ** 2 for rate in rates))
        rows.append([f"{count} flows", jain, sum(rates) / RATE, None, late])
    with _path(programs) as path:
        own = Flows(programs, path)
        with Meter(path.b, [("udp", ends.PORT), ("udp", ends.PORT + 10)]) as meter:
            own.start()
            time.sleep(seconds / 2)
            begin = time.monotonic() - meter.start
            own.start()
            time.sleep(seconds)
        own.check_run()
        after = meter.first_at_least(1, 0.8 * RATE / 2, begin)
        rates = meter.rates(begin + seconds / 2, begin + seconds)
        late = ends.shown(ends.lateness(path.stop()))
    jain = sum(rates) ** 2 / max(1.0, 2 * sum(rate ** 2 for rate in rates))
    rows.append(["a second one, late", jain, sum(rates) / RATE, after, late])
    table.show(
        "Flows of farwrite send among themselves",
        f"200 Mbit/s, 40 ms, queue of one round trip, 1500-byte packets one by one; seconds "
        f"{seconds / 4:g} to {seconds:g}.\nAfter: seconds until the late one has 0.8 of its share, "
        "over a second. Late: p99 of the link's lateness in ms.",
        ["", "Jain index", "of the rate", "after", "late"], rows)
