"""Repeats a captured data packet: `copies.py DEVICE PORT COUNT RATE`.

It waits for a data packet that this host sends to the UDP port, and sends COUNT copies of its frame, RATE each second.
"""

import socket
import sys
import time

#: Opcode of a data packet (P2.2).
_DATA = 0x2B
_ETHERNET, _UDP, _BTH = 14, 34, 42
_ALL_PROTOCOLS = 3


def _capture(device, port):
    """Return the first frame with a data packet that leaves."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as taps:
        taps.bind((device, 0))
        while True:
            frame, where = taps.recvfrom(1 << 16)
            leaves = where[2] == socket.PACKET_OUTGOING and len(frame) > _BTH
            if (leaves and frame[_ETHERNET + 9] == socket.IPPROTO_UDP and frame[_BTH] == _DATA
                    and int.from_bytes(frame[_UDP + 2:_UDP + 4], "big") == port):
                return frame


def _repeat(device, frame, count, rate):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((device, 0))
        start = time.monotonic()
        for sent in range(count):
            while sent > (time.monotonic() - start) * rate:
                time.sleep(0.0005)
            out.send(frame)


if __name__ == "__main__":
    _device, _port, _count, _rate = sys.argv[1:]
    _repeat(_device, _capture(_device, int(_port)), int(_count), float(_rate))
    print("sent", _count)
