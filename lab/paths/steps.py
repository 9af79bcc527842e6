"""Paths that change, and a receiver that stops for a while."""

import signal
import statistics
import time

import ends
import table
from meter import Meter

RATE = 200_000_000
RTT = 0.04
#: The bytes of one round trip at the rate.
QUEUE = int(RATE / 8 * RTT)
#: The round trip after the last step of the path, in seconds. The receiver stops there.
_FAR_RTT = 0.08
#: Time for which the receiver is stopped, in seconds.
_STOP = 5
#: The start of a flow, in seconds, which the median of the pings leaves out.
_BEGIN = 2.0
#: Time between two samples of the bytes that arrive. After the stop it is half a round trip.
_PERIOD = 0.2
_FINE_PERIOD = _FAR_RTT / 2
#: After the stop, the flow is back with the first of this many round trips that have 0.8 of the rate
#: together, as in the tests in virtual time.
_BACK = 5
#: Goals for a flow of `farwrite send`: seconds, and round trips after the stop.
_GOALS = (10 * RTT, 5.0, 20.0, 10.0)
#: Maximum waiting time of packets at a quarter of the rate: 0.3 of the queue.
_BOUND = 0.3 * QUEUE * 8 / (RATE / 4)


def run(programs):
    """Prints how long a flow takes to follow a change, and its loss at the start."""
    rows = [["goal", "", *_GOALS, ""]]
    # Four periods, a stop, and a period to recover.
    seconds = 5 * _period(programs) + _STOP
    for name, start in _contestants(programs):
        print(f"changes of the path: {name}, about {seconds:.0f} s", flush=True)
        echo_s, *values, late = _steps(programs, start)
        marked = [_against(value, goal) for value, goal in zip(values, _GOALS)]
        rows.append([name, f"{echo_s * 1e3:.1f}", *marked, late])
    table.show(
        "After a change of the path: seconds until the flow has followed",
        "200 Mbit/s, 40 ms, queue of 1 MB, 1500-byte packets one by one. Ping: the median round trip in ms "
        "before the first change,\nwithout the first two seconds. Rate / 4: until packets "
        f"wait for less than {_BOUND * 1e3:.0f} ms,\nas pings see it. Rate x 4: until the flow has had "
        "0.8 of the rate over a second. Round trip 80 ms: until the end of\nthe last second with less "
        f"than 0.8 of the rate. Receiver stopped for {_STOP} s: round trips (of {_FAR_RTT * 1e3:.0f} "
        f"ms) from its end to the\nstart of the first {_BACK} round trips with 0.8 of the rate. !: it "
        "misses the goal for farwrite send. Late: p99 in ms.",
        ["flow", "ping", "rate / 4", "rate x 4", "80 ms", "stopped", "late"], rows)
    _start_up(programs)


def _against(value, goal):
    """Shows a value, with a mark if it misses the goal."""
    if value is None:
        return "- !"
    return f"{value:.3g}" + (" !" if value > goal else "")


def _contestants(programs):
    def ours(path):
        directory = ends.empty(programs.directory / "steps")
        receiver = ends.receive(programs, path, directory)
        ends.send(programs, path, programs.zeros(ends.LONG))
        return ("udp", ends.PORT), receiver

    yield "farwrite send", ours
    for cc in programs.congestion_controls:
        def tcp(path, cc=cc):
            receiver = path.start(path.b, "tcp-sink")
            path.start(path.a, "tcp-source", "--to", path.b.v4, "--cc", cc, "--seconds", 600)
            return ("tcp", 7000), receiver

        yield f"TCP {cc}", tcp


def _period(programs):
    return max(4.0, 20 * programs.scale)


def _steps(programs, start):
    period = _period(programs)
    down, up, far, stop = (period * number for number in (1, 2, 3, 4))
    with programs.path("--rate", RATE, "--rtt", "40ms", "--queue", QUEUE, "--no-offload",
                       "--step", f"{int(down * 1000)}ms:rate={RATE // 4}",
                       "--step", f"{int(up * 1000)}ms:rate={RATE}",
                       "--step", f"{int(far * 1000)}ms:rtt={_FAR_RTT * 1000:.0f}ms") as path:
        path.start(path.b, "udp-echo")
        ping = path.start(path.a, "udp-ping", "--to", path.b.v4, "--payload", 100, "--rate", 102_400,
                          "--seconds", far)
        pings_from = time.monotonic() - path.started
        flow, receiver = start(path)
        with Meter(path.b, [flow], period=_PERIOD) as meter:
            # Times of the meter count from now. Those of the link count from its start.
            ahead = meter.start - path.started
            time.sleep(stop - ahead)
            receiver.send_signal(signal.SIGSTOP)
            time.sleep(_STOP - _PERIOD)
            # Each sample starts a program, so samples are frequent only here.
            meter.period = _FINE_PERIOD
            time.sleep(_PERIOD)
            receiver.send_signal(signal.SIGCONT)
            resumed = time.monotonic() - meter.start
            time.sleep(period)
        ends.check_runs(receiver)
        echoes = path.result(ping)["echoes"]
        late = ends.shown(ends.lateness(path.stop()))
    # There are 100 datagrams per second. The times below count from the step of the rate.
    queued = [(number / 100 + pings_from - down, trip - RTT) for number, trip in echoes]
    before = [delay for at, delay in queued if _BEGIN - down <= at < 0]
    beyond = [at for at, delay in queued if 0 <= at < up - down and delay > _BOUND]
    drained = max(beyond) if beyond else 0.0
    if drained > up - down - 0.5:
        drained = None
    wanted = 0.8 * RATE
    return [RTT + statistics.median(before), drained, meter.first_at_least(0, wanted, up - ahead),
            meter.last_below(0, wanted, far - ahead, stop - ahead),
            _round_trips(meter.back_at(0, wanted, resumed, _BACK * _FAR_RTT)), late]


def _round_trips(seconds):
    return None if seconds is None else seconds / _FAR_RTT


def _start_up(programs):
    rate, path_bytes = 20_000_000, 20_000_000 / 8 * 0.04
    lost = []
    for seed in range(programs.runs):
        with programs.path("--rate", rate, "--rtt", "40ms", "--queue", "10ms", "--no-offload",
                           "--seed", seed) as path:
            directory = ends.empty(programs.directory / "start")
            receiver = ends.receive(programs, path, directory)
            ends.send(programs, path, programs.zeros(ends.LONG))
            time.sleep(3)
            ends.check_runs(receiver)
            lost.append(path.stop()["forward"]["queue_dropped"])
    table.show(
        "Start-up of farwrite send on a short queue",
        "20 Mbit/s, 40 ms, queue of a quarter of a round trip, the first 3 s of a transfer.",
        ["run", "packets dropped", "of the path's bytes"],
        [[str(number), packets, packets * 1500 / path_bytes]
         for number, packets in enumerate(lost, 1)])
