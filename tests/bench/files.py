"""Time to move a file of 256 MiB over a path of 25 ms."""

import shutil
import statistics

import ends
import table

SIZE = 256 << 20
RATE = 10_000_000_000
LOSSES = (0, 0.001, 0.01)


def run(programs):
    """Prints seconds by program and loss."""
    size = int(SIZE * min(1.0, max(0.05, programs.scale)))
    description = programs.directory / "link.toml"
    description.write_text(f'rate = "{RATE}"\nrtt = "25ms"\n')
    contestants = {
        "farwrite send": lambda path, file: ends.move(programs, path, file),
        "farwrite send --link": lambda path, file: ends.move(programs, path, file, "--link",
                                                             str(description)),
    }
    # TCP CUBIC is left out, because it takes minutes at a loss of 1%.
    if "bbr" in programs.congestion_controls:
        if shutil.which("rsync"):
            contestants["rsync, TCP bbr"] = (
                lambda path, file: ends.rsync(programs, path, file, "bbr"))
        contestants["bytes alone, TCP bbr"] = (
            lambda path, file: ends.tcp_copy(programs, path, file, "bbr"))
    rows = []
    for name, transfer in contestants.items():
        row, late = [name], []
        for loss in LOSSES:
            times = []
            for seed in range(programs.runs):
                with programs.path("--rate", RATE, "--rtt", "25ms", "--mtu", 9000, "--loss", loss,
                                   "--seed", seed) as path:
                    times.append(transfer(path, programs.file(size)))
                    late.append(ends.lateness(path.stop()))
            row.append(statistics.median(times))
        rows.append([*row, ends.shown(*late)])
    rows += _ratios(rows)
    fill = programs.fill(RATE, 9000)
    table.show(
        f"Seconds for a file of {size >> 20} MiB, from the start of the command to its end",
        f"10 Gbit/s (a blast fills {fill:.3f}), 25 ms, MTU 9000, offloads, queue of one round trip, "
        f"loss both ways;\nfiles in memory; medians of {programs.runs}. --link: with the path's rate and "
        "round trip from a file. Late: p99 of the link's lateness in ms, the\nworst run.",
        ["program", *[f"loss {loss:g}" for loss in LOSSES], "late"], rows)


def _ratios(rows):
    """Returns a row for each transfer of ours: its times divided by those of rsync."""
    rsync = next((row for row in rows if row[0].startswith("rsync")), None)
    if rsync is None:
        return []
    ours = [row for row in rows if row[0].startswith("farwrite")]
    return [[f"{row[0]}, divided by rsync", *[time / other for time, other
                                              in zip(row[1:-1], rsync[1:-1])], None]
            for row in ours]
