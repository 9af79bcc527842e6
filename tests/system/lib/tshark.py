"""Decodes a capture with tshark."""

import subprocess

_FIELDS = {
    "time": "frame.time_epoch",
    "protocols": "frame.protocols",
    "identification": "ip.id",
    "opcode": "infiniband.bth.opcode",
    "version": "infiniband.bth.tver",
    "migration": "infiniband.bth.m",
    "pkey": "infiniband.bth.p_key",
    "pad_count": "infiniband.bth.padcnt",
    "destination_qp": "infiniband.bth.destqp",
    "psn": "infiniband.bth.psn",
    "address": "infiniband.reth.va",
    "rkey": "infiniband.reth.r_key",
    "length": "infiniband.reth.dmalen",
    "immediate": "infiniband.immdt",
    "syndrome": "infiniband.aeth.syndrome",
    "msn": "infiniband.aeth.msn",
    "icrc": "infiniband.invariant.crc",
    "payload": "infiniband.payload",
    "data": "data.data",
}


def decode(path):
    """Return the fields above for each frame, as tshark writes them. A field that tshark does not
    see is empty."""
    # Payloads are random bytes, so tshark must not guess their protocol.
    command = ["tshark", "-n", "-r", str(path), "-o", "infiniband.try_heuristic_first:FALSE",
               "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f"]
    for name in _FIELDS.values():
        command += ["-e", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"tshark: {done.stderr}")
    lines = done.stdout.splitlines()
    return [dict(zip(_FIELDS, line.split("\t"))) for line in lines]
