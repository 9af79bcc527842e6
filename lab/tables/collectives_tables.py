"""The tables of collectives: those on cables that lose packets, and operations of groups under bursts."""

from results import table, with_error

LOSSES = {0: "0", 1e-4: "1e-4", 3e-4: "3e-4", 1e-3: "1e-3", 3e-3: "3e-3", 1e-2: "1e-2"}
FEWER = [0, 1e-3, 3e-3, 1e-2]
COMPARED = 1e-3
TIMEOUTS = ["4 ms", "16 ms", "67 ms"]
SHARES = [0.5, 1, 2]
BOUNDED = ["XP", "XP, hosts", "best effort, Swift", "best effort, EQDS"]
OTHERS = ["IRN", "SRNIC", "Falcon", "UCCL", *BOUNDED]
BY_SIZE = ["XP", "XP, short timeout", "shipped, exact", "shipped, direct", "shipped, ring"]
OPERATIONS = ["RoCE", "best effort, Swift", "XP", *BY_SIZE[2:], "shipped, ring, loss target"]
PANELS = ["no other traffic", "bursts", "bursts, small buffer"]


def means(rows, panel, pfc, losses):
    """Mean times and their standard errors, one line for each transport."""
    roce = [f"RoCE{pfc}, {timeout}" for timeout in TIMEOUTS]
    lines = []
    for name in [*roce, *OTHERS]:
        cells = ([rows.value("OL", panel, name, loss, of) for of in ("mean_ms", "error_ms")] for loss in losses)
        lines.append([name, *(with_error(mean, error, ".1f") for mean, error in cells)])
    return table(["", *(LOSSES[loss] for loss in losses)], lines)


def missing(rows):
    """Shares of bytes that are missing."""
    lines = []
    for panel in PANELS:
        for name in BOUNDED:
            shares = (rows.value("OL", panel, name, loss, "missing_percent") for loss in FEWER)
            lines.append([panel if name == BOUNDED[0] else "", name, *(f"{share:.2f}" for share in shares)])
    return table(["", "", *(LOSSES[loss] for loss in FEWER)], lines)


def operations(rows):
    """Operations of groups and XP under bursts, without losses: times and what is missing, by collective."""
    panels = [f"{collective}, no loss" for collective in ("AllReduce", "AllGather, ReduceScatter")]
    lines = []
    for name in OPERATIONS:
        cells = []
        for panel in panels:
            there = name in rows.series("O6", panel, 0)
            value = lambda of: rows.value("O6", panel, name, 0, of)
            cells += [f"{value('mean_ms'):.1f}", f"{value('p99_ms'):.1f}", f"{value('missing_percent'):.1f}%"] \
                if there else ["-"] * 3
        lines.append([name, *cells])
    head = ["AllReduce: mean, ms", "p99, ms", "missing", "AllGather: mean, ms", "p99, ms", "missing"]
    return table(["", *head], lines)


def operations_by_size(rows):
    """How many times faster than RoCE operations of groups and XP are, and what is missing, by size."""
    lines = []
    for collective in ("AllReduce", "AllGather, ReduceScatter"):
        for name in BY_SIZE:
            sizes = rows.places("O5", collective, name, "mean_ms")
            if not sizes:
                continue
            value = lambda series, of, x: rows.value("O5", collective, series, x, of)
            faster = [value("RoCE", "mean_ms", x) / value(name, "mean_ms", x) for x in sizes]
            missing = [value(name, "missing_percent", x) for x in sizes]
            lines.append([collective, name, *(f"{ratio:.2f}" for ratio in faster),
                          f"{sum(missing) / len(missing):.1f}%"])
    return table(["", "", "20 MB", "40 MB", "60 MB", "80 MB", "missing, mean"], lines)


def steps_with_losses(rows):
    """Steps of RoCE and XP among 128 hosts where cables lose packets, by the ACK timeout of RoCE."""
    lines = []
    for timeout in TIMEOUTS:
        value = lambda series, of: rows.value("C2", f"ACK timeout {timeout}", series, COMPARED, of)
        for series in ("RoCE", "XP, all bytes", "XP, last packet"):
            median, p99 = value(series, "median_ms"), value(series, "p99_ms")
            lines.append([timeout if series == "RoCE" else "", series, f"{median:.2f}", f"{p99:.2f}",
                          f"{p99 / median:.2f}", f"{value(series, 'missing_percent'):.1f}%"])
    return table(["ACK timeout", "", "median, ms", "p99, ms", "p99 / median", "missing"], lines)


def training_steps(rows):
    """Times of steps of training, by how long a computation takes in lossless all-reduces."""
    alone = rows.value("OL", PANELS[0], "RoCE, 67 ms", 0, "mean_ms")
    lines = []
    for name in [*(f"RoCE, {timeout}" for timeout in TIMEOUTS), "XP, hosts", "best effort, EQDS"]:
        cells = []
        for panel, series in ((PANELS[0], name), (PANELS[2], name.replace("RoCE", "RoCE, no PFC"))):
            mean = rows.value("OL", panel, series, COMPARED, "mean_ms")
            cells += [f"{share * alone + mean:.1f}" for share in SHARES]
        lines.append([name, *cells])
    return table(["", *(f"{panel}: {share:g}" for panel in ("alone", "bursts") for share in SHARES)], lines)


TABLES = {
    "c2-losses": steps_with_losses,
    "o3v-steps": training_steps,
    "o6-operations": operations,
    "o5-operations": operations_by_size,
    "ol-alone": lambda rows: means(rows, PANELS[0], "", LOSSES),
    "ol-small": lambda rows: means(rows, PANELS[2], ", no PFC", FEWER),
    "ol-missing": missing,
}
