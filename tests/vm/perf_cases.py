"""perftest over a reliable connection of the kernel, beside schemes of this repository over an unreliable one.

All are between `rxe1` and `rxe2`, over the same path.
"""

from box_cases import MEASURES, MTU, writes
from case import case

ADDRESSES = ("10.2.0.1", "10.2.0.2")
#: Bytes that a scheme moves, in messages that are all posted at once.
MESSAGES, MESSAGE_BYTES = 16, 250_000
#: That of the path without headers. The reliable connection has no rate control either.
RATE_BPS = 3_600_000


def perf_points(programs):
    """Return the cases of the figure SV."""
    return [
        point
        for loss in (0, 0.001, 0.01)
        for point in (reliable(loss), *(moved(programs, scheme, loss) for scheme in ("sr-nack", "ec-mds:32,8")))
    ]


def path(loss):
    """Return netem of both interfaces. The rate is so low because erasure codes take long in an emulated processor."""
    return dict.fromkeys(["w0", "w1"], f"delay 10ms loss {100 * loss:g}% rate 4mbit limit 20000")


def reliable(loss):
    ends = writes("rxe1", "rxe2", ADDRESSES, in_flight=4)
    return case(
        f"perftest-{loss:g}", 60, *ends, netem=path(loss), measures=MEASURES, point=place("ib_write_bw, RC", loss),
    )


def moved(programs, scheme, loss):
    shape = ["--scheme", scheme, "--bytes", str(MESSAGE_BYTES), "--messages", str(MESSAGES), "--mtu", str(MTU)]
    shape += ["--rate", str(RATE_BPS)]
    ends = [
        [programs["move"], verb, "--meet", "127.0.0.1:7000", "--device", device, *shape]
        for verb, device in (("recv", "rxe2"), ("send", "rxe1"))
    ]
    return case(
        f"{scheme.split(':')[0]}-{loss:g}", 90, *ends, netem=path(loss), measures={"program": 1},
        point=place(scheme, loss),
    )


def place(series, loss):
    return {"figure": "SV", "panel": "20 ms", "series": series, "x": loss}
