"""Captures all packets of an interface while a transfer over an RDMA device runs: `tap.py INTERFACE FILE COMMAND...`.

The data of a device are in clear, and the connection beside them is sealed. So packets of the device must show what
FILE says, which proves that the capture sees what packets carry, and no packet may show the name of FILE.
"""

import collections
import pathlib
import socket
import struct
import subprocess
import sys
import threading

#: UDP ports of the connection, and of RDMA devices.
CONNECTION, DEVICE = 4792, 4791
#: The fewest packets at each port. The connection has a handshake and some messages, the file 500 packets.
LEAST = {CONNECTION: 10, DEVICE: 500}
#: Kernel constants that Python does not name.
ALL_PROTOCOLS, SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 3, 263, 6, 33
BUFFER_BYTES, LONGEST = 64 << 20, 1 << 17
#: The time without a packet after which the capture ends.
QUIET_S = 1.0
_ETHERNET, _IP = 14, 0x0800


def ports(packet):
    """Return the UDP ports of a frame; nothing if it has none."""
    udp = _ETHERNET + 4 * (packet[_ETHERNET] & 0xF) if len(packet) > _ETHERNET else len(packet)
    is_udp = packet[12:14] == _IP.to_bytes(2, "big") and packet[_ETHERNET + 9:_ETHERNET + 10] == b"\x11"
    return set(struct.unpack("!HH", packet[udp:udp + 4])) if is_udp and len(packet) >= udp + 4 else set()


def read(tap, packets, is_over):
    while True:
        try:
            packets.append(tap.recv(LONGEST))
        except TimeoutError:
            if is_over.is_set():
                return


def capture(interface, command):
    """Return the packets while the command runs, how many the capture has missed, and the command's exit code."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        tap.bind((interface, 0))
        tap.settimeout(QUIET_S)
        packets, is_over = [], threading.Event()
        reader = threading.Thread(target=read, args=(tap, packets, is_over))
        reader.start()
        code = subprocess.run(command).returncode
        is_over.set()
        reader.join()
        _, missed = struct.unpack("=II", tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    return packets, missed, code


def problems(packets, missed, path):
    """Return what is wrong with the packets of a transfer of this file, in which all lines are the same."""
    name, said = path.name.encode(), path.read_bytes().split(b"\n")[0]
    at = collections.Counter(port for packet in packets for port in ports(packet))
    showing = [packet for packet in packets if said in packet]
    print(f"{len(packets)} packets, {dict(at)}, {len(showing)} with contents", flush=True)
    found = [f"{missed} packets were not captured"] if missed else []
    few = [(port, least) for port, least in LEAST.items() if at[port] < least]
    found += [f"{at[port]} packets at port {port}, at least {least} expected" for port, least in few]
    if len(showing) < LEAST[DEVICE] or any(DEVICE not in ports(packet) for packet in showing):
        found.append(f"{len(showing)} packets show the contents, not all of them at port {DEVICE}, or too few")
    found += [f"a packet at ports {sorted(ports(packet))} shows the name" for packet in packets if name in packet]
    return found


def main(interface, path, *command):
    packets, missed, code = capture(interface, command)
    sys.exit("\n".join(problems(packets, missed, pathlib.Path(path))) or code)


if __name__ == "__main__":
    main(*sys.argv[1:])
