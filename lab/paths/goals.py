"""Goals of benchmarks, each beside its number."""

import table


class Goals:
    """Goals beside what was measured. If a value or its goal is `None`, it was not measured.

    >>> goals = Goals()
    >>> goals.at_most("time", 2.0, 3.0), goals.at_least("rate", 2.0, 3.0), goals.at_least("share", None, 0.9)
    (None, None, None)
    >>> [row[-1] for row in goals.rows], goals.missed
    (['met', 'missed', 'not measured'], 1)
    """

    def __init__(self):
        self.rows = []
        self.missed = 0

    def at_most(self, what, value, goal):
        """Adds a goal that a value reaches from below."""
        self._add(what, value, "at most", goal, lambda: value <= goal)

    def at_least(self, what, value, goal):
        """Adds a goal that a value reaches from above."""
        self._add(what, value, "at least", goal, lambda: value >= goal)

    def _add(self, what, value, bound, goal, is_met):
        verdict = "not measured"
        if value is not None and goal is not None:
            verdict = "met" if is_met() else "missed"
        self.missed += verdict == "missed"
        self.rows.append([what, value, None if goal is None else f"{bound} {goal:.3g}", verdict])

    def show(self, title):
        """Prints all goals. Returns how many are missed."""
        table.show(title, "", ["what", "measured", "goal", ""], self.rows)
        return self.missed
