"""Cases of unmodified RDMA through boxes: reliable connections of the kernel, perftest and rping of Debian.

Those with a `point` also belong to a figure: its name, panel and series, and the place on the x axis.
"""

import ipaddress

from case import case

#: The addresses of `rxe3` and `rxe4`.
ADDRESSES = {4: ("10.3.0.1", "10.3.0.2"), 6: ("fd03::1", "fd03::2")}
#: Of a bandwidth test, which measures all of its time but a second at each end.
SECONDS = 10
MESSAGE_BYTES = 16384
MTU = 1024
#: Of the path between the boxes. It is so low that the speed of the emulated machine matters little.
RATE = "8mbit"

#: Packets come slowly, so a block lasts longer than with the default hold time.
LOWAR = {"box": "lowar", "options": ["--hold", "40ms"]}
LOWAR_8_1 = {"box": "lowar", "options": ["--hold", "40ms", "--coding", "8,1"]}
NETRT = {"box": "netrt", "options": ["--rate", "8Mbit", "--rtt", "40ms", "--hold", "200ms", "--pool", "1MB"]}
WAYS = {
    "plain": ({"box": None, "options": []}, "no box"),
    "lowar": (LOWAR, "LoWAR, adaptive"),
    "lowar-8-1": (LOWAR_8_1, "LoWAR(8, 1)"),
    "netrt": (NETRT, "NetRT"),
}


def box_cases():
    verified = [contents(name, 0.02, version) for name in ("lowar", "netrt") for version in (4, 6)]
    measured = [bandwidth(name, loss) for loss in (0.005, 0.02) for name in ("plain", "lowar", "netrt")]
    return [*verified, *measured, bandwidth("lowar", 0.02, 6)]


def box_points():
    """Return the cases of the figure LV."""
    return [bandwidth(name, loss) for loss in (0, 0.005, 0.02) for name in WAYS]


def contents(name, loss, version):
    """Both ends of rping check each byte that SEND, READ and WRITE have moved."""
    left, right = ADDRESSES[version]
    shape = "-V -C 6 -S 40000"
    listening = "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done"
    return case(
        f"{name}-contents-ipv{version}", 60, ["sh", "-c", f"rping -s -a {right} {shape}"],
        ["sh", "-c", f"{listening}; rping -c -I {left} -a {right} {shape}"],
        netem=path(loss), path=WAYS[name][0] | {"repairs": True},
    )


def bandwidth(name, loss, version=4):
    """Return a case of writes of a reliable connection, for `SECONDS`."""
    way, series = WAYS[name]
    # 64 KiB are under way, while a round trip carries 40 KB.
    ends = writes("rxe3", "rxe4", ADDRESSES[version], in_flight=4)
    return case(
        f"{name}-{loss:g}-ipv{version}", 60, *ends, netem=path(loss), path=way | {"repairs": loss > 0},
        measures=MEASURES,
        point={"figure": "LV", "panel": f"IPv{version}", "series": series, "x": loss},
    )


def path(loss):
    """Return netem of both ends of the path: 20 ms each way."""
    return dict.fromkeys(["f0", "f1"], f"delay 20ms loss {100 * loss:g}% rate {RATE} limit 20000")


MEASURES = {"program": 1, "messages_of": MESSAGE_BYTES, "seconds": SECONDS - 2}


def writes(left, right, addresses, in_flight):
    """Return the commands of the two ends of a bandwidth test of perftest. `in_flight`: its messages in flight."""
    return perftest(right, addresses[1], in_flight), perftest(left, addresses[0], in_flight, "127.0.0.1")


def gid(address):
    """Return the identifier of a device's address, as the kernel writes it."""
    address = ipaddress.ip_address(address)
    return (address if address.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")).exploded


def perftest(device, address, in_flight, server=""):
    """Return the command of one end of a bandwidth test. perftest needs the index of the identifier, and does not
    wait for its server."""
    identifiers = f"/sys/class/infiniband/{device}/ports/1/gids"
    test = (
        f"ib_write_bw --ib-dev={device} --gid-index=$index --mtu={MTU} --size={MESSAGE_BYTES} --tx-depth={in_flight} "
        f"-F --qp-timeout=17 --duration={SECONDS} --margin=1 {server}"
    )
    listening = "until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done; " if server else ""
    return ["sh", "-ec", f"index=$(basename $(grep -l {gid(address)} {identifiers}/*)); {listening}{test}"]
