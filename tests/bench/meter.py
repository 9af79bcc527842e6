"""Bytes of flows per second, as the kernel of host `b` counts them."""

import json
import threading
import time


class Meter:
    """Counts packets to ports of `b` while the `with` block runs. A flow is a pair (protocol,
    port)."""

    def __init__(self, host, flows, period=0.5):
        self.host = host
        self.flows = flows
        self.period = period
        self.samples = []
        self.over = threading.Event()

    def __enter__(self):
        rules = [f"add counter inet flows {_name(flow)}" for flow in self.flows]
        rules += [f"add rule inet flows in {protocol} dport {port} counter name "
                  f"{_name((protocol, port))}" for protocol, port in self.flows]
        self.host.run("nft", "; ".join(["add table inet flows", "add chain inet flows in "
                                        "{ type filter hook input priority 0; }", *rules]))
        self.start = time.monotonic()
        self.thread = threading.Thread(target=self._sample)
        self.thread.start()
        return self

    def _sample(self):
        while True:
            listed = json.loads(self.host.run("nft", "-j", "list", "counters"))["nftables"]
            counts = {entry["counter"]["name"]: entry["counter"]["bytes"] for entry in listed
                      if "counter" in entry}
            self.samples.append((time.monotonic() - self.start,
                                 [counts[_name(flow)] for flow in self.flows]))
            if self.over.wait(self.period):
                return

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def rates(self, begin, end):
        """Returns the mean bits per second of each flow between two times since the start."""
        inside = [sample for sample in self.samples if begin <= sample[0] <= end]
        if len(inside) < 2:
            return [0.0] * len(self.flows)
        (first, before), (last, after) = inside[0], inside[-1]
        return [8 * (b - a) / (last - first) for a, b in zip(before, after)]

    def first_at_least(self, flow, rate, begin):
        """Returns the seconds from `begin` to the end of the first second in which a flow had a
        rate; `None` if there is none."""
        ends = (at for at, mean in self._seconds(flow, begin, self.samples[-1][0]) if mean >= rate)
        return next((at - begin for at in ends), None)

    def last_below(self, flow, rate, begin, end):
        """Returns the seconds from `begin` to the end of the last second before `end` in which a
        flow had less than a rate: 0 if there is none, `None` if it is the last one."""
        means = list(self._seconds(flow, begin, end))
        if not means or means[-1][1] < rate:
            return None
        return max((at - begin for at, mean in means if mean < rate), default=0.0)

    def _seconds(self, flow, begin, end):
        """Yields the end and the mean rate of each second between two times, one per sample."""
        for at, _ in self.samples:
            # Samples are not taken at exact times. Half a period more keeps the window a second.
            if begin + 1.0 <= at <= end:
                yield at, self.rates(at - 1.0 - self.period / 2, at)[flow]


def _name(flow):
    return "_".join(map(str, flow))
