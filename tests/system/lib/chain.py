"""Two hosts and two boxes in a chain of network namespaces."""

import itertools
import json
import os
import subprocess

from .veth import Host, Network, sh, until

_numbers = itertools.count()


class Chain(Network):
    """Hosts `a` and `b`, boxes `near_a` and `near_b`, and between the boxes a path that loses packets:

        a.veth0 = near.near_a.far = left.path.right = far.near_b.near = veth0.b

    `mtu` leaves room for repair packets.
    """

    def __init__(self, mtu=1600, host_mtu=1500):
        super().__init__()
        tag = f"fwc{os.getpid()}-{next(_numbers)}"
        self.a = Host(f"{tag}a", "10.0.0.1", "fd77::1")
        self.b = Host(f"{tag}b", "10.0.0.2", "fd77::2")
        self.near_a, self.path, self.near_b = (
            Host(f"{tag}{name}", None, None) for name in ("na", "p", "nb"))
        self.hosts = self.a, self.near_a, self.path, self.near_b, self.b
        self.mtu = mtu
        self.host_mtu = host_mtu

    def _make(self):
        for host in self.hosts:
            sh("ip", "netns", "add", host.name)
            # The kernel must not send packets of its own on interfaces that only forward.
            host.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                     "net.ipv6.conf.default.disable_ipv6=1")
        for host, device, other, other_device in self._cables():
            sh("ip", "-n", host.name, "link", "add", device, "mtu", str(self.mtu), "type", "veth",
               "peer", "name", other_device, "mtu", str(self.mtu), "netns", other.name)
            for end, name in ((host, device), (other, other_device)):
                end.ip("link", "set", name, "up")
        for host in (self.a, self.b):
            host.ip("link", "set", "veth0", "mtu", str(self.host_mtu))
        self._make_path()

    def _cables(self):
        return [(self.a, "veth0", self.near_a, "near"), (self.near_a, "far", self.path, "left"),
                (self.path, "right", self.near_b, "far"), (self.near_b, "near", self.b, "veth0")]

    def _make_path(self):
        self.path.ip("link", "add", "bridge", "mtu", str(self.mtu), "type", "bridge")
        for device in ("left", "right"):
            self.path.ip("link", "set", device, "master", "bridge")
        self.path.ip("link", "set", "bridge", "up")

    def mac(self, host):
        return host.run("cat", "/sys/class/net/veth0/address").strip()

    def lose(self, rule):
        """Replace the nftables rule that drops packets from `a`'s side of the path."""
        subprocess.run(["ip", "netns", "exec", self.path.name, "nft", "delete", "table", "netdev",
                        "lossy"], stderr=subprocess.DEVNULL)
        self.path.run("nft", "add table netdev lossy; add chain netdev lossy in { type filter hook "
                             "ingress device left priority 0; }; add rule netdev lossy in " + rule)


class LongChain(Chain):
    """A chain whose path is `farwrite link` between two routers. `options` are those of the link, and `prefix` runs it.
    Host `a` has the address 10.0.0.1 and `b` has 10.1.0.1."""

    def __init__(self, program, *options, mtu=1600, prefix=()):
        super().__init__(mtu)
        self.program = program
        self.options = options
        self.prefix = prefix
        self.link = None
        self.b.v4 = "10.1.0.1"
        self.far_path = Host(f"{self.path.name}f", None, None)
        self.hosts = *self.hosts, self.far_path

    def _cables(self):
        return [(self.a, "veth0", self.near_a, "near"), (self.near_a, "far", self.path, "left"),
                (self.far_path, "right", self.near_b, "far"),
                (self.near_b, "near", self.b, "veth0")]

    def _make_path(self):
        self.link = self.own(subprocess.Popen(
            [*self.prefix, self.program, "--json", "--quiet", "link", "--namespaces", self.path.name,
             self.far_path.name, "--addresses", "10.77.0.1/24", "10.77.0.2/24", "--ip-mtu", str(self.mtu),
             *self.options],
            text=True, stdout=subprocess.PIPE))
        routers = ((self.path, "left", self.a, "10.0.0", "10.1.0", "10.77.0.2"),
                   (self.far_path, "right", self.b, "10.1.0", "10.0.0", "10.77.0.1"))
        until(lambda: all("far0" in router.run("cat", "/proc/net/dev") for router, *_ in routers), 60,
              "the link is up")
        for router, device, host, here, there, other in routers:
            router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
            # A link that stalls must not lose packets that it did not draw.
            router.ip("link", "set", "far0", "txqueuelen", "10000")
            router.ip("addr", "add", f"{here}.254/24", "dev", device)
            router.ip("route", "add", f"{there}.0/24", "via", other)
            host.ip("addr", "add", f"{here}.1/24", "dev", "veth0")
            host.ip("route", "add", "default", "via", f"{here}.254")

    def stop(self):
        """End the link and return its report."""
        self.link.terminate()
        out, _ = self.link.communicate(timeout=60)
        return json.loads(out)["result"]
