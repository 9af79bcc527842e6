"""Two private networks behind routers that translate addresses, joined by a public network.

    a (10.1.0.2) -- near (10.1.0.1 | 192.0.2.1) -- far (192.0.2.2 | 10.2.0.1) -- b (10.2.0.2)

`a` reaches `b` at the public address of `far`. The interfaces of each namespace have the name of
the neighbour to which they lead.
"""

import contextlib
import itertools
import os
import subprocess
import time

from .veth import Network, sh, until

_numbers = itertools.count()

A, B = "10.1.0.2", "10.2.0.2"
NEAR, FAR = "192.0.2.1", "192.0.2.2"


#: Sends packets of 18 bytes in batches of 64 to an address and a port.
_FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 18)
s.connect((sys.argv[1], int(sys.argv[2])))
batch = bytes([0x2B]) * (64 * 18)
while True:
    try:
        s.send(batch)
    except OSError:
        pass
"""


class Node:
    """A namespace."""

    def __init__(self, name):
        self.name = name

    def run(self, *command):
        """Run a command in the namespace and return its output."""
        return sh("ip", "netns", "exec", self.name, *command)

    def ip(self, *arguments):
        return sh("ip", "-n", self.name, *arguments)

    def nft(self, rules):
        """Add nftables rules."""
        self.run("nft", rules)

    def received_bytes(self, device):
        return self._statistic(device, "rx_bytes")

    def received_packets(self, device):
        return self._statistic(device, "rx_packets")

    def _statistic(self, device, name):
        return int(self.run("cat", f"/sys/class/net/{device}/statistics/{name}"))


class Nat(Network):
    """The four namespaces. `mtu` is the MTU of the public network, `edge` that of the other
    networks."""

    def __init__(self, mtu=1500, edge=1500):
        super().__init__()
        tag = f"fwn{os.getpid()}-{next(_numbers)}"
        self.a, self.near, self.far, self.b = (Node(f"{tag}{end}") for end in "anfb")
        self.hosts = self.a, self.near, self.far, self.b
        self.mtu, self.edge = mtu, edge

    def _make(self):
        for node in self.hosts:
            sh("ip", "netns", "add", node.name)
            node.ip("link", "set", "lo", "up")
        self._cable(self.a, "near", f"{A}/24", self.near, "a", "10.1.0.1/24", self.edge)
        self._cable(self.near, "far", f"{NEAR}/24", self.far, "near", f"{FAR}/24", self.mtu)
        self._cable(self.far, "b", "10.2.0.1/24", self.b, "far", f"{B}/24", self.edge)
        self.a.ip("route", "add", "default", "via", "10.1.0.1")
        self.b.ip("route", "add", "default", "via", "10.2.0.1")
        for router in (self.near, self.far):
            router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    @staticmethod
    def _cable(left, left_dev, left_addr, right, right_dev, right_addr, mtu):
        left.ip("link", "add", "name", left_dev, "mtu", str(mtu), "type", "veth", "peer", "name",
                right_dev, "mtu", str(mtu), "netns", right.name)
        for node, dev, addr in ((left, left_dev, left_addr), (right, right_dev, right_addr)):
            node.ip("addr", "add", addr, "dev", dev)
            # Routers must see packets as a wire would carry them, not batches.
            node.run("ethtool", "-K", dev, "tx-udp-segmentation", "off", "gso", "off", "gro", "off",
                     "tso", "off")
            node.ip("link", "set", "dev", dev, "up")

    def masquerade(self, ports="20000-20999"):
        """Make `near` translate the packets of `a`, to ports that `near` chooses."""
        self.near.nft("add table ip nat; flush table ip nat; "
                      "add chain ip nat out { type nat hook postrouting priority 100; }; "
                      f"add rule ip nat out oifname far meta l4proto udp masquerade to :{ports}; "
                      "add rule ip nat out oifname far masquerade")

    def rebind(self, ports):
        """Make `near` forget its UDP mappings during a pause of the path. After that, it chooses
        new ones."""
        self.near.run("sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=1",
                      "net.netfilter.nf_conntrack_udp_timeout_stream=1")
        # A packet sets the timeout of its mapping. Wait for packets with the new timeout; the first
        # of the counted packets may have been sent before. Then pass no packet until the timeout is
        # over.
        seen = self.far.received_packets("near")
        until(lambda: self.far.received_packets("near") > seen + 50, 60, "packets with the timeout")
        self.near.nft("add table ip pause; add chain ip pause in "
                      "{ type filter hook prerouting priority raw; }; "
                      "add rule ip pause in meta l4proto udp drop")
        self.masquerade(ports)
        time.sleep(2.5)
        self.near.nft("delete table ip pause")

    def forward(self, outer=4792, inner=4792):
        """Make `far` forward a port to `b`, and translate the packets of `b`."""
        self.far.nft("add table ip nat; "
                     "add chain ip nat in { type nat hook prerouting priority -100; }; "
                     "add chain ip nat out { type nat hook postrouting priority 100; }; "
                     f"add rule ip nat in iifname near meta l4proto {{ tcp, udp }} th dport {outer} "
                     f"dnat to {B}:{inner}; "
                     "add rule ip nat out oifname near masquerade")

    def route_openly(self):
        """Make each router know the network behind the other one, for ends without translation."""
        self.near.ip("route", "add", "10.2.0.0/24", "via", FAR)
        self.far.ip("route", "add", "10.1.0.0/24", "via", NEAR)

    @contextlib.contextmanager
    def flood(self, port):
        """Send small packets from `far` to a port of `b`, as fast as one core can."""
        command = ["ip", "netns", "exec", self.far.name, "python3", "-c", _FLOOD, B, str(port)]
        with subprocess.Popen(command) as stranger:
            try:
                yield
            finally:
                stranger.kill()
