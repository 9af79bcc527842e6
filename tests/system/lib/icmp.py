"""Forges the ICMP message with which a router refuses a packet as too large.

`icmp.py SOURCE SOURCE-PORT DESTINATION DESTINATION-PORT` sends one to this host, about a UDP packet of this
host with these addresses.
"""

import ipaddress
import socket
import struct
import sys

#: The largest packet that the router claims to carry.
MTU = 1280
_UDP = 17


def message(source, source_port, destination, destination_port):
    """Return the message without the header of IP, and the protocol number of ICMP."""
    ends = [ipaddress.ip_address(address) for address in (source, destination)]
    addresses = b"".join(address.packed for address in ends)
    udp = struct.pack("!HHHH", source_port, destination_port, 1400, 0)
    if ends[0].version == 6:
        header = struct.pack("!IHBB", 6 << 28, 1400, _UDP, 64) + addresses
        # The kernel fills in the checksum.
        return struct.pack("!BBHI", 2, 0, 0, MTU) + header + udp, socket.IPPROTO_ICMPV6
    header = struct.pack("!BBHHHBBH", 0x45, 0, 1420, 0, 0x4000, 64, _UDP, 0) + addresses
    rest = struct.pack("!HH", 0, MTU) + header + udp
    return struct.pack("!BBH", 3, 4, _checksum(struct.pack("!BBH", 3, 4, 0) + rest)) + rest, socket.IPPROTO_ICMP


def _checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main():
    """Send one message."""
    source, source_port, destination, destination_port = sys.argv[1:]
    data, protocol = message(source, int(source_port), destination, int(destination_port))
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        raw.sendto(data, (source, 0))


if __name__ == "__main__":
    main()
