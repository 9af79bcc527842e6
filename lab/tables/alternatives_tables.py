"""The table of a file beside other programs."""

from results import table

FIGURE = "alternatives"
#: The path with the losses, and the others.
PATHS = (
    "1 Gbit/s, 25 ms, 100 MB",
    "1 Gbit/s, 25 ms, 1 MB",
    "50 Mbit/s, 30 ms varied by 3 ms, 20 MB",
    "64 kbit/s, 100 ms, 150 kB",
)


def alternatives(rows):
    """Seconds of each program, by path and loss."""
    names = rows.series(FIGURE, PATHS[0], 0)
    lines = []
    for path in PATHS:
        for loss in rows.places(FIGURE, path, names[0], "seconds"):
            first = f"with loss {loss:.0e}".replace("e-0", "e-") if loss else path
            lines.append([first, *(_cell(rows, path, name, loss) for name in names)])
    head = [f"`{names[0]}`", *names[1:]]
    return table(["path and file", *head], lines)


def _cell(rows, path, name, loss):
    """Seconds; `>60` for a program that was stopped after 60 s; words for one that broke off."""
    measures = [place[4] for place in rows.values if place[:4] == (FIGURE, path, name, loss)]
    if measures == ["broke_off"]:
        return "broke off"
    if measures == ["stopped_s"]:
        return f">{rows.value(FIGURE, path, name, loss, 'stopped_s'):g}"
    return f"{rows.value(FIGURE, path, name, loss, 'seconds'):#.3g}"


TABLES = {"alternatives": alternatives}
