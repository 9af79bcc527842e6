"""What programs of a case have measured."""

import json
import re


def show(case, outcome, results):
    """Add the bandwidth that a program of the case has measured to the outcome, if there is one. Return a text."""
    measures = case.get("measures")
    if not measures:
        return ""
    path = results / f"{case['name']}-{measures['program']}.log"
    log = path.read_text(errors="replace") if path.exists() else ""
    read = of_perftest if "messages_of" in measures else of_move
    outcome["bytes_per_s"] = read(log, measures)
    if outcome["bytes_per_s"] is None:
        outcome.setdefault("problems", []).append("the log has no result")
        return ""
    return f"  {outcome['bytes_per_s'] / 1e6:.3g} MB/s"


def of_perftest(log, measures):
    """Return the messages that perftest has counted, over the time.

    Its own bandwidth is not taken: it comes from a frequency of the processor, which perftest cannot find in an
    emulated machine that is busy. It then prints 0.
    """
    row = re.search(rf"^ *{measures['messages_of']} +(\d+) ", log, re.MULTILINE)
    return int(row[1]) * measures["messages_of"] / measures["seconds"] if row else None


def of_move(log, _measures):
    """Return the result of the example `move`."""
    row = re.search(r"^{.*}$", log, re.MULTILINE)
    result = json.loads(row[0]) if row else None
    return result and result["bytes"] / result["seconds"]
