"""Boots one guest, runs cases in it and reports: `main.py IMAGE PROGRAMS [CASE...]`. The script `run` prepares both."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import cases
import measured
import points
from boxes import Boxes

#: How long a guest may take until its first case begins. It boots in about 10 s on an idle machine.
BOOT_S = 180
#: How many guests may be started. On a busy machine, a guest once stopped before its kernel printed a line.
BOOTS = 3
#: The kernel tests its timer against a loop of the processor, and panics if this machine is too busy in between.
BUSY = "no_timer_check"


def qemu(image, results, network):
    """Start a guest. The guest does not use KVM, so it also runs on machines without it."""
    inside = network.inside("").split() if network else []
    share = "local,security_model=none,multidevs=remap"
    return subprocess.Popen(
        [
            *inside, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
            "-nographic", "-no-reboot", *(network.taps if network else ["-nic", "none"]),
            "-kernel", image / "vmlinuz", "-initrd", image / "initrd.gz",
            "-append", f"console=ttyS0 panic=-1 rdinit=/init mitigations=off {BUSY}",
            "-virtfs", f"{share},path=/,mount_tag=host,readonly=on",
            "-virtfs", f"{share},path={results},mount_tag=results",
        ],
        stdin=subprocess.DEVNULL, stdout=open(results / "console.log", "w"), stderr=subprocess.STDOUT,
    )


def start(image, results, network):
    """Start a guest and wait until it asks for its first case. Start another where it does not."""
    for attempt in range(1, BOOTS + 1):
        guest = qemu(image, results, network)
        try:
            end = time.monotonic() + BOOT_S
            while guest.poll() is None and time.monotonic() < end:
                if (results / "asked").exists():
                    return guest
                time.sleep(0.05)
        except BaseException:
            stop(guest)
            raise
        stop(guest)
        print(f"guest {attempt} of {BOOTS} did not start within {BOOT_S} s", flush=True)
        show_log(results / "console.log")
    return guest


def stop(guest):
    guest.kill()
    guest.wait()


def serve(guest, chosen, results, network):
    """Make the network of each case before it begins, until the guest ends. Return what each network counted."""
    paths = {case["name"]: case.get("path") for case in chosen}
    current, counted = None, {}
    end = time.monotonic() + BOOT_S + sum(case["limit_s"] for case in chosen)
    while guest.poll() is None and time.monotonic() < end:
        asked = results / "asked"
        name = asked.read_text() if asked.exists() else None
        if name != current:
            if network:
                counted[current] = network.clear()
                if paths[name]:
                    network.set(paths[name])
            current = name
            (results / "answered").write_text(name)
        time.sleep(0.05)
    if network:
        counted[current] = network.clear()
    if guest.poll() is None:
        print("the guest did not end in time", flush=True)
    return counted


def needed(image, programs):
    """Return the folders of the host from which the guest reads files."""
    folders = [pathlib.Path(__file__).parents[2], image, pathlib.Path(sys.base_prefix)]
    folders += [pathlib.Path(program).parent for program in programs.values()]
    # An outer folder comes before those in it.
    return sorted({folder.resolve() for folder in folders})


def boot(image, programs, chosen, results):
    """Run cases in a guest. Return what the guest says about them, and what the networks between boxes counted."""
    for old in ("asked", "answered", "boxes.key", "results.json"):
        (results / old).unlink(missing_ok=True)
    (results / "python").write_text(os.path.realpath(sys.executable))
    (results / "guest").write_text(str(pathlib.Path(__file__).with_name("guest.py").resolve()))
    (results / "needed").write_text("".join(f"{folder}\n" for folder in needed(image, programs)))
    job = {"modules": str(image / "kernel"), "cases": chosen}
    (results / "job.json").write_text(json.dumps(job))
    network = Boxes(programs["farwrite"], results) if any(case.get("path") for case in chosen) else None
    guest = None
    try:
        guest = start(image, results, network)
        counted = serve(guest, chosen, results, network)
    finally:
        if guest:
            stop(guest)
        if network:
            network.close()
    path = results / "results.json"
    done = json.loads(path.read_text()) if path.exists() else {"cases": []}
    for outcome in done["cases"]:
        outcome |= counted.get(outcome["name"], {})
    return done


def show_log(path):
    print(f"--- {path.name}")
    print(path.read_text(errors="replace")[-6000:])


def without_losses(case, outcome):
    """A case whose netem loses many packets says nothing if none was lost."""
    lossy = [device for device, settings in case.get("netem", {}).items() if "loss 1%" in settings]
    dropped = outcome.get("dropped", {})
    return ["netem has lost no packet"] if lossy and not any(dropped.get(device) for device in lossy) else []


def report(done, chosen, results):
    """Print each case and the logs of those that failed. Return whether all succeeded."""
    outcomes = {case["name"]: case for case in done["cases"]}
    succeeded = True
    for case in chosen:
        outcome = outcomes.get(case["name"], {"codes": ["missing"], "seconds": 0})
        problems = outcome.get("problems", []) + without_losses(case, outcome)
        good = all(code == 0 for code in outcome["codes"]) and not problems
        succeeded &= good
        value = measured.show(case, outcome, results)
        print(f"{'ok' if good else 'FAILED':7}{case['name']:40}{outcome['seconds']:7.1f} s  {outcome['codes']}{value}")
        if not good:
            print("\n".join(problems))
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
    parser.add_argument("--short", action="store_true", help="the most important cases, which take 150 s together")
    parser.add_argument("--points", type=int, metavar="RUNS", help="so often each; without CASE all points of figures")
    parser.add_argument("--csv", type=pathlib.Path, help="a file for the points of figures that cases have measured")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the results")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for logs and results, kept")
    options = parser.parse_intermixed_args()
    programs = json.loads(options.programs.read_text())
    chosen = cases.choose(programs, options.case, options.short)
    if options.points:
        chosen = cases.repeated(chosen if options.case else cases.all_points(programs), options.points)
    # A guest and its network do not stay when this program is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="farwrite-vm-") as folder:
        results = options.keep or pathlib.Path(folder)
        results.mkdir(exist_ok=True)
        results = results.resolve()
        done = boot(options.image.resolve(), programs, chosen, results)
        succeeded = report(done, chosen, results)
    if options.json:
        options.json.write_text(json.dumps(done, indent=1) + "\n")
    if options.csv and succeeded:
        points.write(options.csv, chosen, done)
    ready = f"ready after {done['ready_s']:.1f} s of the guest, " if "ready_s" in done else ""
    print(f"{ready}{time.monotonic() - start:.1f} s in all")
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
