"""What programs of a case have measured."""

import re


def show(case, outcome, results):
    """Reads what a bandwidth test of perftest has counted in its log, if the case has one. Returns a text about it.

    The number of messages is taken, not the bandwidth: perftest computes that from a frequency of the processor, which
    it cannot find in an emulated machine that is busy, and then prints 0.
    """
    measures = case.get("measures")
    if not measures:
        return ""
    log = (results / f"{case['name']}-{measures['log']}.log").read_text(errors="replace")
    row = re.search(rf"^ *{measures['bytes']} +(\d+) ", log, re.MULTILINE)
    if not row:
        outcome.setdefault("problems", []).append("the log has no row of perftest")
        return ""
    outcome["bytes_per_s"] = int(row[1]) * measures["bytes"] / measures["seconds"]
    return f"  {outcome['bytes_per_s'] / 1e6:.3g} MB/s"
