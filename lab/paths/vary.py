"""Time to move a file over paths whose delay or rate varies, that reorder packets, that drop what is
above a rate, or that are thin: `farwrite send` beside rsync over TCP BBR."""

import shutil
import statistics
import subprocess

import ends
import table

MB = 1_000_000

#: Name, bytes of the file, and options of `farwrite link`. Up to 1 Gbit/s. {lte} and {leo} are files
#: with traces.
ROWS = (
    ("10 ms each 30 ms", 20 * MB, "--rate 50Mbit --rtt 30ms --vary uniform:10ms/30ms"),
    ("10 ms each 30 ms, forward only", 20 * MB,
     "--rate 50Mbit --rtt 30ms --vary uniform:10ms/30ms --back vary=none"),
    ("3 ms each 30 ms", 20 * MB, "--rate 50Mbit --rtt 30ms --vary uniform:3ms/30ms"),
    ("spikes of 20 ms", 20 * MB, "--rate 50Mbit --rtt 30ms --vary spikes:5%:20ms/10ms"),
    ("5 ms each 100 ms", 100 * MB, "--rate 200Mbit --rtt 50ms --vary uniform:5ms/100ms"),
    ("5 % of packets 8 ms late", 20 * MB, "--rate 50Mbit --rtt 20ms --reorder 5%:8ms"),
    ("2 % of packets 10 ms late", 20 * MB, "--rate 50Mbit --rtt 50ms --reorder 2%:10ms"),
    ("policer of 10 Mbit/s with 24 kB", 20 * MB, "--rate 100Mbit --rtt 30ms --police 10Mbit:24kB "
                                                 "--back police=none"),
    ("64 kbit/s, 100 ms", 150_000, "--rate 64kbit --rtt 100ms"),
    ("100 Mbit/s, 10 ms each 20 ms, loss 0.1 %", 50 * MB,
     "--rate 100Mbit --rtt 50ms --vary uniform:10ms/20ms --loss 0.1%"),
    ("1 Gbit/s, 3 ms each 20 ms", 400 * MB, "--rate 1Gbit --rtt 50ms --vary uniform:3ms/20ms"),
    ("1 Gbit/s, 3 ms per packet, loss 1 %", 400 * MB,
     "--rate 1Gbit --rtt 50ms --vary uniform:3ms+overtake --loss 1%"),
    ("LTE, 60 ms", 30 * MB, "--rtt 60ms --trace {lte} --queue 1MB --back rate=10Mbit"),
    ("LEO, 50 ms", 300 * MB, "--rtt 50ms --trace {leo} --queue 4MB --back rate=20Mbit"),
)


def run(programs):
    """Prints seconds by path. The programs take turns, and meet the same delays in each turn."""
    if "bbr" not in programs.congestion_controls or not shutil.which("rsync"):
        print("\nvary: left out, because it needs rsync, and TCP BBR in the kernel", flush=True)
        return
    traces = {kind: _trace(programs, kind) for kind in ("lte", "leo")}
    rows = []
    for name, size, options in ROWS:
        options = options.format(**traces)
        size = int(size * min(1.0, max(0.05, programs.scale)))
        ours, theirs, late = [], [], []
        for seed in range(programs.runs):
            for seconds, transfer in ((ours, _farwrite), (theirs, _rsync)):
                took, lateness = _move(programs, transfer, size, [*options.split(), "--seed", seed])
                seconds.append(took)
                late.append(lateness)
        median, bbr = statistics.median(ours), statistics.median(theirs)
        rows.append([name, size / MB, median, bbr, median / bbr, ends.shown(*late)])
    table.show(
        "Seconds for a file, from the start of the command to its end",
        "1500-byte packets, offloads, queue of one round trip (four packets at least), files in memory, an "
        "unknown path.\nVariation in both directions unless the row says otherwise. Medians; the two programs "
        "take turns. Late: the worst\nrun's lateness of the link.",
        ["path", "MB", "farwrite send", "rsync, TCP bbr", "ratio", "late"], rows)


def _trace(programs, kind):
    """Draws two minutes of a mobile or a satellite link."""
    drawn = subprocess.run([programs.traces, kind, "1", "120"], check=True, capture_output=True)
    file = programs.directory / kind
    file.write_bytes(drawn.stdout)
    return file


def _farwrite(programs, path, file):
    return ends.move(programs, path, file)


def _rsync(programs, path, file):
    return ends.rsync(programs, path, file, "bbr")


def _move(programs, transfer, size, options):
    """Returns the seconds of a transfer, and the link's lateness."""
    with programs.path(*options) as path:
        seconds = transfer(programs, path, programs.file(size))
        return seconds, ends.lateness(path.stop())
