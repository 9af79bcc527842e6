#!/usr/bin/env python3
"""Draws the figure of htsim's experiments/fattree-spraying/spray_comparison, with results of `farwrite sim`.

Usage: htsim_spray.py comparison.original.pdf OUT.svg HOSTS=RUNS.csv...

The curves of htsim come from its PDF, which gnuplot wrote: each is a line of six points, after the text of its
key. A point of the figure is the time at which the last flow is done, as a mean over matrices. The points of
`farwrite sim` are the same mean, from runs.csv. Needs matplotlib.
"""

import csv
import re
import sys
import zlib
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

HOSTS = (432, 1024, 2000, 3456, 8192, 16000)
# Times at two marks of the vertical axis, and their places in points of the page.
TIMES, PLACES = (200, 1400), (185.75, 28.449)
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def published(pdf):
    """The time of each point of the figure in microseconds, by number of paths and of hosts."""
    streams = re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL)
    page = zlib.decompress(streams[0]).decode("latin1")
    curves = {}
    for line in re.finditer(r"(?:[\d.]+\s+[\d.]+\s+[ml]\s+){6}S", page):
        key = "".join(re.findall(r"\((.*?)\)", page[: line.start()].rsplit("[", 1)[1].split("]", 1)[0]))
        paths = int(re.search(r"ECMP (\d+)", key)[1])
        places = [float(number) for number in re.findall(r"[\d.]+", line[0])][1::2]
        scale = (TIMES[1] - TIMES[0]) / (PLACES[1] - PLACES[0])
        times = [TIMES[0] + (place - PLACES[0]) * scale for place in places]
        curves[paths] = dict(zip(HOSTS, times))
    return curves


def simulated(named):
    """The same times from runs.csv, and the means over all flows."""
    last, mean = defaultdict(dict), defaultdict(dict)
    for hosts, path in named:
        runs = defaultdict(list)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                times = float(row["last_done_us"]), float(row["fct_mean_us"])
                runs[int(row["transport"].split()[-1])].append(times)
        for paths, times in runs.items():
            last[paths][hosts], mean[paths][hosts] = (sum(column) / len(times) for column in zip(*times))
    return last, mean


def draw(theirs, ours, out):
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for colour, (paths, points) in zip(COLOURS, theirs.items()):
        name = "1 path" if paths == 1 else f"{paths} paths"
        axes.plot(*zip(*points.items()), "-", color=colour, label=name)
        axes.plot(*zip(*ours[paths].items()), "o", color=colour, markerfacecolor="white")
    axes.plot([], [], "o", color="grey", markerfacecolor="white", label="farwrite sim")
    axes.set(xscale="log", ylim=(0, 1400), xlabel="network size, hosts", ylabel="last flow done, us")
    axes.set_xticks(HOSTS, [str(hosts) for hosts in HOSTS], minor=False)
    axes.minorticks_off()
    axes.legend(frameon=False, ncols=2)
    axes.grid(alpha=0.3)
    figure.savefig(out, metadata={"Date": None})


def main(pdf, out, *results):
    named = [(int(hosts), Path(path)) for hosts, path in (result.split("=", 1) for result in results)]
    theirs, (ours, means) = published(Path(pdf).read_bytes()), simulated(named)
    print("hosts  paths  figure us  ours us  ratio  mean of all flows us")
    for hosts, _ in named:
        for paths in theirs:
            figure, last, mean = theirs[paths][hosts], ours[paths][hosts], means[paths][hosts]
            print(f"{hosts:5} {paths:6} {figure:10.0f} {last:8.0f} {last / figure:6.2f} {mean:21.0f}")
    draw(theirs, ours, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
