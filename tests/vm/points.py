"""Points of figures as a CSV file: the highest rates of some runs, as shares of one rate without losses.

The machine is emulated, so rates say nothing, and ratios of rates something. The highest of some runs is taken, because
other programs of a busy machine make a run slower, never faster.
"""

import csv

CONDITIONS = {
    "LV": "20 ms each way, 8 Mbit/s, MTU of 1024 bytes, 4 messages of 16 KiB under way, losses in both directions",
    "SV": "10 ms each way, 4 Mbit/s, MTU of 1024 bytes, losses in both directions; RC: 4 messages of 16 KiB under way; "
    "schemes: 16 messages of 250 kB under way",
}
#: Of each figure, the series whose rate without losses is 1.
WHOLE = {"LV": "no box", "SV": "ib_write_bw, RC"}


def write(path, chosen, done):
    rates = {}
    outcomes = {outcome["name"]: outcome for outcome in done["cases"]}
    for case in chosen:
        place = tuple(case["point"][key] for key in ("figure", "panel", "series", "x"))
        rates.setdefault(place, []).append(outcomes[case["name"]]["bytes_per_s"])
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["figure", "panel", "series", "x", "measure", "value", "conditions"])
        for (figure, panel, series, x), values in rates.items():
            whole = max(rates[figure, panel, WHOLE[figure], 0])
            conditions = f"{CONDITIONS[figure]}, the best of {len(values)} runs of 8 s or 4 MB"
            for measure, of in (("share", max), ("least", min)):
                rows.writerow([figure, panel, series, f"{x:g}", measure, f"{of(values) / whole:.3f}", conditions])
