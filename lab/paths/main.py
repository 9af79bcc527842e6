"""Benchmarks over an emulated path. The script `run` builds the programs and calls this."""

import argparse
import os
import pathlib
import platform
import signal
import sys
import tempfile

import alternatives
import boxes
import busy
import copies
import files
import flood
import messages
import nccl
import netrt
import rate
import requests
import sealed
import sharing
import short
import steps
import streams
import vary
from ends import Programs

_PARTS = {
    "alternatives": alternatives.run,
    "copies": copies.run,
    "rate": rate.run,
    "file": files.run,
    "sealed": sealed.run,
    "message": messages.run,
    "beside": messages.run_beside,
    "streams": streams.run,
    "nccl": nccl.run,
    "requests": requests.run,
    "sharing": sharing.run,
    "short": short.run,
    "busy": busy.run,
    "steps": steps.run,
    "vary": vary.run,
    "flood": flood.run,
    "box": boxes.run,
    "netrt": netrt.run,
}


def main():
    """Runs the requested parts."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell's command in the background ignores SIGINT, and so would the links, which SIGINT ends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description="Benchmarks over an emulated path.")
    # Shells of other directories start the programs too.
    parser.add_argument("--programs", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--quinn", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--runs", type=int, default=3, help="of which medians are printed")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="of the lengths of flows and the numbers of messages; below 1 it is a "
                             "check that the benchmark works")
    parser.add_argument("--options", default="", help="more options of `farwrite send`")
    parser.add_argument("--csv", type=pathlib.Path, help="the file for the rows of `alternatives`")
    parser.add_argument("parts", nargs="*", choices=[*_PARTS, []], metavar="PART",
                        help=", ".join(_PARTS))
    args = parser.parse_args()
    # The files are in memory, so that the benchmark does not measure a disk.
    with tempfile.TemporaryDirectory(prefix="farwrite-bench-", dir="/dev/shm") as directory:
        programs = Programs(args, pathlib.Path(directory))
        load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        print(f"{os.cpu_count()} cores, Linux {platform.release()}, load before {load}; "
              f"runs {args.runs}, scale {args.scale:g}", flush=True)
        # Some parts have goals, and return how many are missed.
        missed = sum(_PARTS[part](programs) or 0 for part in args.parts or _PARTS)
    if missed:
        sys.exit(f"bench-path: {missed} goals are missed")


if __name__ == "__main__":
    main()
