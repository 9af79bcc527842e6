"""Both ends of a transfer on this machine. They end with the `with` block."""

import dataclasses
import itertools
import json
import queue
import socket
import subprocess
import threading
import time

from .veth import sh, until

_hosts = itertools.count(1)


@dataclasses.dataclass
class Ended:
    """The result of an end."""

    code: int
    outcomes: list
    errors: list
    # Time for which the test waited for the end, in seconds.
    waited: float

    def warnings(self, word):
        """Return the warnings that contain a word."""
        return [line for line in self.errors if "warning" in line and word in line]

    def problems(self, name, code):
        """Return what is wrong if the end should have ended with `code`."""
        if self.code == code and self.outcomes and self.outcomes[-1]["exit_code"] == code:
            return []
        return [f"{name}: exit code {self.code}, {code} expected: {self.outcomes[-1:]}",
                *self.errors[-2:]]


class End:
    """A running `farwrite` with `--json`. A thread reads its lines, so that waiting has a limit.
    `address` is that of a receiver."""

    def __init__(self, command, address=None):
        self.address = address
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.outcomes = queue.Queue()
        self.errors = []
        self.readers = [threading.Thread(target=self._read_outcomes, daemon=True),
                        threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read_outcomes(self):
        for line in self.process.stdout:
            self.outcomes.put(json.loads(line))

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line.strip())

    def signal(self, number):
        self.process.send_signal(number)

    def runs(self):
        return self.process.poll() is None

    def outcome(self, seconds):
        """Return the JSON object of the next transfer."""
        try:
            return self.outcomes.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no result within {seconds} s; it said {self.errors}") from None

    def end(self, seconds=90):
        """Wait for the end of the program. `outcomes` are those that the test has not read."""
        start = time.monotonic()
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no end within {seconds} s; it said {self.errors}") from None
        for reader in self.readers:
            reader.join()
        outcomes = []
        while not self.outcomes.empty():
            outcomes.append(self.outcomes.get())
        return Ended(code, outcomes, self.errors, time.monotonic() - start)


class Ends:
    """Starts ends that share a key, by default on the loopback interface."""

    def __init__(self, program, where, timeout):
        self.program = program
        self.timeout = timeout
        self.key = where / "key"
        if not self.key.exists():
            sh(program, "keygen", str(self.key))
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in self.running:
            end.process.kill()
        for end in self.running:
            end.process.wait()

    def recv(self, directory, *more, at=None, host=None):
        """Start `farwrite recv` on `at`, or on a free port. `address` of the result is its
        address."""
        address = at or free_address()
        end = self._start(host, "recv", "--listen", address, "--dir", str(directory), *more,
                          address=address)
        port = address.rsplit(":", 1)[1]
        listing = ["ss", "-ulnH", f"sport = :{port}"]
        until(lambda: not end.runs() or (host.run(*listing) if host else sh(*listing)), 60,
              "recv listens")
        return end

    def send(self, to, *what, host=None):
        """Start `farwrite send` to a receiver or an address. Options may precede the paths."""
        address = to.address if isinstance(to, End) else to
        return self._start(host, "send", "--to", address, *map(str, what))

    def probe(self, to, *more, host=None):
        """Start `farwrite probe` to an address."""
        return self._start(host, "probe", to, *map(str, more))

    def _start(self, host, *arguments, address=None):
        inside = ["ip", "netns", "exec", host.name] if host else []
        end = End([*inside, self.program, "--json", "--quiet", arguments[0], "--psk-file",
                   str(self.key), "--timeout", f"{self.timeout}s", *arguments[1:]], address)
        self.running.append(end)
        return end


def free_address():
    """Return a free UDP port, on a loopback address that no other test uses.
    Other processes bind to 127.0.0.1, so they cannot take the port in the meantime."""
    host = f"127.0.8.{next(_hosts)}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((host, 0))
        return f"{host}:{udp.getsockname()[1]}"
