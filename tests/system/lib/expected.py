"""Compares what tshark decoded with what was sent (docs/protocol.md P2, P3)."""

from collections import Counter

from .rocev2 import UC_SEND_ONLY, UC_WRITE_ONLY_WITH_IMMEDIATE

# The default split of the immediate: 10 bits of slot, 18 of packet number, 4 of user immediate.
OFFSET_BITS, USER_BITS = 18, 4
FRAGMENTS = 32 // USER_BITS


def number(text):
    """Return a field of tshark's as a number. Hexadecimal fields begin with 0x."""
    return int(text, 0)


def headers(rows, packets):
    """Return where tshark and our own parser differ on the same frames."""
    problems = []
    if len(rows) != len(packets):
        return [f"tshark shows {len(rows)} frames, {len(packets)} were captured"]
    for at, (row, packet) in enumerate(zip(rows, packets)):
        def differ(what, theirs, ours, at=at):
            if theirs != ours:
                problems.append(f"frame {at}: tshark has {what} {theirs!r}, not {ours!r}")
        differ("protocols", row["protocols"].split(":")[3:5], ["udp", "infiniband"])
        if not row["opcode"]:
            problems.append(f"frame {at}: tshark finds no BTH")
            continue
        differ("opcode", number(row["opcode"]), packet.opcode)
        differ("header version", row["version"], "0")
        differ("migration request", row["migration"] in ("1", "True"), True)
        differ("partition key", number(row["pkey"]), 0xFFFF)
        differ("pad count", number(row["pad_count"]), packet.pad_count)
        differ("queue pair", number(row["destination_qp"]), packet.destination_qp)
        differ("PSN", number(row["psn"]), packet.psn)
        differ("ICRC", number(row["icrc"]), int.from_bytes(packet.icrc, "big"))
    return problems


def psns(rows):
    """Return the packets whose PSN is not one more than that of the previous packet of their queue
    pair."""
    problems, last = [], {}
    for at, row in enumerate(rows):
        qp, psn = number(row["destination_qp"]), number(row["psn"])
        if qp in last and psn != (last[qp] + 1) % (1 << 24):
            problems.append(f"frame {at}: PSN {psn} on queue pair {qp:#x} after {last[qp]}")
        last[qp] = psn
    return problems


def controls(rows, transfer):
    """Return packets that are neither writes nor SENDs to one of the two control queue pairs."""
    problems, seen = [], Counter()
    for at, row in enumerate(rows):
        opcode, qp = number(row["opcode"]), number(row["destination_qp"])
        if opcode == UC_SEND_ONLY and qp in transfer.control_qpns.values():
            seen[qp] += 1
        elif opcode != UC_WRITE_ONLY_WITH_IMMEDIATE:
            problems.append(f"frame {at}: opcode {opcode} on queue pair {qp:#x}")
    if len(seen) != 2:
        problems.append(f"control packets went to {len(seen)} queue pairs, not both ways")
    return problems


def writes(rows, transfer, clearances, mtu, channels=1):
    """Return where the writes are not what P3 makes of the messages, and what of these is missing."""
    problems = []
    missing = {(slot, packet) for slot, message in enumerate(transfer.messages)
               for packet in range(_packets(message, transfer, mtu))}
    for at, row in enumerate(rows):
        if number(row["opcode"]) != UC_WRITE_ONLY_WITH_IMMEDIATE:
            continue
        immediate = int(row["immediate"], 16)
        slot = immediate >> (OFFSET_BITS + USER_BITS)
        packet = immediate >> USER_BITS & ((1 << OFFSET_BITS) - 1)
        if slot >= len(transfer.messages) or slot not in clearances:
            problems.append(f"frame {at}: immediate {immediate:#010x} names no message")
            continue
        missing.discard((slot, packet))
        payload = transfer.messages[slot][packet * mtu:(packet + 1) * mtu]
        generation, rkey, base, _ = clearances[slot]
        numbers = transfer.data_qpns[generation * channels:(generation + 1) * channels]
        fragment = 0
        if transfer.immediate is not None:
            fragment = transfer.immediate + slot >> USER_BITS * (packet % FRAGMENTS) & 15

        def differ(what, got, want, at=at):
            if got != want:
                problems.append(f"frame {at}: {what} {got} decoded, {want} sent")
        if number(row["destination_qp"]) not in numbers:
            problems.append(f"frame {at}: queue pair {row['destination_qp']}, not of {numbers}")
        differ("fragment", immediate & 15, fragment)
        differ("length", number(row["length"]), len(payload))
        differ("pad count", number(row["pad_count"]), -len(payload) % 4)
        # A write of no bytes lands nowhere (P2.3).
        if payload:
            differ("address", number(row["address"]), base + packet * mtu)
            differ("rkey", number(row["rkey"]), rkey)
        got = bytes.fromhex((row["payload"] or row["data"]).replace(":", ""))
        if got[:len(payload)] != payload or any(got[len(payload):]):
            problems.append(f"frame {at}: another payload than bytes {packet * mtu}.. "
                            f"of message {slot}")
    problems += [f"packet {packet} of message {slot} never came" for slot, packet in
                 sorted(missing)]
    return problems


def _packets(message, transfer, mtu):
    """Return the number of packets of a message: at least one, and enough for a user immediate (P3)."""
    least = 1 if transfer.immediate is None else FRAGMENTS
    return max(-(-len(message) // mtu), least)
