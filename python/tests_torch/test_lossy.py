"""Training over a path that loses packets: processes in network namespaces that `farwrite link` joins."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benches"))

PROGRAM = os.environ.get("FARWRITE", "")
LACKS = [what for what, there in [("root", os.geteuid() == 0), ("ip", shutil.which("ip"))] if not there]
if not PROGRAM:
    LACKS.append("FARWRITE, the path of the program")


@pytest.mark.skipif(bool(LACKS) and os.environ.get("CI") != "true", reason=f"needs {', '.join(LACKS)}")
def test_training_over_a_lossy_path() -> None:
    assert not LACKS, f"needs {', '.join(LACKS)}"
    clean = _train("--rate", "1Gbit", "--rtt", "1ms")
    lossy = ("--rate", "200Mbit", "--rtt", "4ms", "--loss", "2%")
    exact = _train(*lossy)
    assert [loss for _, loss in exact["tests"]] == [loss for _, loss in clean["tests"]]
    for transform in ((), ("--hadamard", "1024")):
        bounded = _train(*lossy, options=("--bounded", "0.05", *transform))
        assert bounded["drift"] == 0, "replicas have drifted apart"
        # The missing share depends on how busy the machine is.
        assert 0 < bounded["missing_share"] < 0.5
        loss, whole = bounded["tests"][-1][1], exact["tests"][-1][1]
        assert abs(loss - whole) < 0.25 * whole, transform


def _train(*link: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    from training import NetworkPath, train

    with NetworkPath(PROGRAM, *link) as path:
        return train(path, 2, "--steps", "30", *options, seconds=300)
