"""The cases that run in a guest.

A case has programs, which run at the same time and must all end with status 0; settings of netem for interfaces; and a
limit of time. It can have a `path`, the settings of the network with boxes, and `measures`, where a bandwidth is found.
`guest.py` describes the networks of a guest.
"""

import sys

from box_cases import box_cases, box_points
from case import case
from gone_cases import gone_cases
from perf_cases import perf_points
from program_cases import program_cases


def all_cases(programs):
    return [
        # Guests see the files of the host, and cannot change them.
        case("host-is-read-only", 10, ["sh", "-c", "test -e /etc/passwd && ! touch /etc/written-by-a-guest"]),
        # The kernel's driver and the library see the devices.
        case("devices", 30, ["sh", "-c", "for d in rxe0 rxe1 rxe2; do ibv_devinfo -v -d $d || exit 1; done"]),
        # One thread: the tests share two processors with the kernel's driver.
        case("contract", 200, [programs["contract"], "--test-threads=1"], environment=ENVIRONMENT),
        # Soft-RoCE does not keep packets within memory windows.
        case("contract-memory-windows", 200, [programs["contract"], "--test-threads=1", *WITHOUT_BOUNDS],
             environment=ENVIRONMENT | {"FARWRITE_VERBS_MEMORY_WINDOWS": "1"}),
        case("device", 60, [programs["device"], "--test-threads=1"], environment=ENVIRONMENT),
        fails(programs, "no-permission", "chmod 600 /dev/infiniband/*", NOBODY, "may this user open"),
        fails(programs, "no-locked-memory", "chmod 666 /dev/infiniband/*", f"prlimit --memlock=65536 {NOBODY}",
              "limit of locked memory"),
        # Sockets and devices together, with loss in both directions.
        moves(programs, "udp-to-verbs-sr", SOCKETS, DEVICE, LOSS),
        moves(programs, "verbs-to-udp-sr", DEVICE, SOCKETS, LOSS),
        moves(programs, "udp-to-verbs-ec", SOCKETS, DEVICE, LOSS, "ec-mds:32,8"),
        moves(programs, "verbs-to-udp-ec", DEVICE, SOCKETS, LOSS, "ec-mds:32,8"),
        moves(programs, "udp-to-verbs-best-effort", SOCKETS, DEVICE, LOSS, "best-effort+sr"),
        moves(programs, "verbs-to-verbs-sr", LEFT, RIGHT, CABLE_LOSS),
        moves(programs, "verbs-to-verbs-ec", LEFT, RIGHT, CABLE_LOSS, "ec-mds:32,8"),
        moves(programs, "verbs-to-verbs-memory-windows", LEFT, RIGHT, CABLE_LOSS, options=["--memory-windows", "true"]),
        # The interface goes down for a second, and the messages continue.
        moves(programs, "port-down-sender", DEVICE, SOCKETS, LOSS, size=4_000_000, outage="v0"),
        moves(programs, "port-down-receiver", SOCKETS, DEVICE, LOSS, size=4_000_000, outage="v0"),
        *gone_cases(programs),
        *program_cases(programs),
        *box_cases(),
    ]


#: The cases that take at most 150 s together on two idle processors, with the start of the guest.
SHORT = [
    "host-is-read-only", "devices", "contract", "device", "no-permission", "no-locked-memory",
    "udp-to-verbs-sr", "verbs-to-udp-sr", "lowar-contents-ipv6", "plain-0.02-ipv4", "lowar-0.02-ipv4",
]
#: For tests of the crate.
ENVIRONMENT = {
    "FARWRITE_VERBS_DEVICE": "rxe0",
    "FARWRITE_VERBS_ADDRESSES": "10.1.0.1,10.1.0.2,10.1.0.3,fd01::1,fd01::2,fd01::3",
    "FARWRITE_VERBS_STRANGERS": "10.1.0.9,fd01::9",
}
#: Options that leave out tests of the contract suite: those that write beyond a window.
WITHOUT_BOUNDS = [f"--skip={name}" for name in ("bounds", "straddling")]
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
#: Ends of a move: the options of the example `move`, and the namespace.
SOCKETS = {"options": ["--udp", "10.1.0.9:4791"], "namespace": "peer"}
DEVICE = {"options": ["--device", "rxe0", "--address", "10.1.0.1"], "namespace": None}
LEFT = {"options": ["--device", "rxe1"], "namespace": None}
RIGHT = {"options": ["--device", "rxe2"], "namespace": None}
#: netem of both interfaces of a network.
LOSS = dict.fromkeys(["v0", "p0"], "loss 1% delay 2ms 1ms")
CABLE_LOSS = dict.fromkeys(["w0", "w1"], "loss 1% delay 2ms 1ms")


#: Waits until the device has carried a thousand packets, of sixteen thousand.
WHILE_MOVING = (
    "carried() { cd /sys/class/infiniband/rxe0/ports/1/hw_counters; echo $(($(cat sent_pkts) + $(cat rcvd_pkts))); }; "
    "before=$(carried); while [ $(carried) -lt $((before + 1000)) ]; do sleep 0.1; done"
)


def moves(programs, name, sender, receiver, netem, scheme="sr-nack", size=500_000, outage=None, options=()):
    """Move four messages. netem delays packets by different times, so they also change their order."""
    address = {"peer": "10.1.0.9", None: "10.1.0.1" if sender["namespace"] else "127.0.0.1"}[receiver["namespace"]]
    shape = ["--scheme", scheme, "--bytes", str(size), "--messages", "4", *options]
    ends = [
        {
            "command": [programs["move"], verb, "--meet", f"{address}:7000", *end["options"], *shape],
            "namespace": end["namespace"],
        }
        for verb, end in (("recv", receiver), ("send", sender))
    ]
    if outage:
        ends.append(["sh", "-ec", f"{WHILE_MOVING}; ip link set {outage} down; sleep 1; ip link set {outage} up"])
    return case(name, 60, *ends, netem=netem)


def fails(programs, name, first, prefix, text):
    """Return a case with a program that opens a device, after the command `first`, and must end with an error that
    has this text."""
    move = f"{prefix} {programs['move']} recv --meet 127.0.0.1:7000 --device rxe0"
    script = f"{first}; if {move} >/tmp/{name} 2>&1; then exit 1; fi; cat /tmp/{name}; grep --quiet '{text}' /tmp/{name}"
    return case(name, 20, ["sh", "-ec", script])


def choose(programs, names, short):
    """Return the cases with these names, those of `SHORT`, or without names all that are not only in figures."""
    every, points = all_cases(programs), all_points(programs)
    known = {case["name"]: case for case in [*points, *every]}
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no case is named {', '.join(sorted(unknown))}; cases are {', '.join(known)}")
    return [known[name] for name in (SHORT if short else names)] or every


def all_points(programs):
    return [*box_points(), *perf_points(programs)]


def repeated(chosen, runs):
    """Return cases one after the other, and all of them again, so that each meets all states of a busy machine."""
    return [case | {"name": f"{case['name']}-run{run}"} for run in range(runs) for case in chosen]
