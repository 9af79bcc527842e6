"""The state that a NIC stores, and what follows from it: on-chip memory, queue pairs, cluster size, failures.

`tables` returns the rows of the papers' tables about this state: OptiNIC 4 and 5, Celeris I and II, NetRT II,
LoWAR I. If a number follows from other numbers of the papers, the row has both the paper's number and the
computed number, with the formula. Other numbers are only quoted. `disagreements` returns the rows whose
number does not follow from what the paper says. `synthesis` and `mtbf_hours` predict rows of OptiNIC 5 and
Celeris II from the bytes of a queue pair's context.

Memory is in bytes. Where a paper speaks of 4 MB of SRAM, the module computes with 4 MiB, because only this
value gives the paper's numbers of queue pairs. Times are in hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

#: On-chip memory for queue pairs: the papers' 4 MB.
SRAM_BYTES = 4 * 2**20
#: Connections to each peer, where the paper names no other number (OptiNIC, section 5.3.4).
CONNECTIONS_PER_PEER = 2
#: The relative difference up to which two numbers count as equal: the papers round to one or two digits.
TOLERANCE = 0.05

#: Fields of a queue pair's state in bits, for each design whose fields a paper lists.
FIELDS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        # Celeris III.A.
        "Celeris": MappingProxyType({"context": 20 * 8, "DCQCN": 32 * 8}),
        # NetRT III.D: the fields of both switches.
        "NetRT": MappingProxyType({"request frequency": 32, "ePSN": 24, "bitmap": 128, "state": 2}),
    }
)

#: A number of each of the two rows that give a line.
Ends = tuple[float, float]
#: Bits of a block RAM.
BRAM_BITS = 36 * 1024
#: The columns of OptiNIC 5 and Celeris II; another one has the hours between failures of 15,000 nodes.
COLUMNS = ("LUT", "LUTRAM", "FF", "BRAM", "power in W")
_BRAM = COLUMNS.index("BRAM")
_MTBF = len(COLUMNS)
_CELERIS_2: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "RoCE": (312_449.0, 23_277.0, 562_129.0, 1450.5, 34.7, 42.8),
        "IRN": (319_567.0, 24_221.0, 573_116.0, 1941.5, 35.9, 34.3),
        "SRNIC": (304_497.0, 22_460.0, 551_526.0, 939.5, 33.5, 57.8),
        "Celeris": (298_435.0, 21_743.0, 542_972.0, 529.5, 32.5, 80.5),
    }
)
#: The rows of Celeris II that give the lines, and the bytes of a queue pair's context in them.
_ENDS = ("RoCE", "Celeris")
_END_BYTES = (407.0, 52.0)


@dataclass(frozen=True)
class Row:
    """One number of a paper's table."""

    #: The table, such as ``OptiNIC 4``.
    table: str
    #: The design and the quantity, such as ``IRN: queue pairs``.
    name: str
    #: The number in the paper.
    quoted: float
    #: The number that follows from other numbers of the paper; None if the number is only quoted.
    computed: float | None = None
    #: The formula of the computed number.
    formula: str = "quoted from the paper"

    @property
    def follows(self) -> bool | None:
        """Whether the paper's number is the computed number within `TOLERANCE`; None if it is only quoted."""
        if self.computed is None:
            return None
        return abs(self.computed - self.quoted) <= TOLERANCE * self.quoted


def state_bytes(design: str) -> float:
    """Return the bytes of a queue pair's state: the sum of the design's `FIELDS`.

    Raises
    ------
    ValueError
        No paper lists the fields of this design.
    """
    if design not in FIELDS:
        raise ValueError(
            f"design = {design!r}: must be one of {', '.join(FIELDS)}, whose fields a paper lists"
        )
    return sum(FIELDS[design].values()) / 8


def queue_pairs(state: float, sram: int = SRAM_BYTES) -> int:
    """Return the number of queue pairs of `state` bytes each that fit into `sram` bytes.

    Raises
    ------
    ValueError
        `state` is less than 1 byte, or `sram` is negative.
    """
    if not state >= 1:
        raise ValueError(f"state = {state}: must be at least 1 byte")
    if sram < 0:
        raise ValueError(f"sram = {sram}: must be at least 0 bytes")
    return int(sram // state)


def cluster_size(pairs: float, connections: int = CONNECTIONS_PER_PEER) -> int:
    """Return how many peers `pairs` queue pairs reach, with `connections` connections to each peer.

    Raises
    ------
    ValueError
        `connections` is less than 1, or `pairs` is negative or not finite.
    """
    if connections < 1:
        raise ValueError(f"connections = {connections}: must be at least 1")
    if not 0 <= pairs < inf:
        raise ValueError(f"pairs = {pairs}: must be finite and at least 0")
    return int(pairs // connections)


def synthesis(state: float, buffer_bytes: float = 0) -> dict[str, float]:
    """Return the `COLUMNS` of a NIC whose queue pairs have contexts of `state` bytes.

    Each column of Celeris II is a straight line over these bytes. The rows of RoCE (407 bytes) and Celeris
    (52 bytes) give it: block RAM is 394.6 + 2.594 * `state`. The line predicts the columns of the two other
    rows within 0.6%. A reorder buffer of `buffer_bytes` is in block RAM of its own (OptiNIC, section 4).

    Raises
    ------
    ValueError
        `state` or `buffer_bytes` is negative or not finite.
    """
    for name, count in (("state", state), ("buffer_bytes", buffer_bytes)):
        if not 0 <= count < inf:
            raise ValueError(f"{name} = {count}: must be finite and at least 0 bytes")
    found = {name: _line(_END_BYTES, _quoted(at), state) for at, name in enumerate(COLUMNS)}
    found["BRAM"] += buffer_bytes * 8 / BRAM_BITS
    return found


def mtbf_hours(bram: float) -> float:
    """Return the mean time between failures, in hours, of 15,000 nodes whose NICs have `bram` block RAMs.

    A block RAM has 36 Kbit. Failures per hour are a straight line over the block RAM, which the rows of RoCE
    and Celeris in Celeris II give: 0.00613 + 1.188e-5 * `bram`. Celeris IV.C says that these times follow
    from 1e-11 failures per hour and bit; `implied_failures_per_bit` shows that they do not.

    Raises
    ------
    ValueError
        `bram` is negative or not finite.
    """
    if not 0 <= bram < inf:
        raise ValueError(f"bram = {bram}: must be finite and at least 0")
    return 1 / _line(_quoted(_BRAM), _failures(), bram)


def implied_failures_per_bit(nodes: int = 15_000, bram_bits: int = BRAM_BITS) -> float:
    """Return the failures per hour and bit of block RAM that the line of `mtbf_hours` implies: about 2e-14.

    Raises
    ------
    ValueError
        `nodes` or `bram_bits` is less than 1.
    """
    for name, count in (("nodes", nodes), ("bram_bits", bram_bits)):
        if count < 1:
            raise ValueError(f"{name} = {count}: must be at least 1")
    (roce, celeris), (first, last) = _failures(), _quoted(_BRAM)
    return (roce - celeris) / (first - last) / (nodes * bram_bits)


def _quoted(column: int) -> Ends:
    """Return a column of the rows that give the lines."""
    first, last = (_CELERIS_2[name][column] for name in _ENDS)
    return first, last


def _failures() -> Ends:
    """Return the failures per hour of the rows that give the lines."""
    first, last = _quoted(_MTBF)
    return 1 / first, 1 / last


def _line(x: Ends, y: Ends, at: float) -> float:
    """Return the value at a place of the line through two points."""
    return y[0] + (y[1] - y[0]) * (at - x[0]) / (x[1] - x[0])


def tables() -> list[Row]:
    """Return all rows of all tables."""
    return [*_optinic_4(), *_optinic_5(), *_celeris_1(), *_celeris_2(), *_netrt_2(), *_lowar_1()]


def disagreements() -> list[Row]:
    """Return the rows whose number does not follow from what the paper says."""
    return [row for row in tables() if row.follows is False]


def _optinic_4() -> Iterator[Row]:
    # State in bytes, queue pairs, cluster size, connections to a peer.
    designs = {
        "RoCE": (407, 10e3, 5e3, 2),
        "IRN": (596, 8e3, 4e3, 2),
        "SRNIC": (242, 20e3, 10e3, 2),
        "Falcon": (350, 12e3, 6e3, 2),
        "UCCL": (407, 10e3, 256, 256),
        "OptiNIC": (52, 80e3, 40e3, 2),
    }
    for name, (state, pairs, cluster, connections) in designs.items():
        computed = state_bytes("Celeris") if name == "OptiNIC" else None
        formula = "the fields of Celeris III.A" if name == "OptiNIC" else Row.formula
        yield Row("OptiNIC 4", f"{name}: state", state, computed, formula)
        formula = f"4 MiB / {state} B"
        yield Row("OptiNIC 4", f"{name}: queue pairs", pairs, queue_pairs(state), formula)
        formula = f"{pairs:.0f} queue pairs / {connections} to each peer"
        yield Row("OptiNIC 4", f"{name}: cluster size", cluster, cluster_size(pairs, connections), formula)


def _synthesis(
    table: str, designs: Mapping[str, tuple[float, ...]], contexts: Mapping[str, tuple[int, int]]
) -> Iterator[Row]:
    """Yield the rows of a table. `contexts`: bytes of a context and a reorder buffer, where lines predict."""
    for name, quoted in designs.items():
        values = dict(zip((*COLUMNS, "MTBF"), quoted, strict=True))
        if name not in contexts:
            yield from (Row(table, f"{name}: {quantity}", value) for quantity, value in values.items())
            continue
        state, buffer_bytes = contexts[name]
        computed = synthesis(state, buffer_bytes)
        computed["MTBF"] = mtbf_hours(computed["BRAM"])
        formula = f"lines through RoCE and Celeris of Celeris II, {state} B" + (
            f" and a reorder buffer of {buffer_bytes} B" if buffer_bytes else ""
        )
        for quantity, value in values.items():
            yield Row(table, f"{name}: {quantity}", value, computed[quantity], formula)


def _optinic_5() -> Iterator[Row]:
    designs = {
        "RoCE": (312.4e3, 23.3e3, 562.1e3, 1.5e3, 34.7, 42.8),
        "IRN": (319.6e3, 24.2e3, 573.1e3, 2.2e3, 35.9, 30.9),
        "SRNIC": (304.5e3, 22.5e3, 551.5e3, 0.9e3, 33.5, 57.8),
        "Falcon": (309.8e3, 23.1e3, 559.2e3, 1.6e3, 34.3, 40.5),
        "UCCL": (312.4e3, 23.3e3, 562.1e3, 1.5e3, 34.7, 42.8),
        "OptiNIC": (298.4e3, 21.7e3, 543.0e3, 0.5e3, 32.5, 80.5),
    }
    # Section 4: IRN and Falcon have a reorder buffer of 1.2 MB.
    contexts = {"IRN": (596, 1_200_000), "SRNIC": (210, 0), "Falcon": (350, 1_200_000)}
    yield from _synthesis("OptiNIC 5", designs, contexts)
    # Section 5.3.5 states 63 to 73% less block RAM than RoCE and IRN.
    yield Row(
        "OptiNIC 5", "BRAM saved beside RoCE", 0.63, 1 - 529.5 / 1450.5, "1 - 529.5 / 1450.5 (Celeris II)"
    )
    yield Row("OptiNIC 5", "BRAM saved beside IRN", 0.73, 1 - 0.5 / 2.2, "1 - 0.5K / 2.2K")


def _celeris_1() -> Iterator[Row]:
    designs = {"RoCE": (407, 10e3), "IRN": (596, 8e3), "SRNIC": (242, 20e3), "Celeris": (52, 80e3)}
    for name, (state, pairs) in designs.items():
        computed = state_bytes(name) if name in FIELDS else None
        formula = "20 B + 32 B of DCQCN" if name in FIELDS else Row.formula
        yield Row("Celeris I", f"{name}: state", state, computed, formula)
        yield Row("Celeris I", f"{name}: queue pairs", pairs, queue_pairs(state), f"4 MiB / {state} B")
    # Section IV states another size of SRNIC's state than the table.
    yield Row("Celeris I", "SRNIC of section IV: queue pairs", 20e3, queue_pairs(210), "4 MiB / 210 B")


def _celeris_2() -> Iterator[Row]:
    yield from _synthesis("Celeris II", _CELERIS_2, {"IRN": (596, 0), "SRNIC": (210, 0)})
    # Section IV.C states 1e-11 failures per hour and bit.
    yield Row(
        "Celeris II", "failures an hour and bit", 1e-11, implied_failures_per_bit(), "slope of the MTBFs"
    )


def _netrt_2() -> Iterator[Row]:
    pairs = 10_000
    # Each buffer has one bandwidth-delay product. The table assumes 100 KB for it. The 100 Gbit/s and 5 us of
    # the text give 62.5 KB, which the text calls less than 100 KB.
    for name in ("SrcToR: duplicate pool", "DstToR: reordering buffer"):
        yield Row("NetRT II", name, 100e3)
    quoted = {"request frequency": 40e3, "ePSN": 30e3, "bitmap": 160e3, "state": 2.5e3}
    for field, bits in FIELDS["NetRT"].items():
        yield Row("NetRT II", field, quoted[field], pairs * bits / 8, f"10,000 queue pairs * {bits} bit / 8")


def _lowar_1() -> Iterator[Row]:
    for name, value in {"LUT": 21_995, "register": 7_302, "BRAM": 762, "URAM": 120}.items():
        yield Row("LoWAR I", name, value)
    for name in ("encoding buffer", "decoding buffer"):
        yield Row("LoWAR I", name, 1.1e6, 1024 * 1024, "1024 units * MTU of 1024 B")
    yield Row("LoWAR I", "reordering buffer", 2.4e6, 2048 * 1024, "2048 packets * MTU of 1024 B")
    yield Row("LoWAR I", "state table", 0.3e6)
