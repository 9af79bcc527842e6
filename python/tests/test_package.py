"""The contents of the package, and its behaviour together with other code."""

import doctest
import importlib.resources
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import farwrite.model
import farwrite.model.completion
import farwrite.model.sweep
import farwrite.plan
import farwrite.sim

ROOT = Path(__file__).parents[2]


def test_types_are_shipped() -> None:
    files = importlib.resources.files(farwrite)
    assert (files / "py.typed").is_file()
    assert (files / "_native.pyi").is_file()


def test_other_threads_run_during_an_evaluation() -> None:
    done = threading.Event()
    counted = 0

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    def counted_during_an_evaluation() -> int:
        before = counted
        time = farwrite.model.completion_time("ec-xor:32,8", 2**33, 4e11, 25e-3, losses)
        time.quantile(0.999)
        return counted - before

    losses = np.geomspace(1e-3, 0.1, 400)
    thread = threading.Thread(target=count)
    thread.start()
    # If an evaluation holds the interpreter's lock, the thread counts only between the two calls. If it
    # releases the lock, the thread can also count little, if no core is free. So the test uses the best of
    # several evaluations.
    runs = any(counted_during_an_evaluation() > 5 for _ in range(20))
    done.set()
    thread.join()
    assert runs


@pytest.mark.parametrize(
    "name",
    [
        "farwrite.model.completion",
        "farwrite.model.sweep",
        "farwrite.plan",
        "farwrite.sim.plan",
        "farwrite.sim.sweep",
    ],
)
def test_examples_of_the_documentation(name: str) -> None:
    result = doctest.testmod(sys.modules[name])
    assert result.attempted > 0
    assert result.failed == 0


def test_examples_of_the_readmes() -> None:
    examples = 0
    for readme in [ROOT / "README.md", ROOT / "python/README.md"]:
        for example in re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL):
            exec(compile(example, str(readme), "exec"), {})
            examples += 1
    assert examples >= 1
