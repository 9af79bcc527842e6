"""The tables of the hardware of lab/rtl: what Yosys maps it to."""

from results import table

FIGURE = "RTL"
CELLS = ["LUT", "LUT as memory", "FF", "CARRY4", "DSP", "RAMB36"]
#: Modules in the order of the design, with what they are.
MODULES = {
    "xp_headers": "finds headers",
    "xp_ctx (contexts)": "contexts of 52 bytes: RAM and forwarding",
    "xp_ctx (deadlines)": "deadlines of 8 bytes: RAM and forwarding",
    "xp_keys": "64 regions of memory",
    "xp_rx": "receiving half",
    "xp_tx": "sending half",
    "xp_dcqcn": "rate",
    "xp_timer": "scan of deadlines",
    "xp_nic": "pipeline, without the above",
}
#: The two widths of `xp_ctx` that are mapped with their logic, in bytes.
MAPPED = {"xp_ctx (contexts)": 52, "xp_ctx (deadlines)": 8}
#: Celeris' Table II: RoCE, with contexts of 407 bytes, less Celeris, with 52.
CELERIS = {
    "LUT": 312_449 - 298_435,
    "LUT as memory": 23_277 - 21_743,
    "FF": 562_129 - 542_972,
    "RAMB36": 1450.5 - 529.5,
}
CELERIS_BYTES = [52, 407]


def cells(rows, panel, series, x):
    """The cells of a series as texts. Half a RAMB36 is a RAM of 18 Kbit."""
    return [f"{rows.value(FIGURE, panel, series, x, measure):,g}" for measure in CELLS]


def modules(rows):
    """One line for each part of the hardware, and all of it. The check of the ICRC stands beside it."""
    lines = [[f"`{name.split()[0]}`", says, *cells(rows, "modules", name, 1024)] for name, says in MODULES.items()]
    lines.append(["**sum**", "", *(f"{sum(rows.value(FIGURE, 'modules', name, 1024, measure) for name in MODULES):,g}"
                                   for measure in CELLS)])
    lines.append(["`xp_icrc`", "ICRC, beside these", *cells(rows, "modules", "xp_icrc", 1024)])
    return table(["module", "", *CELLS], lines)


def contexts(rows):
    """Block RAMs of contexts by width and number of queue pairs."""
    lines = []
    for name in rows.series(FIGURE, "contexts", 10240):
        pairs = rows.places(FIGURE, "contexts", name, "RAMB36")
        rams = {x: rows.value(FIGURE, "contexts", name, x, "RAMB36") for x in pairs}
        lines.append([name, *(f"{rams[x]:,g}" if x in rams else "" for x in (64, 1024, 10240)),
                      f"{rams[10240] / float(name.split()[0]):.2f}"])
    return table(["a context", "RAMB36, 64 pairs", "1,024 pairs", "10,240 pairs", "a byte of these"], lines)


def slopes(rows):
    """What a byte of context takes: of logic between the two widths of `xp_ctx`, of RAM as in Celeris' table."""
    (wide, wide_bytes), (narrow, narrow_bytes) = MAPPED.items()
    logic = {measure: (rows.value(FIGURE, "modules", wide, 1024, measure)
                       - rows.value(FIGURE, "modules", narrow, 1024, measure)) / (wide_bytes - narrow_bytes)
             for measure in CELERIS if measure != "RAMB36"}
    few, many = (rows.value(FIGURE, "contexts", f"{bytes_} bytes", 10240, "RAMB36") for bytes_ in CELERIS_BYTES)
    distance = CELERIS_BYTES[1] - CELERIS_BYTES[0]
    found = {"`xp_ctx`": logic | {"RAMB36": (many - few) / distance},
             "Celeris, Table II": {measure: value / distance for measure, value in CELERIS.items()}}
    lines = [[name, *(f"{of[measure]:.{2 if measure == 'RAMB36' else 1}f}" for measure in CELERIS)]
             for name, of in found.items()]
    return table(["a byte of context takes", *CELERIS], lines)


def receivers(rows):
    """The receiving halves without their RAMs."""
    names = rows.series(FIGURE, "receivers", 0)
    levels = {"XP": "xp_rx", "Go-Back-N": "gbn_rx", "IRN": "irn_rx"}
    lines = [[name, f"{rows.value(FIGURE, 'state', name, 0, 'bits'):g}",
              *(f"{rows.value(FIGURE, 'receivers', name, 0, measure):,g}" for measure in ("LUT", "CARRY4")),
              *(f"{rows.value(FIGURE, 'levels', levels[name], 0, measure):g}" for measure in ("LUT", "carry"))]
             for name in names]
    return table(["receiver", "bits of a queue pair", "LUT", "CARRY4", "LUTs of the longest path", "carry cells of it"],
                 lines)


def route(rows):
    """The clock after place and route, and what it gives in packets."""
    clock = f"{rows.value(FIGURE, 'route', 'XP', 1024, 'MHz'):.1f} MHz"
    lines = [[name, f"{rows.value(FIGURE, 'route', name, 1024, 'cycles'):g}", clock,
              f"{rows.value(FIGURE, 'route', name, 1024, 'packets a second') / 1e6:,.1f} million"]
             for name in rows.series(FIGURE, "route", 1024) if name != "XP"]
    return table(["packet", "cycles", "clock", "packets a second"], lines)


def longest(rows):
    """The longest paths between registers or RAMs."""
    lines = [[f"`{name}`" + (", all parts" if name == "xp_nic" else ""),
              *(f"{rows.value(FIGURE, 'levels', name, 0, measure):g}" for measure in ("LUT", "carry"))]
             for name in rows.series(FIGURE, "levels", 0)]
    return table(["module", "LUTs of the longest path", "carry cells of it"], lines)


def bits(rows):
    """The bits of each field of the context that logic reads."""
    lines = []
    places = sorted({place[3] for place in rows.values if place[:2] == (FIGURE, "bits")})
    for at in places:
        for name in rows.series(FIGURE, "bits", at):
            lines.append([f"{at // 32:g}", f"`{name}`",
                          *(f"{rows.value(FIGURE, 'bits', name, at, measure):g}"
                            for measure in ("bits", "xp_rx", "xp_tx", "xp_dcqcn"))])
    lines.append(["", "**sum**", *(f"{sum(float(line[at]) for line in lines):g}" for at in range(2, 6))])
    return table(["word", "field", "bits", "read by xp_rx", "by xp_tx", "by xp_dcqcn"], lines)


TABLES = {
    "rtl-modules": modules,
    "rtl-contexts": contexts,
    "rtl-slopes": slopes,
    "rtl-receivers": receivers,
    "rtl-route": route,
    "rtl-longest": longest,
    "rtl-bits": bits,
}
