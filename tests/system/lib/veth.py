"""Two network namespaces joined by a veth pair. They exist until the `with` block ends."""

import itertools
import os
import subprocess
import time

_numbers = itertools.count()


class CommandFailed(Exception):
    """A command of the setup failed."""


def sh(*command):
    """Run a command and return its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Host:
    """A namespace with one end of the pair."""

    def __init__(self, name, v4, v6):
        self.name = name
        self.v4 = v4
        self.v6 = v6
        self.dev = "veth0"

    def address(self, family):
        """Return the host's address, for IP version 4 or 6."""
        return self.v4 if family == 4 else self.v6

    def run(self, *command):
        """Run a command in the namespace and return its output."""
        return sh("ip", "netns", "exec", self.name, *command)

    def popen(self, command, **kwargs):
        """Start a process in the namespace. The result is the process itself, because `ip` execs
        it."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], **kwargs)

    def ip(self, *arguments):
        return sh("ip", "-n", self.name, *arguments)

    def add_v6(self):
        """Give the interface its IPv6 address."""
        self.ip("addr", "add", f"{self.v6}/64", "dev", self.dev, "nodad")

    def received_bytes(self):
        return int(self.run("cat", f"/sys/class/net/{self.dev}/statistics/rx_bytes"))

    def link(self, state):
        """Take the interface up or down."""
        self.ip("link", "set", self.dev, state)


class Network:
    """Namespaces and the processes in them. They exist until the `with` block ends. `hosts` are the
    namespaces; `_make` creates them."""

    hosts = ()

    def __init__(self):
        self.processes = []

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def own(self, process):
        """End `process` together with the network, if it still runs then."""
        self.processes.append(process)
        return process

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.name], stderr=subprocess.DEVNULL)


class Veth(Network):
    """Hosts `a` and `b`. With `segment`, packets between them are those that a wire would carry,
    not batches. With `checksums`, the kernel computes UDP checksums instead of leaving them to a
    NIC. Before Linux 6.11, this excludes GSO."""

    def __init__(self, mtu, segment=False, checksums=False):
        super().__init__()
        tag = f"fw{os.getpid()}-{next(_numbers)}"
        self.a = Host(f"{tag}a", "10.77.0.1", "fd77::1")
        self.b = Host(f"{tag}b", "10.77.0.2", "fd77::2")
        self.hosts = self.a, self.b
        self.mtu = mtu
        self.offloads_off = []
        if segment:
            self.offloads_off += ["tx-udp-segmentation", "gso", "gro"]
        if checksums:
            self.offloads_off += ["tx"]

    def _make(self):
        for host in (self.a, self.b):
            sh("ip", "netns", "add", host.name)
        sh("ip", "-n", self.a.name, "link", "add", "veth0", "mtu", str(self.mtu), "type", "veth",
           "peer", "name", "veth0", "mtu", str(self.mtu), "netns", self.b.name)
        for host in (self.a, self.b):
            host.run("sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0",
                     "net.ipv6.conf.veth0.accept_dad=0", "net.ipv6.conf.veth0.keep_addr_on_down=1")
            host.ip("addr", "add", f"{host.v4}/24", "dev", host.dev)
            host.add_v6()
            for offload in self.offloads_off:
                host.run("ethtool", "-K", host.dev, offload, "off")
            host.ip("link", "set", "lo", "up")
        for host in (self.a, self.b):
            host.link("up")


def impair(veth, percent):
    """Drop some packets to `b`, and delay packets by 5 ms if the kernel can. Return a
    description."""
    try:
        veth.a.run("tc", "qdisc", "add", "dev", veth.a.dev, "root", "netem", "limit", "100000",
                   "delay", "5ms", "loss", f"{percent}%")
        return f"{percent}% loss and 5 ms delay"
    except CommandFailed:
        # The kernel does not have netem.
        veth.b.run("nft", f"add table netdev lossy; add chain netdev lossy in {{ type filter hook "
                   f"ingress device {veth.b.dev} priority 0; }}; add rule netdev lossy in "
                   f"numgen random mod 100 < {percent} drop")
        return f"{percent}% loss"


def until(condition, seconds, what):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.01)
