"""Transfers of a file between the ends of a `Nat`."""

import random

from .ends import Ends

PORT = 4792


class Transfer:
    """One file from `a` to `b` of a `Nat`, sent to an address that `a` can reach. The paths of all tests have the same
    addresses, so only a sender that `learns` keeps what it finds."""

    def __init__(self, nat, program, where, to, *more, size=3_000_000, patience=20, learns=False):
        where.mkdir(exist_ok=True)
        self.file = where / "file"
        self.file.write_bytes(random.Random(size).randbytes(size))
        self.inbox = where / "in"
        self.inbox.mkdir()
        self.ends = Ends(program, where, patience)
        self.receiver = self.ends.recv(self.inbox, "--once", at=f"0.0.0.0:{PORT}", host=nat.b)
        cache = [] if learns else ["--no-path-cache"]
        self.sender = self.ends.send(to, *cache, *more, self.file, host=nat.a)

    def finish(self, seconds=120):
        """Wait for both ends. Return what went wrong, and the sender's result."""
        with self.ends:
            sent = self.sender.end(seconds)
            problems = sent.problems("send", 0)
            problems += self.receiver.end(seconds).problems("recv", 0)
        if not problems and (self.inbox / "file").read_bytes() != self.file.read_bytes():
            problems.append("other bytes arrived")
        return problems, sent.outcomes[-1].get("result") if sent.outcomes else None
