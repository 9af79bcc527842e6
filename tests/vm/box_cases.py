"""Cases of unmodified RDMA through boxes: reliable connections of the kernel, perftest and rping of Debian."""

import ipaddress

from case import case

#: Half of the round trip between the devices.
DELAY = dict.fromkeys(["e0", "e1"], "delay 5ms limit 20000")
#: The addresses of `rxe3` and `rxe4`.
ADDRESSES = {4: ("10.3.0.1", "10.3.0.2"), 6: ("fd03::1", "fd03::2")}
#: Of a bandwidth test, which measures all of its time but a second at each end.
SECONDS = 8
MESSAGE_BYTES = 65536
MTU = 1024

#: The hold time is above the round trip that a repeat takes, and far below the ACK timeout of the NICs.
LOWAR = {"box": "lowar", "options": ["--hold", "20ms"]}
NETRT = {"box": "netrt", "options": ["--rate", "1Gbit", "--rtt", "10ms", "--hold", "100ms", "--bitmap", "4096"]}
PLAIN = {"box": None, "options": []}
WAYS = {"plain": PLAIN, "lowar": LOWAR, "netrt": NETRT}


def box_cases():
    verified = [
        contents(f"{name}-contents-ipv{version}", WAYS[name], 0.02, version)
        for name in ("lowar", "netrt")
        for version in (4, 6)
    ]
    measured = [bandwidth(name, loss) for loss in (0, 0.005, 0.02) for name in WAYS]
    return [*verified, *measured, bandwidth("lowar", 0.02, 6)]


def contents(name, way, loss, version):
    """Both ends of rping check each byte that SEND, READ and WRITE have moved."""
    left, right = ADDRESSES[version]
    shape = "-V -C 15 -S 60000"
    client = f"until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done; rping -c -I {left} -a {right} {shape}"
    return case(
        name, 40, ["sh", "-c", f"rping -s -a {right} {shape}"], ["sh", "-c", client],
        netem=DELAY, path=way | {"loss": loss},
    )


def bandwidth(name, loss, version=4):
    """Writes of a reliable connection, for `SECONDS`."""
    left, right = (gid(address) for address in ADDRESSES[version])
    return case(
        f"{name}-{loss:g}-ipv{version}", 60, perftest("rxe4", right), perftest("rxe3", left, "127.0.0.1"),
        netem=DELAY, path=WAYS[name] | {"loss": loss},
        measures={"log": 1, "bytes": MESSAGE_BYTES, "seconds": SECONDS - 2},
    )


def gid(address):
    """The identifier of a device's address, as the kernel writes it."""
    address = ipaddress.ip_address(address)
    return (address if address.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")).exploded


def perftest(device, own, server=""):
    """One end of a bandwidth test. perftest needs the index of the identifier, and does not wait for its server."""
    identifiers = f"/sys/class/infiniband/{device}/ports/1/gids"
    test = (
        f"ib_write_bw --ib-dev={device} --gid-index=$index --mtu={MTU} --size={MESSAGE_BYTES} --tx-depth=16 -F "
        f"--qp-timeout=17 --duration={SECONDS} --margin=1 {server}"
    )
    listening = "until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done; " if server else ""
    return ["sh", "-ec", f"index=$(basename $(grep -l {own} {identifiers}/*)); {listening}{test}"]
