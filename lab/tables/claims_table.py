"""The tables of lab/results/claims.md and lab/figures/numbers.md: verdicts on the claims, and on their numbers."""

import json
import re
import tomllib
from collections import Counter

from results import table

CAUSES = {"ours": "ours", "open": "open setting", "paper": "paper"}
ORDER = ["reproduced", "partly", "not"]
BY_ARITHMETIC = "by arithmetic"


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


def decides(number, results):
    """Whether the verdict on the claim depends on a number."""
    return number["name"] in results["verdicts"] and "role" not in number


def counts(claim, results):
    """How many numbers that decide have each verdict, and how many follow by arithmetic."""
    found = [results["verdicts"][number["name"]] for number in claim["numbers"] if decides(number, results)]
    parts = ["/".join(str(found.count(verdict)) for verdict in ORDER)] if found else []
    computed = list(results["verdicts"].values()).count(BY_ARITHMETIC)
    return ", ".join(parts + ([f"{computed} {BY_ARITHMETIC}"] if computed else []))


def verdict(claim, results):
    """The verdict on a claim, with the baseline if it is of another kind than the paper's."""
    baselines = dict.fromkeys(number["baseline"] for number in claim["numbers"] if "baseline" in number)
    return f"**{results['verdict'] or 'no verdict'}**" + "".join(f" (baseline: {of})" for of in baselines)


def verdicts(folder):
    """One line for each claim."""
    lines = []
    for name, claim, results in claims(folder):
        # The letter of a claim names its paper.
        title = re.sub(r"^\w+: ", "", claim["title"])
        command = claim.get("command", "make -C lab figures")
        lines.append([f"[{name}](../figures/{name}/plot.svg)", title[0].upper() + title[1:],
                      verdict(claim, results), counts(claim, results), f"`{command}`"])
    return table(["claim", "title", "verdict", "reproduced/partly/not", "command"], lines)


def whole(whys):
    """Each reason as one part."""
    return [[why] if why else [] for why in whys]


def sentences(whys):
    """Each reason as its sentences, but as one part those that no reason has apart."""
    found = [re.split(r"(?<=[a-z0-9)]\.) (?=[A-Z])", why) if why else [] for why in whys]
    counts = Counter(part for parts in found for part in parts)
    pairs = Counter(pair for parts in found for pair in zip(parts, parts[1:]))
    joined = []
    for parts in found:
        joined.append(parts[:1])
        for before, part in zip(parts, parts[1:]):
            if pairs[before, part] == counts[before] == counts[part]:
                joined[-1][-1] += f" {part}"
            else:
                joined[-1].append(part)
    return joined


def told_once(reasons, least=1):
    """Reasons of parts as texts; a part of `least` words that several have gets a letter, and is told at the first."""
    every = [part for parts in reasons for part in parts]
    shared = [part for part in dict.fromkeys(every) if every.count(part) > 1 and len(part.split()) >= least]
    letters = {part: f"({chr(ord('a') + place)})" for place, part in enumerate(shared)}
    told, shown = set(), []
    for parts in reasons:
        texts = []
        for part in parts:
            texts += [letters[part]] if part in letters else []
            texts += [] if part in letters and part in told else [part]
            told.add(part)
        shown.append(" ".join(texts))
    return shown


def as_before(names):
    """Names of numbers, in which "the same" stands for what a name shares with the last one that is told in full."""
    shown, full = [], []
    for name in names:
        parts = name.split(", ")
        equal = next((place for place, pair in enumerate(zip(full, parts)) if pair[0] != pair[1]), 0)
        if len(" ".join(parts[:equal]).split()) < 5:
            full, equal = parts, 0
        shown.append(", ".join((["the same"] if equal else []) + parts[equal:]))
    return shown


def judged(claim, results):
    """The numbers of a claim that have a verdict, each with the cause of a difference and its reason."""
    found = [number for number in claim["numbers"] if number["name"] in results["verdicts"]]
    causes = [CAUSES.get(number.get("cause"), "") for number in found]
    return found, causes, [number["why"] if cause else "" for number, cause in zip(found, causes)]


def cells(number, results, says):
    """What a number is, the paper's, ours, and the verdict."""
    role = f" ({number['role']})" if number.get("role") in ("baseline", "variant") else ""
    return [says, stated(number), results["shown"][number["name"]], results["verdicts"][number["name"]] + role]


def numbers(folder):
    """One line for each number that a paper states."""
    lines = []
    for name, claim, results in claims(folder):
        found, causes, whys = judged(claim, results)
        lines += [[name, *cells(number, results, number["says"]), cause, why]
                  for number, cause, why in zip(found, causes, told_once(whole(whys)))]
    return table(["claim", "number", "paper", "here", "verdict", "whose the difference is", "why"], lines)


def differs(number, results):
    """Whether a number that decides, or that follows from the paper's own ones, is not reproduced."""
    return (results["verdicts"][number["name"]] not in ("reproduced", BY_ARITHMETIC)
            and number.get("role", "arithmetic") == "arithmetic")


def differences(folder):
    """One line for each number that differs; the first one of a claim names it."""
    lines = []
    for name, claim, results in claims(folder):
        found = [entry for entry in zip(*judged(claim, results)) if differs(entry[0], results)]
        says = as_before([number["says"] for number, _, _ in found])
        whys = told_once(sentences([why for _, _, why in found]), 5)
        lines += [["" if place else f"**{name}**", *cells(number, results, text), f"*{cause.split()[0]}*: {why}"]
                  for place, ((number, cause, _), text, why) in enumerate(zip(found, says, whys))]
    return table(["claim", "number", "paper", "here", "verdict", "cause"], lines)


TABLES = {"verdicts": verdicts, "differences": differences}
ALL = {"numbers": numbers}
