"""Where the processor time of a packet goes: `packet_time.py PROGRAM`, with `farwrite-bench` as the program.

Moves memory over loopback by sockets alone, by the fabric, and by the full stack, each under `perf record`. The time of a
packet of both ends is that of the benchmark's table; the samples of `perf` share it out. Samples of the start, which
fills the memory, do not count. Needs root, and the kernel's symbols."""

import os
import platform
import re
import subprocess
import sys
import tempfile

from table import show

PACKET_BYTES = 4096
RUNS = 7
WAYS = {
    "raw blast": ["--way", "blast"],
    "UDP fabric": ["--way", "fabric"],
    "sr-nack": ["--way", "fixed", "--scheme", "sr-nack"],
    "ec-mds:32,8": ["--way", "fixed", "--scheme", "ec-mds:32,8"],
}
# The first pattern that a symbol matches decides. The start is memory that is filled, and pages that come to exist.
PARTS = [
    ("the start", r"clear_page|memset|page_fault|anonymous_page|alloc_anon|alloc_pages|free_pages|rmqueue|charge|lru|"
                  r"prep_new|get_page|zap_|tlb|page_vma|handle_mm|mm_fault|pmd|pte|mas_|next_uptodate|filemap"),
    ("kernel: copies", r"\[k\].*(_copy_from_iter|_copy_to_iter|copy_user|rep_movs|memcpy|copy_page|skb_copy|csum)"),
    ("kernel: waking and idle", r"\[k\].*(finish_task_switch|schedule|try_to_wake|wake|eventfd|poll|futex|idle|raw_spin_unlock_irq)"),
    ("kernel: UDP and IP", r"\[k\]"),
    ("ICRC", r"crc32|icrc"),
    ("copies", r"memmove|memcpy|memcmp|place"),
    ("parity", r"farwrite_codes|coding"),
    ("fabric", r"farwrite_fabric|farwrite_wire|sendmmsg|recvmmsg|recvmsg|sendmsg"),
    ("bitmap", r"farwrite_sdr"),
    ("scheme", r"farwrite_schemes"),
    ("endpoint and rate", r"farwrite::|farwrite_rate|farwrite_route"),
    ("all else", r""),
]


def main(program):
    """Measures, and prints a table."""
    columns = {name: _profile(program, options) for name, options in WAYS.items()}
    names = [name for name, _ in PARTS if name != "the start"]
    rows = [[name, *[parts.get(name) for parts in columns.values()]] for name in names]
    rows.append(["all", *[sum(parts.values()) for parts in columns.values()]])
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    show(f"Processor time of a packet of {PACKET_BYTES} bytes, both ends, in ns",
         f"{os.cpu_count()} cores, Linux {platform.release()}, load {load}", ["", *columns], rows)


def _profile(program, options):
    """Nanoseconds of a packet by part."""
    with tempfile.NamedTemporaryFile() as record:
        command = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "1999", "--output", record.name, "--",
                   program, "--runs", str(RUNS), *options, "loopback"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        report = subprocess.run(["perf", "report", "--input", record.name, "--no-children", "--sort", "symbol", "--stdio"],
                                check=True, capture_output=True, text=True).stdout
    packet_ns = PACKET_BYTES / _gigabytes(printed)
    shares = _shares(report)
    shares.pop("the start", None)
    whole = sum(shares.values())
    return {part: packet_ns * share / whole for part, share in shares.items()}


def _gigabytes(printed):
    """Gigabytes a core-second, of the table's last row.

    >>> _gigabytes("\\n  raw blast  35.5  1.00  2.43  1.00  1.82  0.00 %\\n")
    2.43
    """
    return float(printed.strip().splitlines()[-1].split()[-5])


def _shares(report):
    """Shares in per cent by part.

    >>> _shares("# x\\n 12.50%  [k] _copy_to_iter  - -\\n  2.00%  [.] crc32fast::update  - -\\n")
    {'kernel: copies': 12.5, 'ICRC': 2.0}
    """
    shares = {}
    for percent, symbol in re.findall(r"^\s+([\d.]+)%\s+(\[.\] .*?)(?:\s\s|$)", report, re.MULTILINE):
        part = next(name for name, pattern in PARTS if re.search(pattern, symbol))
        shares[part] = shares.get(part, 0) + float(percent)
    return shares


if __name__ == "__main__":
    main(*sys.argv[1:])
