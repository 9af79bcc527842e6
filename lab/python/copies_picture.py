"""``copies_picture.py ROWS --svg FILE``: draws the seconds of programs that move a file, by the loss."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.rows import Rows, load
from paper_figures.style import svg

PATH = "1 Gbit/s, 25 ms, 100 MB"
LOSSES = (0.0, 1e-3, 1e-2)
#: The series, what the picture calls it, and its colour.
PROGRAMS = (
    ("farwrite send", "farwrite send", "#0072B2"),
    ("rsync over ssh, CUBIC", "rsync over ssh", "#D55E00"),
    ("quinn, CUBIC", "QUIC, CUBIC", "#E69F00"),
    ("quinn, BBR", "QUIC, BBR", "#E69F00"),
    ("rsync daemon, BBR", "rsync daemon, BBR", "#999999"),
)
#: Seconds at the end of the axis. What was stopped earlier ends there.
END_S = 60.0


def bar(rows: Rows, program: str, loss: float) -> tuple[float, str]:
    """Return the length of a bar, and its text."""
    (row,) = [row for row in rows.rows if (row.panel, row.series, row.x) == (PATH, program, loss)]
    if row.measure == "broke_off":
        return 0.0, "broke off"
    text = f"{row.value:#.3g} s" if row.measure == "seconds" else f"stopped after {row.value:g} s"
    return row.value, text


def panel(axes: Axes, rows: Rows, loss: float) -> None:
    """Draw the bars of one loss."""
    for place, (program, _, colour) in enumerate(PROGRAMS):
        length, text = bar(rows, program, loss)
        axes.barh(place, length, height=0.66, color=colour)
        inside = length > END_S / 2
        axes.annotate(
            text,
            (length, place),
            xytext=(-5 if inside else 5, 0),
            textcoords="offset points",
            horizontalalignment="right" if inside else "left",
            verticalalignment="center",
            color="white" if inside and colour != "#E69F00" else "black",
            fontweight="bold" if place == 0 else "normal",
        )
    axes.set_title(f"{100 * loss:g} % of packets lost" if loss else "no packet lost")
    axes.set_xlim(0, END_S)
    axes.set_ylim(len(PROGRAMS) - 0.5, -0.5)
    axes.set_xticks([0, 20, 40])
    axes.grid(visible=False, axis="y")


def draw(rows: Rows) -> Figure:
    """Draw a panel for each loss. The background is white, also where the page is dark."""
    with mpl.rc_context({"font.size": 12}):
        figure = Figure(figsize=(10, 3), layout="constrained", facecolor="white")
        panels = figure.subplots(1, len(LOSSES), sharey=True)
        for axes, loss in zip(panels, LOSSES, strict=True):
            panel(axes, rows, loss)
        panels[0].set_yticks(range(len(PROGRAMS)), [shown for _, shown, _ in PROGRAMS])
        panels[0].get_yticklabels()[0].set_fontweight("bold")
        path, size = PATH.rsplit(", ", 1)
        panels[1].set_xlabel(f"seconds to move {size} over {path}")
    return figure


def main() -> None:
    """Draw the picture."""
    arguments = argparse.ArgumentParser(prog="copies_picture.py", description=__doc__)
    arguments.add_argument(
        "rows", type=Path, help="the folder with the rows of `make -C lab bench-path PART=alternatives`"
    )
    arguments.add_argument("--svg", type=Path, required=True, help="the file of the picture")
    chosen = arguments.parse_args()
    chosen.svg.write_text(svg(draw(load(chosen.rows, "alternatives"))))


if __name__ == "__main__":
    main()
