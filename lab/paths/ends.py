"""The programs that move data from host `a` to host `b` of a path."""

import json
import os
import shutil
import subprocess
import time

from lib.path import REAL_TIME, Path
from lib.veth import sh, until

PORT = 4792
LOOPBACK = "127.0.0.1"
#: Bytes of a file that takes longer than each measurement of flows: two minutes at 200 Mbit/s.
LONG = 3 << 30
#: A link whose packets leave later than this is too slow for the path that it emulates.
LATE_MS = 1.0


class Failed(Exception):
    """A program of the benchmark failed."""


class Programs:
    """The built programs, and the directory for files."""

    def __init__(self, args, directory):
        self.farwrite = str(args.programs / "farwrite")
        self.messages = str(args.programs / "messages")
        self.streams = str(args.programs / "streams")
        self.requests = str(args.programs / "requests")
        self.paths = str(args.programs / "paths")
        self.nccl = str(args.programs / "libnccl_net_farwrite.so")
        self.traces = str(args.programs / "examples" / "rate_traces")
        self.rc_host = str(args.programs / "farwrite-rc-host")
        self.quinn = str(args.quinn) if args.quinn.exists() else None
        self.runs = args.runs
        self.scale = args.scale
        self.csv = args.csv
        self.options = args.options.split()
        self.directory = directory
        self.key = directory / "key"
        subprocess.run([self.farwrite, "keygen", str(self.key)], check=True, capture_output=True)
        known = sh("sysctl", "-n", "net.ipv4.tcp_available_congestion_control").split()
        self.congestion_controls = [cc for cc in ("bbr", "cubic") if cc in known]
        self._fills = {}

    def path(self, *options):
        """Returns a path with these options of `farwrite link`."""
        return Path(self.farwrite, *map(str, options), prefix=REAL_TIME)

    def file(self, size):
        """Makes a file of random bytes."""
        path = self.directory / f"random-{size}"
        if not path.exists():
            piece = os.urandom(1 << 24)
            with open(path, "wb") as file:
                missing = size
                while missing:
                    missing -= file.write(piece[:missing])
        return path

    def zeros(self, size):
        """Makes a file for flows whose data do not matter. The zeros are written: holes of a file are not sent."""
        path = self.directory / f"zeros-{size}"
        if not path.exists():
            block = bytes(1 << 20)
            with path.open("wb") as file:
                for _ in range(size // len(block)):
                    file.write(block)
        return path

    def fill(self, rate, mtu, *options):
        """Returns the share of a path's rate that a stream of UDP datagrams can fill."""
        key = (rate, mtu, options)
        if key not in self._fills:
            payload = mtu - 28
            with self.path("--rate", rate, "--ip-mtu", mtu, *options) as path:
                taken, _ = path.exchange(
                    ["udp-sink"],
                    ["udp-blast", "--rate", 1.1 * rate, "--payload", payload,
                     "--segments", max(1, 60_000 // payload), "--seconds", 3])
            bits = taken["bytes"] / payload * mtu * 8
            self._fills[key] = bits / taken["seconds"] / rate
        return self._fills[key]


def lateness(link):
    """Returns the p99 of a link's lateness in ms, and the number of packets that it did not read in
    time."""
    ways = link["forward"], link["backward"]
    return (max(way["lateness_ms"]["p99"] for way in ways),
            sum(way["unread"] or 0 for way in ways))


def is_valid(run):
    """Whether a run over a link with this lateness counts."""
    late, unread = run
    return late < LATE_MS and not unread


def shown(*runs):
    """Returns the worst lateness of some runs, with a mark if the row is not valid."""
    late, unread = (max(run[column] for run in runs) for column in (0, 1))
    mark = "!" if late >= LATE_MS else ""
    return f"{late:.2f}{mark}{f', {unread} unread!' if unread else ''}"


def empty(directory):
    """Makes an empty directory. A transfer must not resume one that another measurement has cut off."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def receive(programs, path, directory, port=PORT, loopback=False):
    """Starts `farwrite recv` on `b`. With `loopback`, both ends are on `a`."""
    host, address = (path.a, LOOPBACK) if loopback else (path.b, path.b.v4)
    process = path.own(host.popen(
        [programs.farwrite, "--json", "--quiet", "recv", "--listen", f"{address}:{port}",
         "--once", "--dir", str(directory), "--psk-file", str(programs.key)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    until(lambda: f":{port}" in host.run("ss", "-uln"), 10, "farwrite recv listens")
    return process


def check_runs(receiver):
    """Raises an error if a receiver has ended, because then its flow has, before the end of a measurement."""
    if receiver.poll() is not None:
        raise RuntimeError(f"a flow ended too early: {receiver.communicate()}")


def send(programs, path, what, *options, port=PORT, loopback=False):
    """Starts `farwrite send` on `a`. It knows nothing about the path except `options`."""
    address = LOOPBACK if loopback else path.b.v4
    return path.own(path.a.popen(
        [programs.farwrite, "--json", "--quiet", "send", "--to", f"{address}:{port}",
         "--psk-file", str(programs.key), "--no-path-cache", *programs.options, *options,
         str(what)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))


def move(programs, path, source, *options):
    """Moves a file with `farwrite`. Returns the seconds from the start of `send` to its end."""
    return move_counted(programs, path, source, *options)[0]


def move_counted(programs, path, source, *options, loopback=False):
    """Moves a file with `farwrite`. Returns the seconds from the start of `send` to its end, the seconds that
    processors have spent on `send` and on `recv`, and the result of `send`."""
    directory = programs.directory / "in"
    directory.mkdir(exist_ok=True)
    receiver = receive(programs, path, directory, loopback=loopback)
    start = time.monotonic()
    sender = send(programs, path, source, *options, loopback=loopback)
    sent = _processor_seconds(sender, 300)
    seconds = time.monotonic() - start
    received = _processor_seconds(receiver, 30)
    out = sender.stdout.read()
    if sender.returncode != 0 or receiver.returncode != 0:
        raise Failed(f"farwrite send: {sender.stderr.read().strip() or out}")
    (directory / source.name).unlink()
    return seconds, sent, received, json.loads(out.splitlines()[-1])["result"]


def _processor_seconds(process, limit_s):
    """Waits for the end of a process that writes little. Returns the seconds that processors have spent on it."""
    end = time.monotonic() + limit_s
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() > end:
            raise Failed(f"{process.args} took longer than {limit_s} s")
        time.sleep(0.002)


def tcp_copy(programs, path, source, cc):
    """Moves the bytes of a file over plain TCP. Returns the seconds from the connection to the
    answer to the last byte."""
    size = source.stat().st_size
    receiver = path.start(path.b, "tcp-answer", "--bytes", size)
    sender = path.start(path.a, "tcp-ask", "--to", path.b.v4, "--bytes", size, "--cold",
                        "--cc", cc)
    seconds = path.result(sender, 300)["seconds"][0]
    path.result(receiver)
    return seconds


def use_congestion_control(path, cc):
    """Makes both hosts use one congestion control for TCP between them. The route sets it, since the setting of a
    namespace needs privileges outside of it."""
    for host, peer in ((path.a, path.b), (path.b, path.a)):
        host.ip("route", "replace", peer.v4, "dev", host.dev, "src", host.v4, "congctl", cc)


def rsync(programs, path, source, cc, limit_s=None):
    """Moves a file with rsync to its daemon. Returns the seconds from the start of the command to
    its end. A transfer that takes longer than `limit_s` is a `TimeoutExpired`."""
    use_congestion_control(path, cc)
    directory = programs.directory / "rsync"
    directory.mkdir(exist_ok=True)
    config = programs.directory / "rsyncd.conf"
    config.write_text(f"use chroot = no\nuid = 0\ngid = 0\n[in]\npath = {directory}\n"
                      "read only = no\n")
    daemon = path.own(path.b.popen(
        ["rsync", "--daemon", "--no-detach", f"--config={config}", "--port=8730",
         f"--address={path.b.v4}"], stderr=subprocess.DEVNULL))
    until(lambda: ":8730" in path.b.run("ss", "-tln"), 10, "rsync listens")
    start = time.monotonic()
    sender = path.own(path.a.popen(
        ["rsync", "--whole-file", str(source), f"rsync://{path.b.v4}:8730/in/"]))
    code = sender.wait(timeout=limit_s)
    seconds = time.monotonic() - start
    daemon.terminate()
    daemon.wait(timeout=10)
    if code != 0:
        raise Failed(f"rsync ended with {code}")
    (directory / source.name).unlink()
    return seconds


def tcp_flow(path, seconds, cc):
    """Sends over TCP for some seconds. Returns the bits per second from first byte to last."""
    taken, _ = tcp_exchange(path, seconds, cc)
    return tcp_bps(taken["flows"][0])


def tcp_exchange(path, seconds, cc):
    """Sends over TCP for some seconds. Returns what the receiver and the sender print."""
    return path.exchange(["tcp-sink"], ["tcp-source", "--cc", cc, "--seconds", seconds], seconds + 60)


def tcp_bps(tenths):
    """Returns the bits per second of a flow with these bytes in each tenth of a second."""
    # The last tenth of a second is incomplete.
    return 80 * sum(tenths[:-1]) / max(1, len(tenths) - 1)


def quinn_command(programs, cc):
    """Returns the start of the command of a QUIC end."""
    return [programs.quinn, "--certificate", str(programs.directory / "certificate"), "--cc", cc]


def quinn_receiver(programs, path, cc, host=None, address=None, role="take"):
    """Starts the receiving QUIC end, on `b` if no host is named."""
    host, address = host or path.b, address or path.b.v4
    receiver = path.own(host.popen([*quinn_command(programs, cc), role, f"{address}:4433"],
                                   text=True, stdout=subprocess.PIPE))
    if receiver.stdout.readline() != "ready\n":
        raise Failed("quinn does not listen")
    return receiver


def quinn_flow(programs, path, seconds, cc, loopback=False):
    """Sends over QUIC for some seconds, in writes of 1 MiB. Returns the bits per second from the first byte
    to the last, and whether the connection lasted until the end. With `loopback`, both ends are on `a`."""
    host, address = (path.a, "127.0.0.1") if loopback else (path.b, path.b.v4)
    receiver = quinn_receiver(programs, path, cc, host, address)
    sender = path.own(path.a.popen([*quinn_command(programs, cc), "send", f"{address}:4433", str(seconds)],
                                   stderr=subprocess.DEVNULL))
    out, _ = receiver.communicate(timeout=seconds + 60)
    if receiver.returncode != 0:
        raise Failed("quinn took nothing in")
    taken = json.loads(out)
    return 8 * taken["bytes"] / taken["seconds"], sender.wait(timeout=10) == 0
