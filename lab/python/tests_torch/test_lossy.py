"""Training over a path that loses packets: processes in network namespaces that `farwrite link` joins."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

PROGRAM = os.environ.get("FARWRITE", "")
LACKS = [what for what, there in [("root", os.geteuid() == 0), ("ip", shutil.which("ip"))] if not there]
if not PROGRAM:
    LACKS.append("FARWRITE, the path of the program")


NETWORK = pytest.mark.skipif(
    bool(LACKS) and os.environ.get("CI") != "true", reason=f"needs {', '.join(LACKS)}"
)
CLEAN = ("--rate", "1Gbit", "--rtt", "1ms")
LOSSY = ("--rate", "200Mbit", "--rtt", "4ms", "--loss", "2%")


def check(bounded: dict[str, Any], exact: dict[str, Any]) -> None:
    """Check the properties of bounded training, in comparison with exact training with the same seed."""
    assert bounded["drift"] == 0, "ranks compute with different weights"
    # Both shares depend on how busy the machine is.
    assert 0 < bounded["missing_share"] < 0.5
    assert bounded["cut_share"] < 1
    loss, whole = bounded["tests"][-1][-1], exact["tests"][-1][-1]
    assert abs(loss - whole) < 0.25 * whole


def losses(result: dict[str, Any]) -> list[float]:
    """Return the losses of all tests."""
    return [loss for *_, loss in result["tests"]]


@pytest.fixture(scope="module")
def clean() -> dict[str, Any]:
    """Return the result of exact training over a path without loss."""
    assert not LACKS, f"needs {', '.join(LACKS)}"
    return _train(*CLEAN)


@NETWORK
def test_training_over_a_lossy_path(clean: dict[str, Any], tmp_path: Path) -> None:
    exact = _train(*LOSSY)
    assert losses(exact) == losses(clean)
    log = str(tmp_path)
    bounded = _train(*LOSSY, options=("--bounded", "0.05", "--log", log))
    check(bounded, exact)
    # The replay runs over another path, and lacks the contributions that the run lacked.
    replay = _train(*CLEAN, options=("--bounded", "0.05", "--replay", log))
    assert losses(replay) == losses(bounded)
    check(_train(*LOSSY, options=("--bounded", "0.05", "--hadamard", "1024")), exact)


@NETWORK
@pytest.mark.parametrize("transform", [(), ("--hadamard", "1024")], ids=["plain", "hadamard"])
def test_training_with_replicas_that_drift_apart(clean: dict[str, Any], transform: tuple[str, ...]) -> None:
    result = _train(*LOSSY, options=("--bounded", "0.05", "--resynchronise", "10", *transform))
    print(f"drift before each resynchronisation: {result['drifts']}")
    # Replicas are made equal after the last step.
    check(result, clean)
    assert len(result["drifts"]) == 3
    # Weights are of the order of 0.1, so this drift is small. The loss shows that the training works. A
    # drift is 0 if chance loses none of the reduced values of its ten steps.
    assert all(0 <= drift < 1 for drift in result["drifts"])


@NETWORK
@pytest.mark.parametrize("way", ["fsdp2", "zero3"])
def test_training_with_shards_over_a_lossy_path(clean: dict[str, Any], way: str) -> None:
    check(_train(*LOSSY, options=("--way", way, "--bounded", "0.05")), clean)


def _train(*link: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    from training import NetworkPath, train

    with NetworkPath(PROGRAM, *link) as path:
        return train(path, 2, "--steps", "30", *options, seconds=300)
