"""The tables of NetRT."""

from results import table


def change(value, of):
    """A time, and its difference from another one."""
    percent = round((value / of - 1) * 100)
    return f"{value:,.0f} ({percent:+d}%)" if percent else f"{value:,.0f} (0%)"


def percent(value, of):
    """The difference from another number."""
    shown = round((value / of - 1) * 100)
    return f"{shown:+d}%" if shown else "0%"


def n6(rows):
    """The chain of N6, and what the boxes of N7 hold."""
    lines = []
    for size in ("10 KB", "100 KB", "1 MB"):
        for loss in (0.001, 0.01, 0.05):
            def value(series, measure, panel=size, loss=loss):
                return rows.value("N6", panel, series, loss, measure)

            def held(measure, panel=size, loss=loss):
                return f"{rows.value('N7', panel, 'reordering buffer', loss, measure):,.0f} KB"

            plain, (one, two) = "Go-Back-N", (f"NetRT, pool {products} BDP" for products in (1, 2))
            cells = [f"{value(plain, 'mean_us'):,.0f}", f"{value(plain, 'p99_us'):,.0f}"]
            for name in (one, two):
                mean = value(name, "mean_us")
                cells += [f"{mean:,.0f}", percent(mean, value(plain, "mean_us"))]
                cells += [f"{value(name, 'p99_us'):,.0f}"] if name == one else []
                cells += [f"{value(name, 'repeated'):,.0f}"]
            lines.append([size, f"{loss * 100:g}%", *cells, held("peak_kb"), held("mean_kb")])
    return table(["write", "loss", "Go-Back-N", "p99", "NetRT, 1 BDP", "change", "p99",
                  "packets repeated by NICs", "NetRT, 2 BDP", "change", "packets repeated by NICs",
                  "held: peak", "mean"], lines)


def n8(rows):
    """The incast of N8."""
    pools = {products: f"NetRT, pool {products} BDP" for products in (1, 4, 16, 32)}
    lines = []
    for buffer in ("2 MiB", "9 MiB"):
        for senders in (15, 30, 50):
            def cells(measure, others, buffer=buffer, senders=senders):
                plain, *values = (rows.value("N8", buffer, name, senders, measure)
                                  for name in ("Go-Back-N", "Go-Back-N and PFC", "IRN", *others))
                return [f"{plain:,.0f}", *(change(value, plain) for value in values)]

            lines.append([str(senders), buffer, *cells("mean_us", pools.values()),
                          *cells("p99_us", (pools[16], pools[32]))])
    return table(["senders", "buffer", "Go-Back-N", "and PFC", "IRN", "NetRT, 1 BDP", "4 BDP", "16 BDP", "32 BDP",
                  "p99: Go-Back-N", "and PFC", "IRN", "NetRT, 16 BDP", "32 BDP"], lines)


def n9_slow(rows):
    """Spraying over spines that are slower than NICs."""
    lines = []
    for gbps in ("12.5", "10"):
        for spines in (2, 4, 8):
            def value(series, measure, panel=f"spines at {gbps} Gbit/s", spines=spines):
                return rows.value("N9", panel, series, spines, measure)

            plain, boxes = "DRILL, Go-Back-N", "DRILL, NetRT"
            mean, tail = value(plain, "mean_us"), value(plain, "p99_us")
            changed = [f"{value(name, 'path_changes') / 150:.1f}" for name in (plain, boxes)]
            repeated = [f"{value(name, 'repeated'):,.0f}" for name in (plain, boxes)]
            lines.append([
                gbps, str(spines), change(value("ECMP, Go-Back-N", "mean_us"), mean), f"{mean:,.0f}",
                change(value("DRILL, IRN", "mean_us"), mean), change(value(boxes, "mean_us"), mean),
                f"{tail:,.0f}", change(value(boxes, "p99_us"), tail), *repeated, *changed])
    return table(["Gbit/s", "spines", "ECMP, Go-Back-N", "DRILL, Go-Back-N", "DRILL, IRN", "DRILL, NetRT",
                  "p99: DRILL, Go-Back-N", "DRILL, NetRT", "repeated by NICs: Go-Back-N", "NetRT",
                  "path changes for 100 KB: Go-Back-N", "NetRT"], lines)


def n9(rows):
    """Spraying over the spines of N9."""
    lines = []
    for spines in (2, 4, 8):
        def value(series, measure, spines=spines):
            return rows.value("N9", "spines", series, spines, measure)

        plain = value("DRILL, Go-Back-N", "mean_us")
        means = {name: change(value(name, "mean_us"), plain)
                 for name in ("ECMP, Go-Back-N", "DRILL, IRN", "DRILL, NetRT", "DRILL, NetRT, 5 us delay")}
        counts = [f"{value(*place):,.0f}" for place in (
            ("DRILL, Go-Back-N", "repeated"), ("DRILL, NetRT", "repeated"), ("DRILL, NetRT", "copies_in_vain"),
            ("DRILL, NetRT, 5 us delay", "copies_in_vain"))]
        ecmp, irn, netrt, late = means.values()
        lines.append([str(spines), ecmp, f"{plain:,.0f}", counts[0], irn, netrt, *counts[1:3], late, counts[3]])
    return table(["spines", "ECMP, Go-Back-N", "DRILL, Go-Back-N", "packets repeated by NICs", "DRILL, IRN",
                  "DRILL, NetRT", "packets repeated by NICs", "unnecessary repeats", "with 5 us delay",
                  "unnecessary repeats"], lines)


#: The rows of N10: names in the results, and in the table.
WEBSEARCH = {
    "Go-Back-N": "Go-Back-N", "Go-Back-N and PFC": "and PFC", "IRN": "IRN", "NetRT, pool 1 BDP": "NetRT, 1 BDP",
    "NetRT, pool 32 BDP": "NetRT, 32 BDP",
    "window 1 BDP: GBN": "window of 1 BDP, Go-Back-N", "window 1 BDP: NetRT 1": "window of 1 BDP, NetRT 1 BDP",
    "window 1 BDP: NetRT 32": "window of 1 BDP, NetRT 32 BDP",
}


def n10(rows):
    """Flows of the WebSearch sizes."""
    lines = []
    for panel, load, place in (
            ("512 servers, load 0.8, 1024 KiB", 0.8, "512 servers: 0.8, 1 MiB, 4"),
            ("load 0.8, 512 KiB", 0.8, "64 servers: 0.8, 512 KiB, 4")):
        plain = rows.value("N10", panel, "Go-Back-N", load, "short_mean_us")
        for name in WEBSEARCH:
            mean, p90, *counts = (rows.value("N10", panel, name, load, measure) for measure in (
                "short_mean_us", "short_p90_us", "long_mean_us", "repeated", "timeouts", "dropped"))
            lines.append([place, WEBSEARCH[name], three_digits(mean),
                          "" if name == "Go-Back-N" else percent(mean, plain), three_digits(p90),
                          *(f"{count:,.0f}" for count in counts)])
            place = ""
    return table(["servers: load, buffer, sets", "", "short: mean", "change", "p90", "long: mean",
                  "packets repeated by NICs", "timeouts", "dropped"], lines)


#: Loads and buffers in KiB of the sweep of N10. The last one has the 4 sets of the table above.
LOADS, BUFFERS = (0.3, 0.5, 0.65, 0.8), (512, 1024, 2048)
FOUR_SETS = (0.8, 512)
#: Sets of flows that were run again for the cells that fit the paper.
FRESH = [(0.3, 512), (0.5, 512), (0.65, 512)]


def n10_loads(rows):
    """The sweep over loads and buffers."""
    cells = [(load, buffer, "") for load in LOADS for buffer in BUFFERS]
    cells += [(load, buffer, ", from seed 13") for load, buffer in FRESH]
    lines = []
    for load, buffer, fresh in cells:
        few_sets = (load, buffer) == FOUR_SETS
        panel = f"{'' if few_sets else 'sweep, '}load {load:g}, {buffer} KiB{fresh}"

        def value(series, measure, load=load, panel=panel):
            return rows.value("N10", panel, series, load, measure)

        plain = value("Go-Back-N", "short_mean_us")
        error = value("Go-Back-N", "short_mean_error_us")
        line = [f"{load:g}, {buffer} KiB{', fresh sets' if fresh else ', 4 sets' if few_sets else ''}",
                f"{three_digits(plain)} +- {three_digits(error)}"]
        for pool in ("NetRT, pool 1 BDP", "NetRT, pool 32 BDP"):
            line += [percent(value(pool, "short_mean_us"), plain),
                     percent(value(pool, "short_p90_us"), value("Go-Back-N", "short_p90_us"))]
        lines.append([*line, f"{value('Go-Back-N', 'dropped'):,.0f}"])
    return table(["load, buffer", "Go-Back-N: short, mean", "NetRT, 1 BDP: mean", "p90", "NetRT, 32 BDP: mean", "p90",
                  "dropped: Go-Back-N"], lines)


def three_digits(value):
    """A time of short flows."""
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def n8_window(rows):
    """The incast of N8, of senders with a window. Changes are those from Go-Back-N with a window."""
    lines = []
    for kib, buffer in ((512, "512 KiB"), (1024, "1 MiB"), (2048, "2 MiB")):
        for senders in (15, 30, 50):
            def value(series, measure, kib=kib, senders=senders):
                return rows.value("N8-window", f"{kib} KiB", series, senders, measure)

            plain, tail = value("Go-Back-N", "mean_us"), value("Go-Back-N", "p99_us")
            lines.append([
                str(senders), buffer,
                *(f"{value(f'no window, {name}', 'mean_us'):,.0f}" for name in ("Go-Back-N", "NetRT")),
                f"{plain:,.0f}",
                *(change(value(name, "mean_us"), plain) for name in ("IRN", "NetRT")),
                f"{tail:,.0f}", change(value("NetRT", "p99_us"), tail),
                f"{value('Go-Back-N', 'dropped'):,.0f}",
                *(f"{value(name, 'repeated'):,.0f}" for name in ("Go-Back-N", "NetRT")),
            ])
    return table(["senders", "buffer", "no window: Go-Back-N", "NetRT", "window: Go-Back-N", "IRN", "NetRT",
                  "p99: Go-Back-N", "NetRT", "dropped: Go-Back-N", "repeated by NICs: Go-Back-N", "NetRT"], lines)


TABLES = {"n6": n6, "n8": n8, "n8-window": n8_window, "n9": n9, "n9-slow": n9_slow, "n10": n10, "n10-loads": n10_loads}
