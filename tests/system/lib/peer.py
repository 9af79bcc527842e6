"""Runs two `farwrite-peer` programs and moves messages between them."""

import os
import queue
import subprocess
import threading
from dataclasses import dataclass, field

PORT = 4791


class PeerFailed(Exception):
    """A peer ended with an error, or printed nothing in time."""


class Peer:
    """One end. A thread reads its lines, so that waiting for a line has a limit."""

    def __init__(self, veth, host, program, arguments, offload=True):
        environment = dict(os.environ)
        if not offload:
            environment["FARWRITE_UDP_OFFLOAD"] = "0"
        self.process = veth.own(host.popen(
            [program, *arguments], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(None)

    def expect(self, word, seconds=60):
        """Return the words after `word` in the next line, which must start with `word`."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise PeerFailed(f"no line {word!r} within {seconds} s") from None
        if line is None:
            raise PeerFailed(self.process.stderr.read().strip())
        if line[0] != word:
            raise PeerFailed(f"line {word!r} expected, not {line}")
        return line[1:]

    def tell(self, line):
        """Write a line to the peer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self):
        """End the peer and return its counters."""
        self.process.stdin.close()
        words = self.expect("counters")
        self.process.wait(timeout=60)
        return {name: int(value) for name, value in zip(words[::2], words[1::2])}


@dataclass
class Transfer:
    """The messages to move from `a` to `b`, and the results."""

    messages: list
    immediate: int | None
    control_qpns: dict = field(default_factory=dict)
    data_qpns: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    sender: dict = field(default_factory=dict)
    receiver: dict = field(default_factory=dict)


    def drops(self):
        """Return the packets that an end dropped although it should have applied them."""
        # A repeat that arrives after its message has ended finds the null key. This is correct.
        usual = {"sent", "received", "repeated", "rebuilt", "gso", "gro", "NullKey"}
        return [f"the {end} counts {value} {name}"
                for end, counters in (("sender", self.sender), ("receiver", self.receiver))
                for name, value in counters.items() if value and name not in usual]


class Pair:
    """Two connected peers: `a` sends `messages` to `b`."""

    def __init__(self, veth, program, directory, messages, *, family=4, mtu=4096, rate=400_000_000,
                 channels=1, immediate=None, offload=True, bind=None,
                 scheme="sr-nack"):
        self.transfer = Transfer(messages, immediate)
        self.directory = directory
        common = ["--mtu", str(mtu), "--rate", str(rate), "--channels", str(channels),
                  "--scheme", scheme]
        sends, recvs = [], []
        for number, message in enumerate(messages):
            (directory / f"sent{number}").write_bytes(message)
            sends += ["--send", str(directory / f"sent{number}")]
            recvs += ["--recv", f"{directory / f'received{number}'}={len(message)}"]
        if immediate is not None:
            sends += ["--immediate", str(immediate)]
        ends = []
        for host, work in ((veth.a, sends), (veth.b, recvs)):
            address = bind or host.address(family)
            where = ["--bind", f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"]
            if bind:
                where += ["--advertise", host.address(family)]
            # `offload` is one word for both ends, or a word for each.
            offloads = offload if isinstance(offload, dict) else {host: offload}
            ends.append(Peer(veth, host, program, where + common + work, offloads[host]))
        self.a, self.b = ends
        self._connect(veth)

    def _connect(self, veth):
        infos = []
        for host, peer in ((veth.a, self.a), (veth.b, self.b)):
            control, *data = map(int, peer.expect("qpns"))
            self.transfer.control_qpns[host] = control
            if host is veth.b:
                self.transfer.data_qpns = data
            infos.append(peer.expect("info")[0])
        # Start the receiver first, so that it listens when the first offer arrives.
        self.b.tell(infos[0])
        self.a.tell(infos[1])

    def finish(self, seconds=60):
        """Wait until every message is whole, compare the bytes, and stop both ends."""
        try:
            return self._finish(seconds)
        except PeerFailed as failure:
            errors = [peer.process.stderr.read().strip() for peer in (self.a, self.b)
                      if peer.process.poll() is not None]
            raise PeerFailed("; ".join([str(failure), *errors])) from None

    def _finish(self, seconds):
        transfer = self.transfer
        # With losses, a message may end before an earlier one.
        paths = {str(self.directory / f"received{number}"): number
                 for number in range(len(transfer.messages))}
        while paths:
            path, outcome, immediate = self.b.expect("received", seconds)
            number = paths.pop(path)
            want = "None"
            if transfer.immediate is not None:
                want = f"Some({transfer.immediate + number})"
            if outcome != "Some(Whole)" or immediate != want:
                transfer.problems.append(f"message {number}: {outcome}, immediate {immediate}")
            if open(path, "rb").read() != transfer.messages[number]:
                transfer.problems.append(f"message {number}: other bytes arrived than were sent")
        for _ in transfer.messages:
            _, outcome = self.a.expect("sent", seconds)
            if outcome != "Some(Whole)":
                transfer.problems.append(f"a send ended as {outcome}")
        transfer.sender, transfer.receiver = self.a.stop(), self.b.stop()
        return transfer
