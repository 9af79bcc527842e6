"""The tables of collectives on cables that lose packets."""

from results import table, with_error

LOSSES = {0: "0", 1e-4: "1e-4", 3e-4: "3e-4", 1e-3: "1e-3", 3e-3: "3e-3", 1e-2: "1e-2"}
OTHERS = ["IRN", "SRNIC", "Falcon", "UCCL", "XP", "best effort, Swift", "best effort, EQDS"]
BOUNDED = OTHERS[-3:]
PANELS = ["no other traffic", "bursts", "bursts, small buffer"]


def means(rows, panel, pfc):
    """Mean times and their standard errors, one line for each transport."""
    roce = [f"RoCE{pfc}, {timeout}" for timeout in ("4 ms", "16 ms", "67 ms")]
    lines = []
    for name in [*roce, *OTHERS]:
        cells = ([rows.value("OL", panel, name, loss, of) for of in ("mean_ms", "error_ms")] for loss in LOSSES)
        lines.append([name, *(with_error(mean, error, ".1f") for mean, error in cells)])
    return table(["", *LOSSES.values()], lines)


def missing(rows):
    """Shares of bytes that are missing."""
    lines = []
    for panel in PANELS:
        for name in BOUNDED:
            shares = (rows.value("OL", panel, name, loss, "missing_percent") for loss in LOSSES)
            lines.append([panel if name == BOUNDED[0] else "", name, *(f"{share:.2f}" for share in shares)])
    return table(["", "", *LOSSES.values()], lines)


TABLES = {
    "ol-alone": lambda rows: means(rows, PANELS[0], ""),
    "ol-small": lambda rows: means(rows, PANELS[2], ", no PFC"),
    "ol-missing": missing,
}
