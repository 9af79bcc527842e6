"""Processor time by the packets of a chunk, of `farwrite perf` over loopback.

    chunks.py FARWRITE --csv FILE [--rounds N]

Over loopback, the processor limits throughput. So its time is measured, of both ends, which other programs disturb
less than throughput. Chunks take turns.
"""

import argparse
import csv
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

from lib.ends import free_address

CHUNKS = (1, 4, 16, 64)
PACKET_BYTES = 4096
MESSAGE_BYTES = 1024 * PACKET_BYTES
MESSAGES = 200
COLUMNS = ("figure", "panel", "series", "x", "measure", "value", "conditions")


def main():
    """Measures all chunks, and writes the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=16)
    chosen = parser.parse_args()
    conditions = (f"farwrite perf write_bw over loopback, {MESSAGES} messages of 4 MiB, "
                  f"packets of {PACKET_BYTES} bytes, sr-nack, sealed, means of {chosen.rounds} rounds, "
                  f"{os.cpu_count()} cores, Linux {platform.release()}")
    found = {chunk: [] for chunk in CHUNKS}
    for _ in range(chosen.rounds):
        for chunk, rates in found.items():
            rates.append(8e-9 * MESSAGES * MESSAGE_BYTES / processor_seconds(chosen.program, chunk))
    rows = []
    for chunk, rates in found.items():
        mean, error = statistics.mean(rates), statistics.stdev(rates) / len(rates) ** 0.5
        print(f"{chunk:>2} packets in a chunk: {mean:.3f} +- {error:.3f} Gbit a processor second", flush=True)
        rows += [("S15", "loopback", "farwrite perf", chunk, measure, value, conditions)
                 for measure, value in (("gbit_per_second", mean), ("error_gbit_per_second", error))]
    with open(chosen.csv, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def processor_seconds(program, chunk):
    """Returns the processor time of a client and of its server."""
    address = free_address()
    host, port = address.rsplit(":", 1)
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "key"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([program, "keygen", str(key)], check=True, **quiet)
        command = [program, "--quiet", "perf", "write_bw", "--psk-file", str(key)]
        server = subprocess.Popen([*command, "--bind", host, "-p", port], **quiet)
        client = subprocess.Popen([*command, address, "-m", str(PACKET_BYTES), "-s", str(MESSAGE_BYTES),
                                   "-n", str(MESSAGES), "--chunk", str(chunk)], **quiet)
        try:
            return sum(seconds(end) for end in (client, server))
        finally:
            if server.returncode is None:
                server.kill()
                server.wait()


def seconds(end):
    """Returns the processor time of a program that ends."""
    _, status, used = os.wait4(end.pid, 0)
    end.returncode = os.waitstatus_to_exitcode(status)
    if end.returncode:
        raise SystemExit(f"{' '.join(end.args)} ended with {end.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
