"""Runs the system tests: `main.py DIRECTORY-OF-PROGRAMS [GROUP...]`. The script `run` installs what they
need and calls this."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import box_cases
import box_guard_cases
import box_ipv6_cases
import box_netrt_cases
import box_send_cases
import codes_cases
import deb_cases
import disk_cases
import link_cases
import nat_cases
import path_cases
import power_cases
import program_cases
import rc_cases
import resume_cases
import ssh_cases
import tree_cases
import wire_cases
from lib.report import Report


#: The cases that mostly wait. They run beside the others.
WAITING = {
    "ssh": lambda report, programs, directory: ssh_cases.run(report, str(programs / "farwrite"), directory),
    "nat": lambda report, programs, directory: nat_cases.run(report, str(programs / "farwrite"), directory),
    "disk": disk_cases.run,
    "power": power_cases.run,
    "resume": lambda report, programs, directory: resume_cases.run(report, str(programs / "farwrite"), directory),
    "tree": lambda report, programs, directory: tree_cases.run(report, str(programs / "farwrite"), directory),
    "codes": lambda report, programs, directory: codes_cases.run(report, str(programs / "farwrite"), directory),
    "deb": lambda report, programs, directory: deb_cases.run(report, str(programs / "farwrite"), directory),
}
#: The cases that use the processor.
WORKING = {
    "wire": lambda report, programs, directory: wire_cases.run(report, str(programs / "farwrite-peer"), directory),
    "path": lambda report, programs, directory: path_cases.run(report, str(programs / "farwrite-peer"), directory),
    "program": lambda report, programs, directory: program_cases.run(report, str(programs / "farwrite"), directory),
    "link": lambda report, programs, directory: link_cases.run(report, str(programs / "farwrite")),
    "rc": rc_cases.run,
    "box": box_cases.run,
    "box_guard": box_guard_cases.run,
    "box_ipv6": box_ipv6_cases.run,
    "box_netrt": box_netrt_cases.run,
    "box_send": box_send_cases.run,
}
GROUPS = WORKING | WAITING


def run_groups(programs, names):
    """Run the groups of cases with these names and return the exit status."""
    # An exit removes the namespaces when the tests are terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    with tempfile.TemporaryDirectory(prefix="farwrite-system-") as directory:
        directory = pathlib.Path(directory)
        # The cache of senders' path measurements must not leave the tests.
        os.environ["XDG_CACHE_HOME"] = str(directory / "cache")
        for name in names:
            GROUPS[name](report, programs, directory)
    return report.finish()


def run_all(programs):
    """Run all cases, those that wait in a second process, and return the exit status."""
    with tempfile.TemporaryFile("w+") as output:
        waiting = subprocess.Popen([sys.executable, __file__, str(programs), *WAITING], stdout=output,
                                   stderr=subprocess.STDOUT)
        try:
            status = run_groups(programs, WORKING)
        except BaseException:
            waiting.terminate()
            raise
        finally:
            waiting.wait()
        output.seek(0)
        print(output.read(), end="", flush=True)
    return status or waiting.returncode


def main():
    """Run the groups that the command line names, or all."""
    programs, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if wrong := [name for name in names if name not in GROUPS]:
        sys.exit(f"system tests: there is no group {wrong[0]}; the groups are {', '.join(GROUPS)}")
    return run_groups(programs, names) if names else run_all(programs)


if __name__ == "__main__":
    sys.exit(main())
