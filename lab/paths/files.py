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
    rows, medians = [], {}
    for name, transfer in contestants.items():
        row, late = [name], []
        for loss in LOSSES:
            runs = [_run(programs, transfer, loss, seed, size) for seed in range(programs.runs)]
            late += [lateness for _, lateness in runs]
            # A run over a link that was late is left out, unless there is no other.
            valid = [seconds for seconds, lateness in runs if ends.is_valid(lateness)]
            median = statistics.median(valid or [seconds for seconds, _ in runs])
            medians[name, loss] = median
            row.append(f"{median:.3g}{'' if valid else '!'} ({len(valid)} of {len(runs)})")
        rows.append([*row, ends.shown(*late)])
    rows += _ratios(contestants, medians)
    fill = programs.fill(RATE, 9000)
    table.show(
        f"Seconds for a file of {size >> 20} MiB, from the start of the command to its end",
        f"10 Gbit/s (a blast fills {fill:.3f}), 25 ms, MTU 9000, offloads, queue of one round trip, "
        "loss both ways;\nfiles in memory. Medians of the valid runs; a run is valid if the p99 of the "
        f"link's lateness is below {ends.LATE_MS:g} ms.\n!: no run is valid, median of all. --link: with "
        "the path's rate and round trip from a file. Late: the worst\nrun's lateness.",
        ["program", *[f"loss {loss:g}" for loss in LOSSES], "late"], rows)


def _run(programs, transfer, loss, seed, size):
    """Returns the seconds of a transfer, and the link's lateness."""
    with programs.path("--rate", RATE, "--rtt", "25ms", "--ip-mtu", 9000, "--loss", loss, "--seed",
                       seed) as path:
        seconds = transfer(path, programs.file(size))
        return seconds, ends.lateness(path.stop())


def _ratios(names, medians):
    """Returns a row for each transfer of ours: its times divided by those of rsync."""
    rsync = next((name for name in names if name.startswith("rsync")), None)
    if rsync is None:
        return []
    ours = [name for name in names if name.startswith("farwrite")]
    return [[f"{name}, divided by rsync",
             *[medians[name, loss] / medians[rsync, loss] for loss in LOSSES], None]
            for name in ours]
