"""The tables of LoWAR."""

from math import hypot

from results import table, with_error

GBN, ADAPTIVE = "Go-Back-N", "LoWAR, adaptive"
GOODPUT, ERROR = "goodput_gbps", "error_gbps"
LOSSES = {0: "0", 1e-5: "1e-5", 3e-5: "3e-5", 1e-4: "1e-4", 3e-4: "3e-4", 5e-4: "5e-4", 1e-3: "1e-3"}
#: Ratios of figure 9.
PAPER = {("40 ms", 1e-5): "2.05", ("40 ms", 1e-4): "5.01", ("80 ms", 1e-5): "11.55", ("80 ms", 1e-4): "19.07"}


def coded(shape):
    return f"LoWAR{shape}"


def goodput(rows):
    """One connection: the controller beside fixed shapes."""
    shapes = ["(256, 1)", "(32, 1)", "(8, 1)"]
    lines = []
    for rtt in ("40 ms", "80 ms"):
        for loss in rows.places("L9", rtt, ADAPTIVE, GOODPUT):
            def value(series, rtt=rtt, loss=loss):
                return rows.value("L9", rtt, series, loss, GOODPUT)

            def error(series, rtt=rtt, loss=loss):
                # Files of single runs have none.
                return rows.values.get(("L9", rtt, series, loss, ERROR), 0.0)

            fixed = [name for name in rows.series("L9", rtt, loss) if name.startswith("LoWAR(")]
            best = max(fixed, key=value)
            errors = [error(name) / value(name) for name in (best, ADAPTIVE)]
            ratio = value(ADAPTIVE) / value(best)
            lines.append([
                rtt, LOSSES[loss], f"{value(GBN):.2f}",
                with_error(value(ADAPTIVE), error(ADAPTIVE), ".2f"),
                f"{best.removeprefix('LoWAR')}: {with_error(value(best), error(best), '.2f')}",
                with_error(ratio, ratio * hypot(*errors), ".2f"),
                *(f"{value(coded(shape)):.2f}" for shape in shapes),
                f"{value(coded('(32, 1)')) / value(GBN):.2f}",
                PAPER.get((rtt, loss), ""),
            ])
    return table(["round trip", "loss", GBN, "adaptive", "best fixed", "of best", *shapes,
                  "(32, 1) / Go-Back-N", "paper"], lines)


def connections(rows):
    """16 connections. The table of goodput has one."""
    lines = []
    for rtt in ("40 ms", "80 ms"):
        for loss in (0, 1e-4, 1e-3):
            series = (GBN, coded("(32, 1)"), coded("(8, 1)"), ADAPTIVE)
            values = (rows.value("L9", f"{rtt}, connections: 16", name, loss, GOODPUT) for name in series)
            lines.append([rtt, LOSSES[loss], *(f"{value:.2f}" for value in values)])
    return table(["round trip", "loss", GBN, "LoWAR(32, 1)", "LoWAR(8, 1)", "adaptive"], lines)


def times(rows):
    """L10: completion times."""
    shapes = ["(32, 1)", "(8, 1)"]
    lines = []
    for loss in (0, 1e-5, 1e-4, 5e-4, 1e-3):
        cells = (f"{rows.value('L10', 'times', name, loss, measure):.2f}"
                 for name in (GBN, *map(coded, shapes)) for measure in ("mean_ms", "p99_ms"))
        lines.append([LOSSES[loss], *cells])
    return table(["loss", GBN, "p99", "LoWAR(32, 1)", "p99", "LoWAR(8, 1)", "p99"], lines)


#: With which the controller is compared under bursts.
BURST_SHAPES = [coded(shape) for shape in ("(64, 8)", "(256, 8)", "(256, 16)", "(256, 32)")]


def bursts(rows):
    """L11: bursts of losses."""
    lines = []
    for kind in ("fixed", "mean"):
        for lost in ("0.3", "0.7"):
            for burst in (4, 8, 12):
                panel = f"{kind} length, {lost} lost"

                def value(series, panel=panel, burst=burst):
                    return rows.value("L11", panel, series, burst, GOODPUT)

                line = [kind, lost, str(burst), *(f"{value(name):.2f}" for name in (GBN, coded("(64, 8)"), ADAPTIVE))]
                if set(BURST_SHAPES) <= set(rows.series("L11", panel, burst)):
                    best = max(BURST_SHAPES, key=value)
                    line += [f"{best.removeprefix('LoWAR')}: {value(best):.2f}", f"{value(ADAPTIVE) / value(best):.2f}"]
                else:
                    line += ["", ""]
                lines.append(line)
    return table(["lengths", "p", "length", GBN, "(64, 8)", "adaptive", "best fixed", "of best"], lines)


def small(rows):
    """L12: small messages."""
    lines = []
    for kib, digits in ((1, 4), (4, 4), (16, 3), (64, 3)):
        def value(series, kib=kib):
            return rows.value("L12", "small messages", series, kib * 1024, GOODPUT)

        lossless, plain, wide, narrow = map(value, ("without loss", GBN, coded("(32, 1)"), coded("(8, 1)")))
        lines.append([f"{kib} KiB", *(f"{one:.{digits}f}" for one in (lossless, plain, wide)),
                      f"{wide / lossless:.2f}", f"{narrow:.{digits}f}"])
    return table(["message", "without loss", GBN, "LoWAR(32, 1)", "of lossless", "LoWAR(8, 1)"], lines)


def receivers(rows):
    """L13: LoWAR inside a NIC, by the times of its receive path."""
    panels = ["latency, in the NIC, " + times for times in (
        "0% and 0%", "50% and 50%", "90% and 50%", "100% and 50%", "100% and 100%")]
    lines = []
    for panel in [*panels, "latency"]:
        def time(shape, measure, panel=panel):
            return rows.value("L13", panel, coded(shape), shape[0], measure)

        one = [time((r, 1), "one_loss_us") for r in (32, 64, 128)]
        two = time((128, 1), "two_blocks_us")
        burst = [time((128, 16), measure) for measure in ("one_loss_us", "16_losses_us")]
        # Below a microsecond, a ratio says nothing.
        ratios = [f"{above / below:.2f}" if below > 1 else ""
                  for above, below in ((one[2], one[1]), (two, one[2]), (burst[1], burst[0]))]
        name = panel.removeprefix("latency, in the NIC, ").replace("latency", "box behind a cable")
        times = name.split(" and ")
        cells = [f"{time((128, 1), 'added_us'):.1f}", *(f"{value:.1f}" for value in (*one, two))]
        lines.append([*(times if len(times) == 2 else [name, ""]), *cells, *ratios])
    return table(["receive", "drain", "added, (128, 1)", "one loss, (32, 1)", "(64, 1)", "(128, 1)",
                  "two blocks, (128, 1)", "(128, 1) / (64, 1)", "two / one", "16 losses / one, (128, 16)"], lines)


def nics(rows):
    """L9: NICs with a slow restart and other timeouts."""
    lines = []
    for timeout in ("4 round trips", "67 ms", "17 ms to 67 ms"):
        for window in ("the window", "4096"):
            series = f"timeout {timeout}, restart from {window}"
            cells = []
            for rtt in ("40 ms", "80 ms"):
                values = [rows.value("L9", f"{rtt}, NICs", series, loss, GOODPUT) for loss in (0, 1e-5, 1e-4)]
                own = [rows.value("L9", rtt, coded("(32, 1)"), loss, GOODPUT) for loss in (1e-5, 1e-4)]
                cells += [f"{value:.2f}" for value in values]
                cells += [f"{coded_ / plain:.2f}" for coded_, plain in zip(own, values[1:])]
            lines.append([timeout, window.removeprefix("the ").replace("window", "none"), *cells])
    lines.append(["paper", "", "9.21", "2.92", "", "2.05", "5.01", "", "", "", "11.55", "19.07"])
    head = [f"{rtt}: 0" if cell == "0" else cell for rtt in ("40 ms", "80 ms")
            for cell in ("0", "1e-5", "1e-4", "ratio, 1e-5", "1e-4")]
    return table(["timeout", "slow restart, packets", *head], lines)


TABLES = {
    "l9-goodput": goodput,
    "l9-connections": connections,
    "l10-times": times,
    "l11-bursts": bursts,
    "l12-small": small,
    "l13-receivers": receivers,
    "l9-nics": nics,
}
