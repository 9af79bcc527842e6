"""Loss by the size of packets, as `farwrite probe` measures it over a link that has bit errors.

    loss_by_size.py FARWRITE --csv FILE [--seconds S]

A link with bit errors loses a packet of `n` bytes with probability 1 - (1 - p)^(8 n), so the loss of each size is
known. Needs root.
"""

import argparse
import csv
import json
import os
import pathlib
import platform
import subprocess
import tempfile

from lib.path import Path
from lib.veth import until

from ends import PORT, REAL_TIME

#: With these, packets with a payload of 1 KiB are lost as often as the SDR-RDMA paper has it: 1e-4 to 1e-2.
BIT_ERRORS = (1.2e-8, 1.2e-7, 1.2e-6)
LINK = ("--ip-mtu", "9216", "--rate", "1Gbit", "--rtt", "4ms")
#: A fifth of the rate of the link, also while the probe looks for the rate, so that no queue overflows.
PROBE = ("--rates", "200Mbit", "--max-rate", "200Mbit", "--share", "100%", "--trials", "10")
#: Of IPv4 and UDP, which the link counts too.
HEADER_BYTES = 28
COLUMNS = ("figure", "panel", "series", "x", "measure", "value", "conditions")


def main():
    """Measures all links, and writes the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=60, help="of the probe of a link")
    chosen = parser.parse_args()
    rows = [row for bit_errors in BIT_ERRORS for row in measured(chosen.program, bit_errors, chosen.seconds)]
    with open(chosen.csv, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])


def measured(program, bit_errors, seconds):
    """Returns the rows of a link."""
    found, link = probed(program, bit_errors, seconds)
    forward = link["forward"]
    if forward["unread"] or forward["queue_dropped"]:
        raise SystemExit(f"the link was too slow, so more than its bit errors was lost: {forward}")
    # As in the paper: trials in which a host dropped packets do not count.
    trials = [trial for trial in found["trials"] if not trial["lost_in_hosts"]]
    left_out = len(found["trials"]) - len(trials)
    conditions = (f"farwrite link {' '.join(LINK)}, 16 flows at 200 Mbit/s, {seconds} s for all sizes of a link, "
                  f"{left_out} of {len(found['trials'])} trials left out for drops in a host, "
                  f"{os.cpu_count()} cores, Linux {platform.release()}")
    rows = []
    for size in sorted({trial["payload_bytes"] for trial in trials}):
        packets, lost = (sum(trial[count] for trial in trials if trial["payload_bytes"] == size)
                         for count in ("packets", "lost_packets"))
        known = 1 - (1 - bit_errors) ** (8 * (size + HEADER_BYTES))
        error = (known * (1 - known) / packets) ** 0.5
        print(f"{bit_errors:g} {size:>6} bytes: {lost:>6} of {packets:>8} lost, {lost / packets:.3g}; "
              f"known {known:.3g} +- {error:.1g}", flush=True)
        rows += [("S2", f"bit errors {bit_errors:g}", "farwrite probe", size, measure, value, conditions)
                 for measure, value in (("packets", packets), ("lost", lost), ("known_share", known))]
    return rows


def probed(program, bit_errors, seconds):
    """Returns what a probe found on a link, and what the link counted."""
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "key"
        subprocess.run([program, "keygen", str(key)], check=True, capture_output=True)
        with Path(program, *LINK, "--bit-errors", f"{bit_errors:g}", prefix=REAL_TIME) as path:
            path.own(path.b.popen(
                [*REAL_TIME, program, "--quiet", "probe", "--listen", f"{path.b.v4}:{PORT}", "--psk-file", str(key)],
                stdout=subprocess.DEVNULL))
            until(lambda: f":{PORT}" in path.b.run("ss", "-uln"), 10, "farwrite probe answers")
            probe = path.own(path.a.popen(
                [*REAL_TIME, program, "--json", "--quiet", "probe", f"{path.b.v4}:{PORT}", "--psk-file", str(key), *PROBE,
                 "--time", f"{seconds}s"], text=True, stdout=subprocess.PIPE))
            told, _ = probe.communicate(timeout=2 * seconds + 60)
            if probe.returncode:
                raise SystemExit(f"farwrite probe ended with {probe.returncode}")
            return json.loads(told)["result"], path.stop()


if __name__ == "__main__":
    main()
