"""Captures packets with dumpcap, and reads and writes the files (libpcap format)."""

import signal
import struct
import subprocess
import time

from .veth import until

_HEADER = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")
_MAGIC = 0xA1B2C3D4
_ETHERNET = 1
#: Seconds without a frame after which a capture ends.
_QUIET = 10


class Capture:
    """Captures the packets of one interface that match a filter, from construction to `stop`."""

    def __init__(self, veth, host, path, what="udp"):
        self.path = path
        self.process = veth.own(host.popen(
            ["dumpcap", "-i", host.dev, "-P", "-B", "64", "-f", what, "-w", str(path)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until(lambda: path.exists() and path.stat().st_size > 0, 60, "dumpcap starts")

    def stop(self, expected=None, enough=None):
        """End the capture when `expected` frames are in the file, when `enough(frames)` returns
        true, or when no more frames arrive. Return all frames, and a problem if their number is
        not `expected`."""
        if enough is None:
            def enough(frames):
                return len(frames) == expected
        # dumpcap takes frames from the kernel in blocks. It takes the last block when a timer
        # expires.
        frames, quiet_since = read(self.path), time.monotonic()
        while not enough(frames) and time.monotonic() < quiet_since + _QUIET:
            time.sleep(0.02)
            before = len(frames)
            frames = read(self.path)
            if len(frames) != before:
                quiet_since = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        frames = read(self.path)
        if expected in (None, len(frames)):
            return frames, []
        return frames, [f"{len(frames)} frames were captured, {expected} sent"]


def read(path):
    data = path.read_bytes()
    magic, _, _, _, _, _, link = _HEADER.unpack_from(data)
    if magic not in (_MAGIC, 0xA1B23C4D) or link != _ETHERNET:
        raise ValueError(f"{path}: magic {magic:#x}, link type {link}")
    frames, at = [], _HEADER.size
    while at + _RECORD.size <= len(data):
        _, _, kept, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if kept != length:
            raise ValueError(f"{path}: {kept} of {length} bytes of a frame were kept")
        if at + kept > len(data):
            # dumpcap has not finished writing this frame.
            break
        frames.append(data[at:at + kept])
        at += kept
    return frames


def write(path, frames):
    with open(path, "wb") as file:
        file.write(_HEADER.pack(_MAGIC, 2, 4, 0, 0, 1 << 18, _ETHERNET))
        for number, frame in enumerate(frames):
            file.write(_RECORD.pack(number, 0, len(frame), len(frame)) + frame)
