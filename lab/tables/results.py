"""Results of lab/figures/boxes, and tables of Markdown."""

import csv
import sys


class Rows:
    """The numbers of all files of a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.values = {}
        for path in sorted(folder.glob("*.csv")):
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    place = (row["figure"], row["panel"], row["series"], float(row["x"]), row["measure"])
                    if place in self.values:
                        sys.exit(f"{path}: a second row has {place}")
                    self.values[place] = float(row["value"])

    def value(self, *place):
        """The number of a figure, panel, series, x and measure."""
        if place not in self.values:
            sys.exit(f"{self.folder}: no row has figure, panel, series, x and measure {place}")
        return self.values[place]

    def places(self, figure, panel, series, measure):
        """The x of a series, in ascending order."""
        wanted = (figure, panel, series, measure)
        return sorted(place[3] for place in self.values if (*place[:3], place[4]) == wanted)

    def series(self, figure, panel, x):
        """The names of the series at a place, in the order of the rows."""
        return list(dict.fromkeys(
            place[2] for place in self.values if place[:2] == (figure, panel) and place[3] == x))


def table(head, lines):
    """A table of Markdown, whose cells are texts."""
    shown = [f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("|  |", "| |") for line in [head, *lines]]
    return "".join([shown[0], "|" + "---|" * len(head) + "\n", *shown[1:]])


def with_error(mean, error, form):
    """A mean and its standard error, if that is large enough to be seen."""
    shown = format(error, form)
    return f"{mean:{form}}" if float(shown.replace(",", "")) == 0 else f"{mean:{form}} +- {shown}"
