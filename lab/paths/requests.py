"""Small messages beside TCP and QUIC: requests and answers on localhost, and records at a steady rate over 50 ms."""

import json
import shutil
import statistics
import subprocess

import ends
import table
from goals import Goals

#: The most datagrams of a request and its answer, in both directions together.
MOST_DATAGRAMS = 4
#: The most calls of each end for a request: those that send, and those that receive and find something.
MOST_SEND_CALLS = 1
MOST_RECEIVE_CALLS = 2
#: The most of quinn's median time of a request, and of its p99 of records without loss.
MOST_OF_QUINN_P50 = 2.0
MOST_OF_QUINN_P99 = 1.2
RATES = (200, 1000)
LOSSES = (0, 0.01)
_SEND_CALLS, _RECEIVE_CALLS = (
    tuple(f"syscalls:sys_exit_{name}" for name in names.split())
    for names in ("sendmmsg sendmsg sendto", "recvmmsg recvmsg recvfrom"))
_ALL_CALLS = "raw_syscalls:sys_enter"


def run(programs):
    """Prints times, datagrams, calls and processor time, and each goal beside its number. Returns how many goals are
    missed."""
    goals = Goals()
    _requests(programs, goals)
    _records(programs, goals)
    return goals.show("Goals of small messages")


def _requests(programs, goals):
    count = max(200, int(5000 * programs.scale))
    rows, p50s = [], {}
    for name, command in _contestants(programs, ("stream", "tcp")).items():
        runs = []
        for _ in range(programs.runs):
            with programs.path("--rate", "1Gbit") as path:
                runs.append(_exchange(path, command, count))
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        with programs.path("--rate", "1Gbit") as path:
            datagrams, *calls = _calls(programs, path, command)
        p50s[name] = median["p50"]
        rows.append([name, median["p50"], median["p99"], datagrams if name != "TCP" else None,
                     median["ask_cpu"], median["answer_cpu"], *calls])
        if name == "farwrite":
            goals.at_most("datagrams of a request and its answer", datagrams, 1.01 * MOST_DATAGRAMS)
            for end, (sends, receives, _) in (("asks", calls[:3]), ("answers", calls[3:])):
                goals.at_most(f"send calls of the end that {end}", sends, 1.05 * MOST_SEND_CALLS)
                goals.at_most(f"receive calls of the end that {end}", receives, 1.05 * MOST_RECEIVE_CALLS)
    quinn = p50s.get("quinn")
    goals.at_most("p50 of a request in us", p50s["farwrite"], quinn and MOST_OF_QUINN_P50 * quinn)
    table.show(
        "Requests of 100 bytes, answered by 1,000 bytes, one after the other on localhost",
        f"Medians of {programs.runs} runs of {count} requests. Times in us. CPU: processor time of an end for a request.\n"
        "Datagrams of both directions together, and calls of an end, by perf: sending, receiving and finding something, all.\n"
        "They are the difference of a long and a short run.",
        ["over", "p50", "p99", "datagrams", "CPU asks", "CPU answers", "sends", "receives", "all", "sends", "receives",
         "all"], rows)


def _records(programs, goals):
    seconds = max(2, 10 * programs.scale)
    rows = []
    for loss in LOSSES:
        for rate in RATES:
            p99s = {}
            for name, command in _contestants(programs, ("stream", "messages", "tcp")).items():
                with programs.path("--rate", "1Gbit", "--rtt", "50ms", "--loss", loss) as path:
                    taken = _take(path, command, int(rate * seconds), rate)
                    late = ends.shown(ends.lateness(path.stop()))
                p99s[name] = taken["p99_us"] / 1e3
                rows.append([f"{rate} a second, loss {loss:g}", name, taken["p50_us"] / 1e3, p99s[name],
                             taken["most_us"] / 1e3, taken["cpu_us"], late])
            quinn = p99s.get("quinn")
            share = MOST_OF_QUINN_P99 if loss == 0 else 1.0
            goals.at_most(f"p99 in ms of {rate} records a second, loss {loss:g}", p99s["farwrite"],
                          quinn and share * quinn)
    table.show(
        "Records of 100 bytes at a steady rate, one way, in ms",
        "1 Gbit/s, round trip of 50 ms, loss in both directions. CPU: processor time of the end that takes, for a record, in "
        "us. Late: p99 of the link's lateness in ms.",
        ["records", "over", "p50", "p99", "longest", "CPU", "late"], rows)


def _contestants(programs, overs):
    """Names, and the commands by role and address."""
    names = {"stream": "farwrite", "messages": "farwrite, messages", "tcp": "TCP"}

    def ours(over):
        return lambda role, at: [programs.requests, role, "--over", over, "--key", str(programs.key), "--at", at]

    found = {names[over]: ours(over) for over in overs}
    if programs.quinn:
        found["quinn"] = lambda role, at: [*ends.quinn_command(programs, "cubic"), "small", role, "--at", at]
    return found


def _start(path, host, command, *options, prefix=()):
    return path.own(host.popen([*prefix, *command, *map(str, options)], text=True, stdout=subprocess.PIPE))


def _pair(path, hosts, roles, command, options, prefixes=((), ())):
    """Runs both ends, the waiting one first. Returns what each prints."""
    at = "127.0.0.1:4433" if hosts[0] is hosts[1] else f"{hosts[0].v4}:4433"
    waiting = _start(path, hosts[0], command(roles[0], at), *options, prefix=prefixes[0])
    if waiting.stdout.readline() != "ready\n":
        raise ends.Failed(f"{roles[0]} does not listen")
    first = _start(path, hosts[1], command(roles[1], at), *options, prefix=prefixes[1])
    outs = [process.communicate(timeout=120)[0] for process in (first, waiting)]
    for process in (first, waiting):
        if process.returncode != 0:
            raise ends.Failed(f"{process.args} ended with {process.returncode}")
    asked, waited = (json.loads(out) if out.strip() else {} for out in outs)
    return waited, asked


def _datagrams(host):
    """Datagrams that have left in a namespace."""
    lines = [line.split() for line in host.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Udp:")]
    lines6 = [line.split() for line in host.run("cat", "/proc/net/snmp6").splitlines()]
    v6 = sum(int(line[1]) for line in lines6 if line[0] == "Udp6OutDatagrams")
    return int(dict(zip(*lines))["OutDatagrams"]) + v6


def _exchange(path, command, count):
    """Requests on localhost of host `a`, which nothing else uses."""
    answered, asked = _pair(path, (path.a, path.a), ("answer", "ask"), command, ["--count", count])
    return {"p50": asked["p50_us"], "p99": asked["p99_us"], "ask_cpu": asked["cpu_us"],
            "answer_cpu": answered["cpu_us"]}


def _calls(programs, path, command):
    """Datagrams of both ends, and calls of the end that asks and of the one that answers, for a request. Two runs of
    different lengths, so that the start and the end do not count."""
    counted, has_perf = [], shutil.which("perf") is not None
    for count in (200, 1200):
        files = [programs.directory / f"calls-{end}" for end in ("answer", "ask")]
        prefixes = [_counting(file) for file in files] if has_perf else ((), ())
        before = _datagrams(path.a)
        _pair(path, (path.a, path.a), ("answer", "ask"), command, ["--count", count], prefixes)
        datagrams = _datagrams(path.a) - before
        calls = [calls for file in reversed(files) for calls in _read_calls(file)] if has_perf else []
        counted.append([datagrams, *calls])
    found = [(long - short) / 1000 for short, long in zip(*counted)]
    return found if has_perf else [*found, *[None] * 6]


def _counting(file):
    """Counts calls by tracepoints, because a tracer that stops the program at each call makes answers late."""
    command = ["perf", "stat", "-x", ",", "-o", str(file), "-e", _ALL_CALLS]
    for name in _SEND_CALLS + _RECEIVE_CALLS:
        command += ["-e", name, "--filter", "ret > 0"]
    return [*command, "--"]


def _read_calls(file):
    """Sends, receives that found something and all calls."""
    lines = [line.split(",") for line in file.read_text().splitlines()]
    counts = {words[2]: int(words[0]) for words in lines if len(words) > 2 and words[0].isdigit()}
    return (sum(counts.get(name, 0) for name in _SEND_CALLS), sum(counts.get(name, 0) for name in _RECEIVE_CALLS),
            counts.get(_ALL_CALLS, 0))


def _take(path, command, count, rate):
    """Records from `a` to `b`."""
    taken = _pair(path, (path.b, path.a), ("take", "send"), command, ["--count", count, "--rate", rate])
    return taken[0]
