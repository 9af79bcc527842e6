"""The share of a path that one transfer fills."""

import csv
import functools
import statistics
import subprocess

import ends
import table

GBIT = 1_000_000_000
#: Rate, round trip in ms, MTU, loss, seconds.
_PATHS = [
    (GBIT, 40, 1500, 0, 10),
    (GBIT, 40, 1500, 0.01, 10),
    (10 * GBIT, 25, 9000, 0, 3),
]


def run(programs):
    """Prints a row for each path and program."""
    rows = []
    for rate, rtt, mtu, loss, seconds in _PATHS:
        seconds = max(1.0, seconds * programs.scale)
        fill = programs.fill(rate, mtu)
        title = f"{rate // GBIT} Gbit/s, {rtt} ms, loss {loss:g}"
        for name, flow in _contestants(programs):
            goodputs, late, lasted = [], [], True
            for seed in range(programs.runs):
                with programs.path("--rate", rate, "--rtt", f"{rtt}ms", "--queue", f"{rtt}ms",
                                   "--ip-mtu", mtu, "--loss", loss, "--seed", seed) as path:
                    goodput, whole = flow(path, rate, seconds)
                    goodputs.append(goodput)
                    lasted &= whole
                    late.append(ends.lateness(path.stop()))
            goodput = statistics.median(goodputs)
            rows.append([title, name if lasted else f"{name}, broke off",
                         goodput / 1e6, goodput / rate, f"{fill:.3f}{'' if fill >= .98 else '!'}",
                         ends.shown(*late)])
        goodput = _virtual(programs, rate, rtt, loss, seconds)
        rows.append([title, "farwrite, virtual time", goodput / 1e6, goodput / rate, None, None])
    # Packets of the virtual endpoints are as long as those of `farwrite send` on these paths.
    table.show(
        "One flow on a path of its own, start-up included",
        "Queue of one round trip; offloads; loss both ways. TCP and quinn for 10 s (at 10 Gbit/s, "
        f"3 s) times {programs.scale:g},\nfarwrite a file that takes as long at the rate; fixed 0.8: at 0.8 of the rate, without control.\nFill: what "
        "a blast of UDP reaches. Late: p99 of the link's\nlateness in ms, the worst run. Rows with ! "
        "do not count. Virtual time: endpoints alone, for the same time.",
        ["path", "program", "Mbit/s", "of the rate", "fill", "late"], rows)


def _virtual(programs, rate, rtt, loss, seconds):
    """Returns the bits per second of endpoints on the same path in virtual time."""
    seconds = max(1, round(seconds))
    done = subprocess.run([programs.paths, "--csv", "--rates", str(rate // 10**6), "--rtts", str(rtt),
                           "--queues", "1", "--losses", str(loss), "--seconds", str(seconds),
                           "--warm-up", "0"], capture_output=True, text=True)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    # The status is 1 if a goal is missed.
    if len(rows) != 1:
        raise ends.Failed(f"paths: {done.stderr or done.stdout}")
    return float(rows[0]["goodput_bps"])


def _contestants(programs):
    def ours(path, rate, seconds, fixed=False):
        file = programs.file(int(rate / 8 * seconds))
        # What a sender that does not adapt reaches: the rest is the limit of the processors.
        options = ["--rate-control", "fixed", "--rate", str(rate * 8 // 10)] if fixed else []
        return 8 * file.stat().st_size / ends.move(programs, path, file, *options), True

    yield "farwrite", ours
    yield "farwrite, fixed 0.8", functools.partial(ours, fixed=True)
    for cc in programs.congestion_controls:
        yield f"TCP {cc}", (lambda path, _, seconds, cc=cc:
                             (ends.tcp_flow(path, seconds, cc), True))
    if programs.quinn:
        for cc in ("bbr", "cubic"):
            yield f"quinn {cc}", (lambda path, _, seconds, cc=cc:
                                  ends.quinn_flow(programs, path, seconds, cc))
