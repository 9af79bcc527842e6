"""The commands that a newcomer copies from docs/torch.md work as written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "torch.md"


def commands() -> list[str]:
    """Return the commands that start training on each machine, as the document has them."""
    return re.findall(r"^torchrun .*$", DOCUMENT.read_text(), re.MULTILINE)


@pytest.mark.parametrize("bounded", [False, True], ids=["exact", "bounded"])
def test_the_quick_start(bounded: bool, tmp_path: Path) -> None:
    chosen = commands()
    assert len(chosen) == 2, "one command for each machine"
    assert "With `--bounded 0.02` at the end of both commands" in DOCUMENT.read_text()
    port = free_port()
    started = []
    for command in chosen:
        # This machine stands for both machines.
        here = command.replace("10.0.0.1", "127.0.0.1").replace("29500", str(port))
        words = [sys.executable, "-P", "-m", "torch.distributed.run", *shlex.split(here)[1:], "--steps", "20"]
        words += ["--trace", str(tmp_path), *(["--bounded", "0.02"] if bounded else [])]
        started.append(
            subprocess.Popen(
                words, cwd=ROOT, env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
    try:
        said = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], said
    assert "farwrite, ddp: 2 ranks, 20 steps" in said[0][0]
    assert "drift between replicas: 0.0" in said[0][0]
    for rank in range(2):
        events = [json.loads(line) for line in (tmp_path / f"rank-{rank}.jsonl").read_text().splitlines()]
        ended = [event["data"]["qp"] for event in events if event["name"] == "farwrite:send_ended"]
        assert len(ended) > 20, "at least a message in each step"
        assert any(event["data"].get("phase") in ("Probe", "Grow") for event in events)


def test_a_process_has_one_trace(tmp_path: Path) -> None:
    program = (
        "import sys, farwrite.torch; first, second = sys.argv[1:]; farwrite.torch.trace(first)\n"
        "try: farwrite.torch.trace(second)\n"
        "except OSError as error: print(error)"
    )
    words = [sys.executable, "-P", "-c", program, str(tmp_path / "first"), str(tmp_path / "second")]
    said = subprocess.run(words, text=True, check=True, stdout=subprocess.PIPE)
    assert "already recorded" in said.stdout
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "second").exists()


def test_training_on_a_text_needs_no_scikit_learn() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None; sys.path.append('python/examples'); "
        "from train import Text; print(len(Text(1).test[0]))"
    )
    said = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE
    )
    assert int(said.stdout) > 100
