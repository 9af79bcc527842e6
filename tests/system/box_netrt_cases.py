"""What `farwrite netrt` adds to other boxes: repeats that leave before waiting data, and a pause of the
NIC while many packets are repeated."""

import time

from lib.chain import Chain
from lib.rig import LOSS, METRICS, NETRT, Rig


def run(report, programs, directory):
    for title, case in _CASES.items():
        with report.case(f"boxes, NetRT: {title}"):
            case(report, Rig(programs, directory))


#: The NIC may have this number of packets unacknowledged. At 50 Mbit/s they take 0.1 s.
WINDOW = 600
#: Queues of a path of 50 Mbit/s at the box of the NIC: a short one in the kernel, so that packets wait
#: in the box; and a long one that prefers frames with a high priority.
QUEUES = {
    "in the box": [("root", "tbf", "rate", "50mbit", "burst", "20kb", "limit", "22kb")],
    "in the kernel": [
        ("root", "handle", "1:", "tbf", "rate", "50mbit", "burst", "20kb", "limit", "2mb"),
        ("parent", "1:1", "handle", "10:", "pfifo_fast"),
    ],
}


def _ahead(report, rig):
    """Packets queue up behind the box of the NIC for far longer than the other box waits for a
    repeat. Nothing pauses the NIC, so only repeats that overtake them arrive in time."""
    for place, queues in QUEUES.items():
        with Chain() as chain:
            for queue in queues:
                chain.near_a.run("tc", "qdisc", "add", "dev", "far", *queue)
            chain.lose(LOSS)
            with rig.boxes(chain, *NETRT, "--pool", "4MB", "--no-backpressure",
                           kind="netrt") as boxes:
                wrong, (sender, _) = rig.send(chain, timeout_ms=1000, window=WINDOW)
            repeated, recovered = boxes[0]["repeated"], boxes[1]["recovered"]
            report.check(f"packets wait {place}: all arrives", wrong)
            report.check(f"packets wait {place}: repeats overtake them",
                         None if recovered > 10 and boxes[1]["given_up"] < recovered / 4
                         else f"{boxes}, {sender}, {repeated}")


#: Drops 40 packets in a row, more than 20 KB. The NIC is paused from 20 KB of requested packets on. The
#: number is prime, so that a NIC that goes back does not lose the same packets again.
BURSTS = "udp dport 4791 numgen inc mod 397 < 40 drop"
#: Counters that do not change any more when the NICs are done, of the box beside the sender and of
#: the one beside the receiver.
FINAL = (("copied", "repeated", "requests_received", "request_pauses"),
         ("recovered", "requests_sent", "held"))


def _paused(report, rig):
    """The box pauses the NIC because of requests alone. Both boxes show in Prometheus text what they
    have counted."""
    with Chain() as chain:
        chain.lose(BURSTS)
        options = [*NETRT, "--no-backpressure", "--metrics", METRICS]
        with rig.boxes(chain, *options, kind="netrt") as boxes:
            wrong, (sender, _) = rig.send(chain)
            # A report of the bridge is at most 100 ms old.
            time.sleep(0.3)
            texts = [rig.metrics(host) for host in (chain.near_a, chain.near_b)]
        report.check("all arrives", wrong)
        report.check("PFC frames pause the NIC, which obeys them",
                     None if sender["paused"] > 0 and boxes[0]["request_pauses"] > 0
                     else f"{sender}, {boxes[0]}")
        report.check("bursts are repeated by the boxes",
                     None if boxes[1]["recovered"] > 100 else f"{boxes}")
        for name, text, counters, names in zip(("sender", "receiver"), texts, boxes, FINAL):
            lines = [f"farwrite_netrt_{counter}_total {counters[counter]}" for counter in names]
            missing = [line for line in lines if line not in text.splitlines()]
            report.check(f"Prometheus text of the box of the {name} has its counters",
                         f"no {missing} in {text}" if missing else None)


_CASES = {
    "repeats before waiting data": _ahead,
    "a pause because of requests": _paused,
}
