"""Reads control packets as docs/protocol.md P4 defines them. Tags are not checked, because their
keys are secret."""

import struct

HEADER_BYTES = 52
OFFER, CLEAR_TO_SEND, ACK, NACK, RECEIVE_COMPLETE, CREDIT = range(1, 7)


def payload(packet):
    """Return the control packet in a SEND."""
    return packet.body[:len(packet.body) - packet.pad_count]


def counter(control):
    """Return the replay counter (P4.2)."""
    return struct.unpack_from("!Q", control, 4)[0]


def messages(control):
    """Return the (type, body) of each message."""
    if control[0] != 1 or len(control) < HEADER_BYTES:
        raise ValueError(f"control packet starts with {control[:4].hex()}")
    at, found = HEADER_BYTES, []
    while at < len(control):
        kind, _, length = struct.unpack_from("!BBH", control, at)
        body = control[at + 4:at + 4 + length]
        if len(body) != length:
            raise ValueError(f"message of type {kind} ends after {len(body)} of {length} bytes")
        found.append((kind, body))
        at += 4 + length
    return found


def clearances(controls):
    """Return the clearances of many control packets, by message number: (generation, rkey, base,
    length) (P4.4)."""
    found = {}
    for control in controls:
        for kind, body in messages(control):
            if kind != CLEAR_TO_SEND:
                continue
            first = struct.unpack_from("!Q", body, 16)[0]
            for index, entry in enumerate(struct.iter_unpack("!BIQQ", body[24:])):
                found[first + index] = entry
    return found
