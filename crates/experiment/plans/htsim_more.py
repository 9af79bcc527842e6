"""Writes settings that htsim and `farwrite sim` both run: matrices, topologies, and plans.

python3 htsim_more.py DIR

lab/results/sim.md has the results of both, and the options of htsim.
"""

import random
import sys
from pathlib import Path

FRAME = 4096 + 64


def tiers(hosts: int, levels: list[tuple[int, int, int]], gbps: int, delay_ns: int) -> str:
    """A topology. A level is the ports down, the ports up, and the oversubscription of a switch."""
    text = f"Nodes {hosts}\nTiers {len(levels)}\nPodsize {pod(hosts, levels)}\n"
    for number, (down, up, over) in enumerate(levels):
        text += f"Tier {number}\nDownlink_speed_Gbps {gbps}\nRadix_Down {down}\n"
        text += f"Radix_Up {up}\nOversubscribed {over}\n" if up else ""
        text += f"Downlink_Latency_ns {delay_ns}\n"
    return text


def pod(hosts: int, levels: list[tuple[int, int, int]]) -> int:
    """Hosts of a pod: all of them in two tiers."""
    return hosts if len(levels) == 2 else levels[0][0] * levels[1][0]


def incast(hosts: int, senders: int, receiver: int, size: int, gap_us: int = 0) -> str:
    """Senders to one receiver, with a time between their starts."""
    others = [host for host in range(hosts) if host != receiver]
    starts = enumerate(others[:senders])
    return matrix(hosts, [(src, receiver, size, gap_us * at) for at, src in starts])


def permutation(hosts: int, size: int, seed: int) -> str:
    """Each host sends to one other host."""
    rng = random.Random(seed)
    to = list(range(hosts))
    while any(src == dst for src, dst in enumerate(to)):
        rng.shuffle(to)
    return matrix(hosts, [(src, dst, size, 0) for src, dst in enumerate(to)])


def all_to_all(hosts: int, members: range, size: int) -> str:
    """All pairs of some hosts."""
    pairs = [(src, dst) for src in members for dst in members if src != dst]
    return matrix(hosts, [(src, dst, size, 0) for src, dst in pairs])


def matrix(hosts: int, flows: list[tuple[int, int, int, int]]) -> str:
    """A connection matrix. A flow has a source, a destination, bytes, and its start in us."""
    lines = [f"Nodes {hosts}", f"Connections {len(flows)}"]
    for number, (src, dst, size, start_us) in enumerate(flows, 1):
        lines.append(f"{src}->{dst} id {number} start {start_us * 1_000_000} size {size}")
    return "\n".join(lines) + "\n"


TOPOLOGIES = {
    "star": tiers(32, [(32, 1, 32), (1, 0, 1)], 25, 2000),
    "clos": tiers(64, [(8, 8, 1), (8, 0, 1)], 100, 1000),
    "thin": tiers(32, [(8, 2, 4), (4, 0, 1)], 200, 500),
    "slow": tiers(48, [(12, 6, 2), (4, 0, 1)], 40, 3000),
    "tree16": tiers(16, [(2, 2, 1), (2, 2, 1), (4, 0, 1)], 100, 1000),
    "tree128": tiers(128, [(4, 4, 1), (4, 4, 1), (8, 0, 1)], 200, 600),
}

# Name, protocol, packets at which PFC stops an input and those at which it resumes, topology, matrix.
SETTINGS = [
    ("incast5", "roce", (15, 12), "star", incast(32, 5, 31, 1_000_000)),
    ("incast30", "roce", (15, 12), "clos", incast(64, 30, 63, 200_000)),
    ("incast30-pfc40", "roce", (40, 30), "clos", incast(64, 30, 63, 200_000)),
    ("incast20", "roce", (15, 12), "thin", incast(32, 20, 7, 400_000)),
    ("alone", "roce", (15, 12), "thin", matrix(32, [(0, 31, 10_000_000, 0)])),
    ("permutation16", "roce", (15, 12), "tree16", permutation(16, 1_000_000, 5)),
    ("permutation128", "roce", (15, 12), "tree128", permutation(128, 500_000, 6)),
    ("incast8", "eqds", None, "star", incast(32, 8, 31, 300_000, 3)),
    ("incast12", "eqds", None, "tree16", incast(16, 12, 15, 600_000, 7)),
    ("incast32", "eqds", None, "slow", incast(48, 32, 40, 1_000_000, 20)),
    ("all8", "eqds", None, "thin", all_to_all(32, range(4, 12), 131_072)),
    ("permutation64", "eqds", None, "clos", permutation(64, 2_000_000, 7)),
]


def plan(name: str, protocol: str, pfc: tuple[int, int] | None, topology: str) -> str:
    """The plan of a setting. Packets have 64 bytes of headers."""
    text = f'framing_bytes = 20\nseeds = 20\n\n[topology.{topology}]\nfile = "{topology}.topo"\n\n'
    text += f'[workload.{name}]\nfile = "{name}.cm"\n\n'
    if pfc is None:
        return text + f'[transport.{protocol}]\nprotocol = "{protocol}"\n'
    stop, resume = (packets * FRAME for packets in pfc)
    text += f'[switch.packets]\npfc = {{ priorities = [3], xoff = {{ bytes = "{stop}" }}, '
    text += f'xon_gap = "{stop - resume}", max_frame = "4180" }}\n\n'
    return text + '[transport.roce]\nprotocol = "roce-nocc"\nack_every = 1\n'


def main() -> None:
    """Writes all files."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in TOPOLOGIES.items():
        (directory / f"{name}.topo").write_text(text)
    for name, protocol, pfc, topology, flows in SETTINGS:
        (directory / f"{name}.cm").write_text(flows)
        (directory / f"{name}.toml").write_text(plan(name, protocol, pfc, topology))


if __name__ == "__main__":
    main()
