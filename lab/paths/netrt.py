"""NetRT's random losses (figures 6 and 7 of its paper) on packets: writes between two RDMA NICs in software, through
boxes and a link that loses packets."""

import dataclasses
import filecmp
import json
import statistics
import subprocess
import time

import boxes
import ends
from lib.chain import LongChain
from table import show

#: The network of lab/bench/examples/netrt.rs, this many times slower. Packets, pools and the ratios of times stay as
#: they are there.
SLOWER = 100
RATE_BPS = 10_000_000_000 // SLOWER
RTT_US = 100 * SLOWER
TIMEOUT_MS = 4 * SLOWER
#: The bandwidth-delay product.
PRODUCT_BYTES = 125_000
#: Half of the round trip is between the boxes. A cable behind each NIC has a quarter, less the time that the NIC or the
#: link takes to send a packet of 1106 bytes and its acknowledgement of 86 bytes.
LINK_US = RTT_US // 2
CABLE_US = RTT_US // 4 - (1106 + 86) * 8_000_000 // RATE_BPS
#: Shares of packets lost toward the receiver.
LOSSES = (0.001, 0.005, 0.01, 0.05)
#: Bytes of a write, and the number of writes at scale 1. Each begins when the one before is acknowledged.
WRITES = {10_000: 200, 100_000: 100, 1_000_000: 50}
#: A process that uses more than this share of a core may delay packets.
BUSY = 0.8
#: The numbers of the NICs at `a` and `b`: node N has the address 10.0.0.(N + 1).
_NODES = 0, 1 << 16
#: The window is longer than a write, as in virtual time.
_NIC = ("--mtu", "1024", "--window", "16384", "--ack-every", "1", "--timeout-ms", str(TIMEOUT_MS),
        "--cable-bps", str(RATE_BPS), "--cable-us", str(CABLE_US))
_NETRT = ("netrt", "--rate", str(RATE_BPS), "--rtt", f"{RTT_US}us", "--pool")
#: The boxes: options of `farwrite`.
_WAYS = {
    "Go-Back-N": ("lowar", "--forward"),
    "1 BDP": (*_NETRT, str(PRODUCT_BYTES)),
    "2 BDP": (*_NETRT, str(2 * PRODUCT_BYTES)),
}


@dataclasses.dataclass
class _Run:
    """Writes of one size through one kind of boxes."""

    times_ms: list
    #: Packets that the sending NIC has repeated.
    repeated: int
    #: Most bytes of copies at the box of the sender, and most bytes that the box of the receiver has held back.
    pool_bytes: int
    held_bytes: int
    #: The share of a core that each process has used.
    shares: dict

    @property
    def mean_ms(self):
        return statistics.mean(self.times_ms)

    @property
    def error_ms(self):
        """The standard error of the mean."""
        return statistics.stdev(self.times_ms) / len(self.times_ms) ** 0.5


def run(programs):
    """Prints three tables."""
    runs, links = {}, {}
    for loss in LOSSES:
        print(f"NetRT on packets: {100 * loss:g}% loss", flush=True)
        with LongChain(programs.farwrite, "--rate", str(RATE_BPS), "--rtt", f"{LINK_US}us", "--loss", str(loss),
                       "--back", "loss=0", "--queue", "1s", "--no-offload", prefix=ends.REAL_TIME) as chain:
            _leave_packets_to_nics(chain)
            for size in WRITES:
                for way, options in _WAYS.items():
                    runs[size, loss, way] = _write(programs, chain, size, options)
            links[loss] = chain.stop()
    _show_times(runs)
    _show_link(links)
    _show_shares(runs)


def _show_times(runs):
    rows = []
    for size in WRITES:
        for loss in LOSSES:
            plain, one, two = (runs[size, loss, way] for way in _WAYS)
            row = [f"{size // 1000} KB", f"{100 * loss:g}%", plain.mean_ms, plain.error_ms, str(plain.repeated)]
            for found in (one, two):
                row += [found.mean_ms, found.error_ms, found.mean_ms / plain.mean_ms, str(found.repeated)]
            rows.append([*row, one.pool_bytes / 1000, one.held_bytes / 1000])
    counts = ", ".join(f"{count} of {size // 1000} KB" for size, count in WRITES.items())
    show("Completion times of writes in ms, with NetRT boxes whose pool has 1 or 2 bandwidth-delay products",
         f"{RATE_BPS / 1e6:g} Mbit/s, {RTT_US / 1000:g} ms, half of it between the boxes, packets lost toward the "
         f"receiver, Go-Back-N with a timeout of {TIMEOUT_MS} ms.\nMeans of {counts} at scale 1, their standard "
         "errors, ratios to forwarding alone, and packets that\nthe NIC has repeated. Pool and held: most KB in the "
         "pool and in the reordering buffer, boxes with 1 bandwidth-delay product.",
         ["write", "loss", "Go-Back-N", "+-", "repeated", "1 BDP", "+-", "ratio", "repeated", "2 BDP", "+-", "ratio",
          "repeated", "pool", "held"], rows)


def _show_link(links):
    rows = []
    for loss, link in links.items():
        way = link["forward"]
        rows.append([f"{100 * loss:g}%", ends.shown(ends.lateness(link)), str(way["offered"]),
                     f"{100 * way['lost'] / way['offered']:.3g}%", str(way["queue_dropped"])])
    show("The link toward the receiver", "Late: p99 in ms, of the worse direction.",
         ["loss", "late", "packets", "lost", "dropped by the queue"], rows)


def _show_shares(runs):
    names = list(next(iter(runs.values())).shares)
    rows = []
    for way in _WAYS:
        shares = [found.shares for (_, _, its), found in runs.items() if its == way]
        rows.append([way, *(100 * max(share[name] for share in shares) for name in names)])
    show("Processor time of each process, in % of a core", "The most of all sizes and losses.", ["boxes", *names], rows)
    most = max(max(percents) for _, *percents in rows)
    if most > 100 * BUSY:
        print(f"A process has used {most:.0f}% of a core, so it may have delayed packets.", flush=True)


def _leave_packets_to_nics(chain):
    """Takes the addresses from the kernels of the hosts, which would answer the packets of NICs with ICMP."""
    for host, router, device in ((chain.a, chain.path, "left"), (chain.b, chain.far_path, "right")):
        router.ip("neighbor", "replace", host.v4, "lladdr", chain.mac(host), "dev", device, "nud", "permanent")
        host.ip("addr", "flush", "dev", "veth0")


def _write(programs, chain, size, options):
    """Writes from `a` into the memory of `b`, one after the other."""
    count = max(5, int(WRITES[size] * programs.scale))
    data, out = programs.file(size * count), programs.directory / "netrt-out"
    sending, receiving = (boxes.start(programs, chain, host, *options, prefix=ends.REAL_TIME)
                          for host in (chain.near_a, chain.near_b))
    common = *_NIC, "--message", str(size)
    receiver = _nic(programs, chain, (chain.b, chain.far_path, "right"), _NODES[::-1], *common,
                    "--expose", f"{out}={data.stat().st_size}")
    # It has nothing to send.
    _expect(receiver, "done")
    sender = _nic(programs, chain, (chain.a, chain.path, "left"), _NODES, *common,
                  "--outstanding", "1", "--write", str(data))
    processes = {"NIC of the sender": sender, "its box": sending, "link": chain.link, "box of the receiver": receiving,
                 "its NIC": receiver}
    begin, before = time.monotonic(), _seconds(processes)
    _expect(sender, "done")
    wall = time.monotonic() - begin
    shares = {name: (used - before[name]) / wall for name, used in _seconds(processes).items()}
    counters = json.loads(sender.communicate(timeout=20)[0])
    receiver.communicate(timeout=20)
    if not filecmp.cmp(data, out, shallow=False):
        raise ends.Failed("the memory of the receiver is not what was written")
    out.unlink()
    source, destination = boxes.stop(sending), boxes.stop(receiving)
    # A box that only forwards does not count them.
    return _Run([us / 1000 for us in counters["completion_us"]], counters["repeated"],
                source.get("peak_pool_bytes", 0), destination.get("peak_held_bytes", 0), shares)


def _nic(programs, chain, cable, nodes, *options):
    """Starts a NIC. `cable` is its host, the router that it sends to, and the device of the router."""
    host, router, device = cable
    mac = router.run("cat", f"/sys/class/net/{device}/address").strip()
    nic = chain.own(host.popen(
        [*ends.REAL_TIME, programs.rc_host, "--interface", "veth0", "--node", str(nodes[0]), "--peer", str(nodes[1]),
         "--peer-mac", mac, *options], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    _expect(nic, "ready")
    return nic


def _expect(nic, word):
    """Waits for a line of a NIC."""
    line = nic.stdout.readline().strip()
    if line != word:
        raise ends.Failed(f"a NIC says {line!r} and not {word!r}")


def _seconds(processes):
    """Returns the processor time of each process so far."""
    return {name: boxes.processor_seconds(process) for name, process in processes.items()}
