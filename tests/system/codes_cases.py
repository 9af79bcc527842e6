"""`farwrite codes`: ISA-L checks the parity, and parity repairs files."""

import random
import subprocess

from lib import isal

# (k, m), bytes of a chunk, bytes of the file: one group, several groups, a short last group, a
# short last chunk, a single byte, chunks of odd length.
_SHAPES = (
    (4, 2, 64, 256),
    (32, 8, 4096, 1_000_000),
    (32, 8, 1001, 70_000),
    (10, 4, 1 << 16, 1),
    (1, 3, 100, 950),
    (223, 32, 33, 20_000),
)


def run(report, program, directory):
    with report.case("codes: parity of files, judged by ISA-L"):
        _judged(report, program, directory)


def _judged(report, program, directory):
    source, parity, whole = (directory / name for name in ("data", "parity", "whole"))
    rng = random.Random(1)
    for kind, judge in (("ec-mds", isal.parity), ("ec-xor", _xor)):
        for k, m, chunk_bytes, size in _SHAPES:
            if kind == "ec-xor" and m > k:
                continue
            data = rng.randbytes(size)
            source.write_bytes(data)
            cut = ("--code", f"{kind}:{k},{m}", "--chunk-bytes", str(chunk_bytes))
            _codes(program, "encode", *cut, "--in", source, "--out", parity)
            expected = b"".join(_parity(judge, k, m, chunk_bytes, data))
            name = f"{kind}:{k},{m}, chunks of {chunk_bytes}, {size} bytes"
            same = parity.read_bytes() == expected
            report.check(f"{name}: the parity is as it should be", None if same else "it differs")

            # From the start of every group, lose as many chunks as any code of this kind can
            # repair.
            chunks = -(-size // chunk_bytes)
            lost = [chunk for chunk in range(chunks) if chunk % k < m]
            holes = bytearray(data)
            for chunk in lost:
                end = min((chunk + 1) * chunk_bytes, size)
                holes[chunk * chunk_bytes:end] = bytes(end - chunk * chunk_bytes)
            source.write_bytes(holes)
            _codes(program, "decode", *cut, "--in", source, "--parity", parity, "--out", whole,
                   "--lost", ",".join(map(str, lost)))
            same = whole.read_bytes() == data
            report.check(f"{name}: {len(lost)} lost chunks come back",
                         None if same else "they differ")


def _codes(program, *arguments):
    subprocess.run([program, "--quiet", "codes", *map(str, arguments)], check=True,
                   capture_output=True, timeout=60)


def _parity(judge, k, m, chunk_bytes, data):
    """Return the parity chunks of each group in order. Zeros pad the last group."""
    group_bytes = k * chunk_bytes
    for start in range(0, len(data), group_bytes):
        group = data[start:start + group_bytes].ljust(group_bytes, b"\0")
        yield from judge(k, m, [group[at:at + chunk_bytes]
                                for at in range(0, group_bytes, chunk_bytes)])


def _xor(_, m, chunks):
    """Return parity chunk `i` for each `i`: the XOR of the data chunks `j` with `j mod m = i`."""
    for first in range(m):
        total = 0
        for chunk in chunks[first::m]:
            total ^= int.from_bytes(chunk, "little")
        yield total.to_bytes(len(chunks[0]), "little")
