"""Runs the example of each framework, with two processes on this machine, and prints a line for each.

`make torch-frameworks` runs this program. It ends with 1 if an example failed.
"""

import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
#: The packages of frameworks, with the example of each. Ray starts its workers itself.
FRAMEWORKS = {
    "accelerate": "with_accelerate.py",
    "lightning": "with_lightning.py",
    "transformers": "with_trainer.py",
    "deepspeed": "../train.py",
    "ray": "with_ray.py",
}
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
#: What each rank prints at its end, or the first one of them for DeepSpeed.
ENDS = re.compile(r"rank [01]: loss [\d.]+; farwrite carried [1-9].*|farwrite, zero3: 2 ranks.*")
#: Seconds after which an example is stopped.
LONGEST_S = 600


def run(package: str, script: str) -> tuple[bool, str]:
    """Run an example. Return whether it worked, and the line of a rank or what went wrong."""
    start = () if package == "ray" else TORCHRUN
    options = ("--way", "zero3", "--steps", "20") if package == "deepspeed" else ()
    # Only this machine's processes can read the store.
    environment = {**os.environ, "FARWRITE_TORCH_TRUSTED_STORE": "1"}
    command = [sys.executable, *start, str(HERE / script), *options]
    pipes = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    job = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
    try:
        output, _ = job.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        # Its workers are in the same group of processes.
        os.killpg(job.pid, signal.SIGKILL)
        return False, f"it did not end in {LONGEST_S} s"
    found = ENDS.findall(output)
    if job.returncode == 0 and found:
        return True, found[0]
    return False, f"exit status {job.returncode}\n{output[-2000:]}"


def main() -> int:
    """Run the examples, or those that the arguments name, and return the exit status."""
    failed = False
    for package in sys.argv[1:] or FRAMEWORKS:
        worked, text = run(package, FRAMEWORKS[package])
        failed |= not worked
        print(f"{package} {version(package)}: {'ran' if worked else 'FAILED'}: {text}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
