"""Runs the system tests: `main.py DIRECTORY-OF-PROGRAMS`. The script `run` installs what they need
and calls this."""

import os
import pathlib
import signal
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
import ssh_cases
import tree_cases
import wire_cases
from lib.report import Report


def main(programs):
    """Runs all cases and returns the exit status."""
    # An exit removes the namespaces when the tests are terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    with tempfile.TemporaryDirectory(prefix="farwrite-system-") as directory:
        directory = pathlib.Path(directory)
        # The cache of senders' path measurements must not leave the tests.
        os.environ["XDG_CACHE_HOME"] = str(directory / "cache")
        peer = str(programs / "farwrite-peer")
        wire_cases.run(report, peer, directory)
        path_cases.run(report, peer, directory)
        program_cases.run(report, str(programs / "farwrite"), directory)
        link_cases.run(report, str(programs / "farwrite"))
        ssh_cases.run(report, str(programs / "farwrite"), directory)
        rc_cases.run(report, programs, directory)
        box_cases.run(report, programs, directory)
        box_guard_cases.run(report, programs, directory)
        box_ipv6_cases.run(report, programs, directory)
        box_netrt_cases.run(report, programs, directory)
        box_send_cases.run(report, programs, directory)
        nat_cases.run(report, str(programs / "farwrite"), directory)
        disk_cases.run(report, programs, directory)
        power_cases.run(report, programs, directory)
        tree_cases.run(report, str(programs / "farwrite"), directory)
        codes_cases.run(report, str(programs / "farwrite"), directory)
        deb_cases.run(report, str(programs / "farwrite"), directory)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
