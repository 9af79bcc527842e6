"""Boots one guest, runs cases in it and reports: `main.py IMAGE PROGRAMS [CASE...]`. The script `run` prepares both."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import cases

#: How long a guest may take besides its cases. It boots in about 10 s on an idle machine.
BOOT_S = 180


def qemu(image, results):
    """Starts a guest. The guest does not use KVM, so it also runs on machines without it."""
    share = "local,security_model=none,multidevs=remap"
    return subprocess.Popen(
        [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
            "-nographic", "-no-reboot", "-nic", "none",
            "-kernel", image / "vmlinuz", "-initrd", image / "initrd.gz",
            "-append", "console=ttyS0 panic=-1 quiet rdinit=/init mitigations=off",
            "-virtfs", f"{share},path=/,mount_tag=host,readonly=on",
            "-virtfs", f"{share},path={results},mount_tag=results",
        ],
        stdin=subprocess.DEVNULL, stdout=open(results / "console.log", "w"), stderr=subprocess.STDOUT,
    )


def boot(image, chosen, results):
    """Runs cases in a guest. Returns what the guest says about them."""
    (results / "python").write_text(os.path.realpath(sys.executable))
    (results / "guest").write_text(str(pathlib.Path(__file__).with_name("guest.py").resolve()))
    job = {"modules": str(image / "kernel"), "cases": chosen}
    (results / "job.json").write_text(json.dumps(job))
    guest = qemu(image, results)
    try:
        guest.wait(BOOT_S + sum(case["limit_s"] for case in chosen))
    except subprocess.TimeoutExpired:
        print("the guest did not end in time", flush=True)
    finally:
        guest.kill()
        guest.wait()
    path = results / "results.json"
    return json.loads(path.read_text()) if path.exists() else {"cases": []}


def show_log(path):
    print(f"--- {path.name}")
    print(path.read_text(errors="replace")[-6000:])


def report(done, chosen, results):
    """Prints each case and the logs of those that failed. Returns whether all succeeded."""
    outcomes = {case["name"]: case for case in done["cases"]}
    succeeded = True
    for case in chosen:
        outcome = outcomes.get(case["name"], {"codes": ["missing"], "seconds": 0})
        good = all(code == 0 for code in outcome["codes"])
        succeeded &= good
        print(f"{'ok' if good else 'FAILED':7}{case['name']:40}{outcome['seconds']:7.1f} s  {outcome['codes']}")
        if not good:
            for log in sorted(results.glob(f"{case['name']}-*.log")):
                show_log(log)
    if len(outcomes) < len(chosen):
        show_log(results / "console.log")
    return succeeded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("image", type=pathlib.Path, help="the folder that `image` printed")
    parser.add_argument("programs", type=pathlib.Path, help="a JSON file: the path of each program by its name")
    parser.add_argument("case", nargs="*", help="the cases to run (all)")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for logs and results, kept")
    options = parser.parse_args()
    chosen = cases.choose(json.loads(options.programs.read_text()), options.case)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="farwrite-vm-") as folder:
        results = options.keep or pathlib.Path(folder)
        results.mkdir(exist_ok=True)
        results = results.resolve()
        done = boot(options.image.resolve(), chosen, results)
        succeeded = report(done, chosen, results)
    ready = f"ready after {done['ready_s']:.1f} s of the guest, " if "ready_s" in done else ""
    print(f"{ready}{time.monotonic() - start:.1f} s in all")
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
