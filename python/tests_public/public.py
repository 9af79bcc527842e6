"""Runs tests of torch and torchft with gloo and with farwrite, in the same run.

Farwrite must pass each test that gloo passes, except those that `exceptions.toml` names. `make torch-public`
runs this program, and `make test` runs some of the tests. A folder may be given that has tests which no
package contains: `test/distributed` of torch's repository, of the installed version.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from multiprocessing import get_context
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: In the folder that the caller gives.
GIVEN = ("test_c10d_fault_tolerance.py",)
#: What the package of torchft contains. Each has a process of its own, because some leave a default group.
TORCHFT = (
    "process_group_test",
    "manager_integ_test",
    "local_sgd_integ_test",
    "checkpointing.http_transport_test",
    "checkpointing.pg_transport_test",
    "checkpointing.transport_test",
)
#: Seconds after which a suite is stopped.
LONGEST_S = 3600


class Results:
    """A plugin of pytest that notes how each test ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test. The worst phase counts."""
        name = report.nodeid.split("::", 1)[1]
        if report.outcome != "passed" or name not in self.outcomes:
            self.outcomes[name] = report.outcome


def run_one(suite: str, backend: str, names: str, results: Path) -> int:
    """Run the tests of a suite with a backend, in this process."""
    prepare = {"torchft": _prepare_torchft, "given": _prepare_given}
    kind, _, rest = suite.partition(":")
    target = prepare.get(kind, _prepare_distributed)(backend, rest)
    if kind == "torchft":
        # These run gloo in processes of their own, with both backends.
        names = f"({names}) and not baby" if names else "not baby"
    found = Results()
    # The warnings of these tests are not ours.
    quiet = ["-q", "--tb=line", "-p", "no:cacheprovider", "--noconftest", "-o", "filterwarnings="]
    options = [*quiet, "--import-mode=importlib", "-k", names, *target]
    code = pytest.main(options, plugins=[found])
    results.write_text(json.dumps(found.outcomes))
    return int(code)


def _prepare_distributed(backend: str, _: str) -> list[str]:
    os.environ.update(BACKEND="gloo", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1")
    _replace_gloo(backend)
    return [str(HERE / "distributed.py")]


def _prepare_torchft(backend: str, name: str) -> list[str]:
    import torchft.process_group

    if backend == "farwrite":
        import farwrite.torchft

        torchft.process_group.ProcessGroupGloo = farwrite.torchft.ProcessGroupFarwrite
    return ["--pyargs", f"torchft.{name}"]


def _prepare_given(backend: str, path: str) -> list[str]:
    _replace_gloo(backend)
    _fork()
    return [path]


def _replace_gloo(backend: str) -> None:
    """Let tests that ask for gloo get another backend, also in processes that are forked."""
    import torch.distributed as dist

    init = dist.init_process_group

    def init_process_group(*arguments: object, **named: object) -> None:
        replaced = [backend if argument == "gloo" else argument for argument in arguments]
        if named.get("backend") == "gloo":
            named["backend"] = backend
        init(*replaced, **named)

    dist.init_process_group = init_process_group


def _fork() -> None:
    """Let tests of several processes fork them, so that they need not import torch."""
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(get_context("fork").Process)


def only_farwrite(suite: str, names: str) -> list[str]:
    """Run tests of a suite with farwrite. Return what is wrong. Tests that need a GPU are left out."""
    outcomes = _run(suite, "farwrite", names)
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{suite}: farwrite passes {passed} of {len(outcomes)} tests", flush=True)
    if not passed:
        return [f"{suite}: farwrite passes nothing"]
    return [f"{suite}: {name}: farwrite fails" for name, outcome in outcomes.items() if outcome == "failed"]


def compare(suite: str, names: str) -> list[str]:
    """Run the tests of a suite with both backends. Return what is wrong."""
    outcomes = {backend: _run(suite, backend, names) for backend in ("gloo", "farwrite")}
    passed = {name for name, outcome in outcomes["gloo"].items() if outcome == "passed"}
    failed = {name for name in passed if outcomes["farwrite"].get(name) != "passed"}
    known = tomllib.loads((HERE / "exceptions.toml").read_text()).get(suite, {})
    excepted = {name for name in failed if any(name.endswith(test) for test in known)}
    counts = f"gloo passes {len(passed)} of {len(outcomes['gloo'])} tests"
    print(
        f"{suite}: {counts}, farwrite fails {len(failed)} of these, {len(excepted)} as expected", flush=True
    )
    wrong = [f"{suite}: {name}: farwrite fails" for name in sorted(failed - excepted)]
    if not passed:
        wrong.append(f"{suite}: gloo passes nothing")
    return wrong


def _run(suite: str, backend: str, names: str) -> dict[str, str]:
    # Processes of a suite that was stopped may still write files.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results, log, files = (Path(folder) / name for name in ("results", "log", "files"))
        files.mkdir()
        # Tests of files as stores show no address, and all ranks are on this machine.
        # Names of some tests depend on the order of a set.
        environment = {**os.environ, "FARWRITE_TORCH_ADDRESS": "127.0.0.1", "PYTHONHASHSEED": "0"}
        # The tests do not remove all their files.
        environment["TMPDIR"] = str(files)
        command = [sys.executable, "-P", __file__, "--one", suite, backend, str(results), "--names", names]
        with log.open("w") as file:
            try:
                subprocess.run(
                    command,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    timeout=LONGEST_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                print(f"{suite}: {backend}: stopped after {LONGEST_S} s", flush=True)
        if kept := os.environ.get("PUBLIC_LOGS"):
            Path(kept, f"{suite.replace('/', '_')}.{backend}").write_bytes(log.read_bytes())
        if not results.exists():
            print(log.read_text(errors="replace")[-3000:], flush=True)
            return {}
        outcomes: dict[str, str] = json.loads(results.read_text())
        return outcomes


def main() -> None:
    """Run all suites, or those that arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--one", nargs=3, metavar=("SUITE", "BACKEND", "FILE"), help="run one suite in this process"
    )
    parser.add_argument("--names", default="", help="an expression of pytest that selects tests")
    parser.add_argument("--given", default="", help="a folder with tests of torch")
    parser.add_argument("--only-farwrite", action="store_true", help="run no test with gloo")
    parser.add_argument("suites", nargs="*", help="distributed, torchft:process_group_test ...")
    chosen = parser.parse_args()
    if chosen.one:
        suite, backend, file = chosen.one
        sys.exit(run_one(suite, backend, chosen.names, Path(file)))
    suites = chosen.suites or ["distributed", *(f"torchft:{name}" for name in TORCHFT)]
    for name in GIVEN if not chosen.suites else ():
        if chosen.given:
            suites.append(f"given:{Path(chosen.given).absolute() / name}")
        else:
            print(f"{name}: not given: pass TORCH_TESTS=FOLDER")
    check = only_farwrite if chosen.only_farwrite else compare
    wrong = [line for suite in suites for line in check(suite, chosen.names)]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
