"""The share of a path that one transfer fills."""

import statistics

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
        for name, flow in _contestants(programs):
            goodputs, late, lasted = [], [], True
            for seed in range(programs.runs):
                with programs.path("--rate", rate, "--rtt", f"{rtt}ms", "--queue", f"{rtt}ms",
                                   "--mtu", mtu, "--loss", loss, "--seed", seed) as path:
                    goodput, whole = flow(path, rate, seconds)
                    goodputs.append(goodput)
                    lasted &= whole
                    late.append(ends.lateness(path.stop()))
            goodput = statistics.median(goodputs)
            rows.append([f"{rate // GBIT} Gbit/s, {rtt} ms, loss {loss:g}",
                         name if lasted else f"{name}, broke off",
                         goodput / 1e6, goodput / rate, f"{fill:.3f}{'' if fill >= .98 else '!'}",
                         ends.shown(*late)])
    table.show(
        "One flow on a path of its own, start-up included",
        "Queue of one round trip; offloads; loss both ways. TCP and quinn for 10 s (at 10 Gbit/s, "
        f"3 s) times {programs.scale:g},\nfarwrite a file that takes as long at the rate. Fill: what "
        "a blast of UDP reaches. Late: p99 of the link's\nlateness in ms, the worst run. Rows with ! "
        "do not count.",
        ["path", "program", "Mbit/s", "of the rate", "fill", "late"], rows)


def _contestants(programs):
    def ours(path, rate, seconds):
        file = programs.file(int(rate / 8 * seconds))
        return 8 * file.stat().st_size / ends.move(programs, path, file), True

    yield "farwrite", ours
    for cc in programs.congestion_controls:
        yield f"TCP {cc}", (lambda path, _, seconds, cc=cc:
                             (ends.tcp_flow(path, seconds, cc), True))
    if programs.quinn:
        for cc in ("bbr", "cubic"):
            yield f"quinn {cc}", (lambda path, _, seconds, cc=cc:
                                  ends.quinn_flow(programs, path, seconds, cc))
