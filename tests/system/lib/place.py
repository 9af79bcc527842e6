"""Transfers of the `farwrite` program between directories of one case."""

import random

from lib.disk import Disk
from lib.ends import Ends

# Time for which an end waits for a silent peer here, in seconds. Each end sends something every
# second, but a busy machine may delay it.
TIMEOUT = 3
# Maximum time until an end knows of an event at the other end, in seconds: the timeout, with room
# for a busy machine. Disks stay blocked for longer, so an end that waits for its disk exceeds it.
SOON = 20
PORT = 4792


class Place:
    """The directory of one case, with the programs that it uses."""

    def __init__(self, programs, where):
        self.where = where
        self._program = str(programs / "farwrite")
        self._disk = str(programs / "farwrite-disk")

    def ends(self, timeout=TIMEOUT):
        """Return both ends of transfers (see `Ends`)."""
        return Ends(self._program, self.where, timeout)

    def disk(self, name, *traits):
        """Return a disk with faults (see `Disk`)."""
        return Disk(self._disk, self.where / name, *traits)

    def file(self, name, size):
        """Make a file to send."""
        path = self.where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
        return path

    def inbox(self, name="inbox"):
        """Make a directory to receive into."""
        path = self.where / name
        path.mkdir()
        return path


def differs(sent, received):
    if not received.is_file():
        return [f"{received.name} did not arrive"]
    same = sent.read_bytes() == received.read_bytes()
    return [] if same else [f"{received.name} has other bytes than were sent"]


def parts(directory):
    return [path.name for path in directory.rglob("*.part")]


def both_ended(receiver, sender, codes=(0, 0)):
    """Return the results of both ends, and what is wrong with them. `codes` are the expected exit
    statuses of receiver and sender."""
    received, sent = receiver.end(), sender.end()
    problems = received.problems("recv", codes[0]) + sent.problems("send", codes[1])
    return received, sent, problems
