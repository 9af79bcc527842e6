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
        means = self._means(flow, begin, self.samples[-1][0], 1.0)
        return next((end - begin for _, end, mean in means if mean >= rate), None)

    def back_at(self, flow, rate, begin, window):
        """Returns the seconds from `begin` to the start of the first `window` seconds in which a
        flow had a rate; `None` if there are none. It is as exact as the period of the samples."""
        means = self._means(flow, begin, self.samples[-1][0], window)
        return next((start - begin for start, _, mean in means if mean >= rate), None)

    def last_below(self, flow, rate, begin, end):
        """Returns the seconds from `begin` to the end of the last second before `end` in which a
        flow had less than a rate: 0 if there is none, `None` if it is the last one."""
        means = list(self._means(flow, begin, end, 1.0))
        if not means or means[-1][2] < rate:
            return None
        return max((at - begin for _, at, mean in means if mean < rate), default=0.0)

    def _means(self, flow, begin, end, window):
        inside = [(at, counts[flow]) for at, counts in self.samples if begin <= at <= end]
        return windows(inside, window)


def windows(samples, seconds):
    """Yields the start, the end and the mean bits per second of each span of `samples` of at least
    these seconds: one span per sample, and the shortest that ends there. A sample is a time and a
    count of bytes.

    A flow of 8 bit/s stops from 1.0 s to 1.4 s. A long span shows less exactly when it is back:

    >>> samples = [(t / 10, max(min(t, 10), t - 4) / 10) for t in range(31)]
    >>> def back(seconds):
    ...     spans = windows([s for s in samples if s[0] >= 1.0], seconds)
    ...     return next(round(start, 1) for start, _, mean in spans if mean >= 0.85 * 8)
    >>> back(0.2), back(1.0)
    (1.4, 1.3)
    >>> [round(mean, 1) for _, _, mean in windows(samples, 1.0)][:6]
    [8.0, 7.2, 6.4, 5.6, 4.8, 4.8]
    >>> list(windows([(0.0, 0), (0.9, 5)], 1.0))
    []
    """
    first = 0
    for at, count in samples:
        # Sums of times are not exact.
        while first + 1 < len(samples) and samples[first + 1][0] <= at - seconds + 1e-9:
            first += 1
        start, before = samples[first]
        if at - start >= seconds - 1e-9:
            yield start, at, 8 * (count - before) / (at - start)


def _name(flow):
    return "_".join(map(str, flow))
