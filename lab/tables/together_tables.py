"""The tables of the ways to repair losses side by side."""

import sys

from results import table, with_error

TOGETHER = {
    "Go-Back-N": "Go-Back-N",
    "Go-Back-N, PFC": "and PFC",
    "Go-Back-N, LoWAR": "with LoWAR",
    "Go-Back-N, NetRT": "with NetRT",
    "Go-Back-N, NetRT, 64 Ki": "with NetRT, 65,536 bits",
    "Go-Back-N, NetRT, 1 BDP": "with NetRT, 1 BDP",
    "Go-Back-N, NetRT, 32 BDP": "with NetRT, 32 BDP",
    "Go-Back-N, both boxes": "with both",
    "Go-Back-N, two NetRT pairs": "two NetRT pairs",
}
COSTS = ["wire", "coded", "repeated", "dropped", "kept", "units"]


def costs(value):
    """The cells of COSTS. `value` takes the name of a measure."""
    kept = value("kept_bytes") / 1e6
    units = value("units")
    return [
        f"{value('wire'):.2f}",
        f"{value('coded'):.2f}" if value("coded") else "0",
        f"{value('repeated'):,.0f}",
        f"{value('dropped'):,.0f}",
        f"{kept:.{0 if kept > 2 else 2}f} MB" if kept else "",
        f"{units:.0f}" if units else "",
    ]


def times(value, whose, unit_us, form):
    """The cells of a mean and a 99th percentile, in units of `unit_us` microseconds."""
    mean, error, p99 = (value(f"{whose}{name}") / unit_us for name in ("mean_us", "error_us", "p99_us"))
    return [with_error(mean, error, form), format(p99, form)]


def together(rows, panel, places, whose, unit_us, form):
    """Rows of ways to repair losses, at each of some places, which have texts."""
    lines = []
    for x, text in places.items():
        for name in rows.series("together", panel, x):
            def value(measure, name=name, x=x):
                return rows.value("together", panel, name, x, measure)

            if any(value(f"{start}failed") for start in whose):
                sys.exit(f"{panel}, {name}: a write failed")
            found = [cell for start in whose for cell in times(value, start, unit_us[start], form[start])]
            lines.append([text, TOGETHER.get(name, f"`{name}`" if "-" in name and "Go" not in name else name),
                          *found, *costs(value)])
            text = ""
    return lines


def together_wan(rows):
    lines = together(rows, "wan", {1e-4: "1e-4", 1e-3: "1e-3"}, [""], {"": 1e3}, {"": ".1f"})
    return table(["loss", "", "mean, ms", "p99", *COSTS], lines)


def together_incast(rows):
    lines = together(rows, "incast", {2: "2 MiB", 9: "9 MiB"}, [""], {"": 1}, {"": ",.0f"})
    return table(["buffer", "", "mean, us", "p99", *COSTS], lines)


def together_both(rows):
    whose = ["long_", "incast_"]
    lines = together(rows, "both", {1e-4: ""}, whose, {"long_": 1e3, "incast_": 1},
                     {"long_": ".1f", "incast_": ",.0f"})
    head = ["", "40 ms: mean, ms", "p99", "incast: mean, us", "p99", *COSTS]
    return table(head, [line[1:] for line in lines])


TABLES = {
    "together-wan": together_wan,
    "together-incast": together_incast,
    "together-both": together_both,
}
