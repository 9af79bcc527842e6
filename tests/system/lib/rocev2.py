"""Parses and checks RoCEv2 packets as the IBTA specification (volume 1, 7.8, 9.2, 9.3 and annex
A17) and RFC 791, 768 and 8200 define them. Nothing here comes from the program under test."""

import struct
import zlib
from dataclasses import dataclass

ETHERNET_BYTES = 14
UDP_BYTES = 8
BTH_BYTES = 12
ICRC_BYTES = 4
#: Opcodes below this are those of reliable connections.
RELIABLE_CONNECTION_END = 0x20
UC_SEND_ONLY = 0x24
UC_WRITE_ONLY_WITH_IMMEDIATE = 0x2B


@dataclass
class Packet:
    """One packet. Positions count from the start of the Ethernet frame."""

    frame: bytes
    version: int
    ip_bytes: int
    source: bytes
    source_port: int
    destination_port: int
    identification: int
    opcode: int
    pad_count: int
    destination_qp: int
    psn: int
    body: bytes
    icrc: bytes

    @property
    def udp_at(self):
        return ETHERNET_BYTES + self.ip_bytes

    @property
    def bth_at(self):
        return self.udp_at + UDP_BYTES


class NotRoce(ValueError):
    """The frame is not a RoCEv2 packet as docs/protocol.md P2.1 defines it."""


def parse(frame):
    """Parse a frame strictly: no IP options or extension headers, and no bytes after the ICRC."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        version, ip_bytes = 4, 20
        first, _, length, identification, flags = struct.unpack_from("!BBHHH", frame, 14)
        if first != 0x45:
            raise NotRoce(f"IPv4 starts with {first:#x}")
        if flags != 0x4000:
            raise NotRoce(f"IPv4 flags and fragment offset are {flags:#x}, not Don't Fragment")
        protocol, source = frame[23], frame[26:30]
    elif kind == b"\x86\xdd":
        version, ip_bytes, identification = 6, 40, 0
        payload_bytes, protocol = struct.unpack_from("!HB", frame, 18)
        length, source = payload_bytes + 40, frame[22:38]
    else:
        raise NotRoce(f"EtherType {kind.hex()}")
    if protocol != 17:
        raise NotRoce(f"protocol {protocol}")
    # Ethernet pads short frames to 60 bytes.
    frame = frame[:ETHERNET_BYTES + length]
    udp_at = ETHERNET_BYTES + ip_bytes
    source_port, destination_port, udp_length = struct.unpack_from("!HHH", frame, udp_at)
    if udp_length != length - ip_bytes or len(frame) != ETHERNET_BYTES + length:
        raise NotRoce(f"{len(frame)} bytes of frame, {length} of IP, {udp_length} of UDP")
    bth_at = udp_at + UDP_BYTES
    if udp_length - UDP_BYTES < BTH_BYTES + ICRC_BYTES or udp_length % 4:
        raise NotRoce(f"{udp_length} bytes of UDP")
    opcode, flags, pkey, qp, psn = struct.unpack_from("!BBHII", frame, bth_at)
    # Reliable connections may request an acknowledgement.
    reserved = psn >> 24 & (0x7F if opcode < RELIABLE_CONNECTION_END else 0xFF)
    if flags & 0xCF != 0x40 or pkey != 0xFFFF or qp >> 24 or reserved:
        raise NotRoce(f"BTH {frame[bth_at:bth_at + BTH_BYTES].hex()}")
    return Packet(frame, version, ip_bytes, source, source_port, destination_port, identification,
                  opcode, flags >> 4 & 3, qp & 0xFFFFFF, psn & 0xFFFFFF,
                  frame[bth_at + BTH_BYTES:-ICRC_BYTES], frame[-ICRC_BYTES:])


def icrc(packet):
    """Return the ICRC that a packet should have, as the 4 bytes on the wire (annex A17.3.3)."""
    covered = bytearray(packet.frame[ETHERNET_BYTES:-ICRC_BYTES])
    if packet.version == 4:
        covered[1] = 0xFF  # DSCP, ECN
        covered[8] = 0xFF  # time to live
        covered[10:12] = b"\xff\xff"  # header checksum
    else:
        covered[0] |= 0x0F  # traffic class, flow label
        covered[1:4] = b"\xff\xff\xff"
        covered[7] = 0xFF  # hop limit
    udp = packet.ip_bytes
    covered[udp + 6:udp + 8] = b"\xff\xff"  # checksum
    covered[udp + UDP_BYTES + 4] = 0xFF  # FECN, BECN, reserved
    # Eight bytes of ones take the place of the local route header.
    return zlib.crc32(bytes(covered), zlib.crc32(b"\xff" * 8)).to_bytes(4, "little")


def udp_checksum_is_right(packet):
    """Return whether the UDP checksum is right (RFC 768, RFC 8200 section 8.1). IPv4 also allows
    no checksum."""
    udp = packet.frame[packet.udp_at:]
    if udp[6:8] == b"\0\0":
        return packet.version == 4
    start = 26 if packet.version == 4 else 22
    addresses = packet.frame[start:start + (8 if packet.version == 4 else 32)]
    summed = addresses + struct.pack("!II", len(udp), 17) + udp
    return sum(struct.unpack(f"!{len(summed) // 2}H", summed)) % 0xFFFF == 0


@dataclass
class Write:
    """The fields of a write with immediate (IBTA 9.3.3, 9.3.6)."""

    address: int
    rkey: int
    length: int
    immediate: int
    payload: bytes


def write(packet):
    """Return the write in a packet. Its padding must be zero bytes."""
    address, rkey, length, immediate = struct.unpack_from("!QIII", packet.body)
    payload, padding = packet.body[20:20 + length], packet.body[20 + length:]
    if len(payload) != length or padding != bytes(packet.pad_count) or (length + len(padding)) % 4:
        raise NotRoce(f"RETH length {length}, pad count {packet.pad_count}, "
                      f"{len(packet.body) - 20} bytes of payload")
    return Write(address, rkey, length, immediate, payload)
