"""Two network namespaces joined by `farwrite link`, gone again when the `with` block ends."""

import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from .veth import Host, sh, until

_TRAFFIC = pathlib.Path(__file__).with_name("traffic.py")
_numbers = itertools.count()
#: A prefix that runs a program with a real-time priority: where few cores carry everything, other programs
#: would otherwise delay it.
REAL_TIME = ("chrt", "--rr", "20") if shutil.which("chrt") else ()


class Path:
    """Hosts `a` and `b`. `options` are those of `farwrite link`, and `prefix` runs it."""

    def __init__(self, program, *options, prefix=()):
        tag = f"fwl{os.getpid()}-{next(_numbers)}"
        self.a = Host(f"{tag}a", "10.77.0.1", "fd77::1")
        self.b = Host(f"{tag}b", "10.77.0.2", "fd77::2")
        for host in (self.a, self.b):
            host.dev = "far0"
        self.program = program
        self.options = options
        self.prefix = prefix
        self.link = None
        self.report = None
        self.started = None
        self.processes = []

    def __enter__(self):
        try:
            for host in (self.a, self.b):
                sh("ip", "netns", "add", host.name)
                host.ip("link", "set", "lo", "up")
                # Twice the bandwidth-delay product of 10 Gbit/s and 50 ms.
                for buffers in ("tcp_wmem", "tcp_rmem"):
                    host.run("sysctl", "-qw", f"net.ipv4.{buffers}=4096 131072 134217728")
            command = [*self.prefix, self.program, "--json", "--quiet", "link", "--namespaces",
                       self.a.name, self.b.name, *self.options]
            self.link = subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE)
            until(lambda: self.link.poll() is not None or self._is_up(), 60, "the link is up")
            self.started = time.monotonic()
            if self.link.poll() is not None:
                raise RuntimeError(f"farwrite link: {self.link.communicate()[1].strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_up(self):
        return all("far0" in host.run("cat", "/proc/net/dev") for host in (self.a, self.b))

    def start(self, host, *command):
        """Start one end of `traffic.py`. A receiving end is ready when this returns."""
        process = host.popen([sys.executable, str(_TRAFFIC), *map(str, command)], text=True,
                             stdout=subprocess.PIPE)
        self.processes.append(process)
        if command[0].endswith(("-sink", "-echo", "-answer")):
            line = process.stdout.readline()
            if line != "ready\n":
                raise RuntimeError(f"{command[0]}: {line!r}")
        return process

    def result(self, process, seconds=120):
        """Return the result of an end of `traffic.py`."""
        out, _ = process.communicate(timeout=seconds)
        if process.returncode != 0:
            raise RuntimeError(f"traffic.py ended with {process.returncode}")
        return json.loads(out.splitlines()[-1])

    def exchange(self, receiving, sending, seconds=120):
        """Run a receiving end on `b` and a sending end on `a`. Return the results of both."""
        receiver = self.start(self.b, *receiving)
        sender = self.start(self.a, *sending, "--to", self.b.v4)
        sent = self.result(sender, seconds)
        return self.result(receiver, seconds), sent

    def own(self, process):
        """End `process` together with the path, if it still runs then."""
        self.processes.append(process)
        return process

    def stop(self):
        """End the link and return its report."""
        if self.report is None:
            self.link.send_signal(signal.SIGINT)
            out, err = self.link.communicate(timeout=60)
            if self.link.returncode != 0:
                raise RuntimeError(f"farwrite link ended with {self.link.returncode}: {err}")
            self.report = json.loads(out)["result"]
        return self.report

    def __exit__(self, *_):
        for process in [*self.processes, *([self.link] if self.link else [])]:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
                pipe.close()
        for host in (self.a, self.b):
            subprocess.run(["ip", "netns", "del", host.name], stderr=subprocess.DEVNULL)
