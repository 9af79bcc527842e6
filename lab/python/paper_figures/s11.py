"""Fig. 11: cores that encode 400 Gbit/s, measured on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from paper_figures.claim import Numbers, Settings
from paper_figures.style import panels

# The variable with the path of the JSON that `farwrite codes bench --json` printed.
VARIABLE = "FARWRITE_CODES_BENCH"


def bench(settings: Settings) -> dict[str, Any]:
    """Read the result of ``farwrite codes bench --json``, and check that it has the settings of the claim."""
    path = os.environ.get(VARIABLE)
    if path is None:
        raise RuntimeError(f"{VARIABLE} must name a file that `farwrite codes bench --json` wrote")
    found: dict[str, Any] = json.loads(Path(path).read_text())["result"]
    if found["chunk_bytes"] != settings["chunk_bytes"]:
        raise RuntimeError(f"{path} was measured with chunks of {found['chunk_bytes']} bytes")
    return found


def conditions(settings: Settings) -> str:
    """Return the conditions of the measurement."""
    found = bench(settings)
    return f"{found['cpu']}, {found['threads']} thread, median of {found['rounds']} rounds"


def cores(settings: Settings) -> dict[str, dict[str, float]]:
    """Return the number of cores for 400 Gbit/s by code and kernel."""
    return {
        code["code"]: {
            row["kernel"]: row["cores_for_400_gbit"] for row in code["rows"] if row["work"] == "encode"
        }
        for code in bench(settings)["codes"]
    }


def numbers(settings: Settings) -> Numbers:
    """Return the numbers that are compared with the paper's: those of this machine's fastest kernel."""
    found = cores(settings)
    return {"xor_cores": min(found["ec-xor:32,8"].values()), "mds_cores": min(found["ec-mds:32,8"].values())}


def draw(settings: Settings) -> Figure:
    """Draw bars of our numbers of cores."""
    figure, axes = panels(2, width=4.2)
    for panel, (code, kernels) in zip(axes, sorted(cores(settings).items(), reverse=True), strict=True):
        bars = panel.bar(
            list(kernels), list(kernels.values()), color="#0072B2", hatch="//", edgecolor="white"
        )
        panel.bar_label(bars, fmt="%.1f", padding=2)
        panel.set_title(code)
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
        panel.set_yticks([1, 3, 10, 30, 100])
        panel.set_ylim(1, 1000)
        panel.set_xlabel("kernel")
    axes[0].set_ylabel("cores that encode 400 Gbit/s")
    return figure
