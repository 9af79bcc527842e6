"""Boxes, and NICs that send RC packets over real interfaces, in a chain of namespaces."""

import contextlib
import filecmp
import json
import os
import signal
import statistics
import subprocess
import threading

#: Bytes of the data that the NICs carry.
BYTES = 4 << 20
#: Drops one RoCEv2 packet in fifty, at random. A counter would not work: Go-Back-N repeats the same
#: packets after each timeout, and if it repeats a multiple of fifty packets, a counter drops the
#: same packet every time.
LOSS = "udp dport 4791 numgen random mod 50 == 0 drop"

#: Upper bound of the packets that a NIC repeats with repair, as a share of those that it repeats
#: without: medians of `SENDS` sends. Repair usually leaves a tenth to a third.
REPEATED_SHARE = 0.7
#: Sends of a comparison. Losses are random, and a busy machine adds delay, so a single send can have
#: half the usual repeats or four times as many.
SENDS = 5

#: Round trips between processes vary, and the NICs' ACK timeout is 100 ms.
NETRT = ["--rate", "1Gbit", "--rtt", "2ms", "--hold", "40ms"]
#: Boxes of both kinds, with their options.
KINDS = {"lowar": ["--coding", "8,1"], "netrt": NETRT}

#: Where a box serves Prometheus text, with `--metrics`.
METRICS = "127.0.0.1:9791"


class Rig:
    """Programs and files."""

    def __init__(self, programs, directory):
        self.program = str(programs / "farwrite")
        self.nic = str(programs / "farwrite-rc-host")
        self.directory = directory
        self.key = directory / "boxes.key"
        if not self.key.exists():
            subprocess.run([self.program, "keygen", str(self.key)], check=True,
                           stdout=subprocess.DEVNULL)
        self.data = directory / "box-data"
        if not self.data.exists():
            self.data.write_bytes(os.urandom(BYTES))

    def box(self, chain, host, *options, kind="lowar", every="0s"):
        """Start a box in the namespace of `host`."""
        command = [self.program, "--json", kind, "--near", "near", "--far", "far", "--every", every,
                   "--psk-file", str(self.key), *options]
        process = chain.own(host.popen(command, text=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE))
        line = process.stderr.readline()
        if "Carrying" not in line:
            raise RuntimeError(f"farwrite {kind}: {line}")
        return process

    @contextlib.contextmanager
    def boxes(self, chain, *options, kind="lowar"):
        """Start a box beside each host. Yield a list that has their results at the end."""
        hosts = (chain.near_a, chain.near_b)
        processes = [self.box(chain, host, *options, kind=kind) for host in hosts]
        results = []
        yield results
        results.extend(self.stop(process) for process in processes)

    def stop(self, process):
        """End a box and return its counters."""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        if process.returncode != 0:
            raise RuntimeError(f"farwrite: {err}")
        return json.loads(out)["result"]

    @staticmethod
    def metrics(host):
        """Return the Prometheus text of the box in the namespace of `host`."""
        host.ip("link", "set", "lo", "up")
        read = ("import sys,urllib.request as u\n"
                "print(u.urlopen(f'http://{sys.argv[1]}/metrics').read().decode())")
        return host.run("python3", "-c", read, METRICS)

    def nics(self, chain, a, b, vlan=None, ipv6=False, timeout_ms=100, window=256,
             seconds=180, when_ready=lambda: None):
        """Run a NIC on both hosts and return their counters. A NIC repeats a packet if no
        acknowledgement arrives for `timeout_ms`. `when_ready` is called just before the NICs
        exchange packets."""
        common = ["--timeout-ms", str(timeout_ms), "--window", str(window)]
        common += [] if vlan is None else ["--vlan", str(vlan)]
        common += ["--ipv6"] if ipv6 else []
        ends = []
        for host, peer, node, work in ((chain.b, chain.a, 1, b), (chain.a, chain.b, 0, a)):
            command = [self.nic, "--interface", "veth0", "--node", str(node),
                       "--peer", str(1 - node), "--peer-mac", chain.mac(peer), *common, *map(str, work)]
            process = chain.own(host.popen(command, text=True, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            self.expect(process, "ready")
            ends.append(process)
        when_ready()
        timer = _kill_after(ends, seconds)
        for process in ends:
            self.expect(process, "done")
        counters = []
        for process in reversed(ends):
            out, _ = process.communicate(timeout=60)
            counters.append(json.loads(out))
        timer.cancel()
        return counters

    @staticmethod
    def expect(process, word):
        """Wait for a line of output."""
        line = process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"a NIC says {line!r} and not {word!r}: {process.stderr.read()}")

    def send(self, chain, **options):
        """SENDs data from `a` to `b`. Return what is wrong with it, and both NICs' counters."""
        out = self.directory / "box-out"
        counters = self.nics(chain, ["--send", self.data], ["--recv", f"{out}={BYTES}"], **options)
        same = filecmp.cmp(self.data, out, shallow=False)
        return None if same else "the bytes differ", counters

    def repeats(self, chain, **options):
        """Send `SENDS` times. Return what is wrong, and both NICs' counters of the send in which the
        sending NIC repeated the median number of packets."""
        sends = [self.send(chain, **options) for _ in range(SENDS)]
        wrong = next((wrong for wrong, _ in sends if wrong), None)
        middle = statistics.median_low(sender["repeated"] for _, (sender, _) in sends)
        return wrong, next(nics for _, nics in sends if nics[0]["repeated"] == middle)


def _kill_after(processes, seconds):
    timer = threading.Timer(seconds, lambda: [process.kill() for process in processes])
    timer.start()
    return timer
