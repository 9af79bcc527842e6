"""The tables of lab/results/claims.md: the verdict on each claim, and on each of its numbers."""

import json
import re
import tomllib

from results import table

CAUSES = {"ours": "ours", "open": "open setting", "paper": "paper"}
ORDER = ["reproduced", "partly", "not"]


def claims(folder):
    """The claims of a folder, by paper and number, each with its results."""
    found = []
    for path in folder.glob("*/claim.toml"):
        results = json.loads((path.parent / "results.json").read_text())
        found.append((path.parent.name, tomllib.loads(path.read_text()), results))
    return sorted(found, key=lambda claim: [
        int(part) if part.isdigit() else part for part in re.split(r"(\d+)", claim[0])])


def text(value):
    """A number with three digits."""
    return f"{value:.3g}"


def stated(number):
    """What the paper states of a number."""
    low, high = number.get("paper_low"), number.get("paper_high")
    if "paper" in number:
        return text(number["paper"])
    if low is not None and high is not None:
        return f"{text(low)} to {text(high)}"
    return f"at least {text(low)}" if low is not None else f"at most {text(high)}"


def verdicts(folder):
    """One line for each claim."""
    lines = []
    for name, claim, results in claims(folder):
        found = list(results["verdicts"].values())
        counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in ORDER if verdict in found)
        command = claim.get("command", "make -C lab figures")
        lines.append([f"[{name}](../figures/{name}/plot.svg)", claim["title"], f"**{results['verdict'] or 'no verdict'}**",
                      counts, f"`{command}`"])
    return table(["claim", "title", "verdict", "numbers", "command"], lines)


def told_once(whys):
    """Reasons with a letter where several numbers have the same one, which is told at the first of them."""
    shared = [why for why in dict.fromkeys(whys) if why and whys.count(why) > 1]
    letters = {why: f"({chr(ord('a') + place)})" for place, why in enumerate(shared)}
    return [why if why not in letters else letters[why] if why in whys[:place] else f"{letters[why]} {why}"
            for place, why in enumerate(whys)]


def numbers(folder):
    """One line for each number that a paper states."""
    lines = []
    for name, claim, results in claims(folder):
        judged = [number for number in claim["numbers"] if number["name"] in results["verdicts"]]
        causes = [CAUSES.get(number.get("cause"), "") for number in judged]
        whys = told_once([number["why"] if cause else "" for number, cause in zip(judged, causes)])
        lines += [[name, number["says"], stated(number), results["shown"][number["name"]],
                   results["verdicts"][number["name"]], cause, why]
                  for number, cause, why in zip(judged, causes, whys)]
    return table(["claim", "number", "paper", "here", "verdict", "whose the difference is", "why"], lines)


TABLES = {"verdicts": verdicts, "numbers": numbers}
