"""What sealing costs a transfer of a file: time and processor seconds, sealed and with --unsealed."""

import statistics

import ends
import table

SIZE = 512 << 20
#: Name, options of `farwrite link` (None: loopback), and the part of the file that is moved.
_PATHS = (
    ("loopback", None, 1.0),
    ("1 Gbit/s, 25 ms, no loss", "--rate 1Gbit --rtt 25ms", 0.5),
    ("the same, loss 1e-3", "--rate 1Gbit --rtt 25ms --loss 0.1%", 0.5),
)
_WAYS = (("sealed", ("--sealed",)), ("unsealed", ("--unsealed",)))


def run(programs):
    """Prints, for each path, a row for each way and their ratios. The ways take turns."""
    rows = []
    for title, options, part in _PATHS:
        file = programs.file(int(SIZE * part * min(1.0, max(0.02, programs.scale))) // 4096 * 4096)
        done = {name: [] for name, _ in _WAYS}
        late = {name: [] for name, _ in _WAYS}
        for seed in range(programs.runs):
            for name, words in _WAYS:
                with programs.path(*(options or "--rate 1Gbit").split(), "--seed", seed) as path:
                    # The default of a receiver takes both.
                    *times, _ = ends.move_counted(programs, path, file, *words, loopback=options is None)
                    done[name].append(times)
                    late[name].append(ends.lateness(path.stop()))
        medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in done.items()}
        for name, (seconds, sent, received) in medians.items():
            shown = None if options is None else ends.shown(*late[name])
            both = (sent + received) / (file.stat().st_size / 1e9)
            rows.append([title, name, file.stat().st_size >> 20, seconds, sent, received, both, shown])
        ratios = [one / other for one, other in zip(medians["sealed"], medians["unsealed"])]
        both = sum(medians["sealed"][1:]) / sum(medians["unsealed"][1:])
        rows.append([title, "sealed / unsealed", None, *ratios, both, None])
    table.show(
        "A file, sealed and unsealed: seconds from the start of `send` to its end, and seconds of processors",
        f"Medians of {programs.runs} runs in turn; an unknown path, files in memory, MTU 1500 and a queue of one round "
        "trip where there is a link;\nloss both ways. All share the cores with both ends and the link. Late: p99 of the "
        "link's lateness in ms, the worst run; rows\nwith ! do not count.",
        ["path", "data packets", "MiB", "seconds", "send, CPU s", "recv, CPU s", "CPU s/GB", "late"], rows)
