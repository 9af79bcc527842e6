"""Goals of benchmarks, each beside its number."""

import table


class Goals:
    """Goals beside what was measured."""

    def __init__(self):
        self.rows = []
        self.missed = 0

    def at_most(self, what, value, goal):
        """Adds a goal. If the value or the goal is `None`, it was not measured."""
        if value is None or goal is None:
            self.rows.append([what, value, goal, "not measured"])
            return
        is_met = value <= goal
        self.missed += not is_met
        self.rows.append([what, value, goal, "met" if is_met else "missed"])

    def show(self, title):
        """Prints all goals. Returns how many are missed."""
        table.show(title, "", ["what", "measured", "at most", ""], self.rows)
        return self.missed
