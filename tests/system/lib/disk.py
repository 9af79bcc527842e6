"""A disk with faults: `farwrite-disk` (tests/system/disk), mounted while a `with` block runs."""

import subprocess


class DiskFailed(Exception):
    """The disk could not be mounted, or did not take a command."""


class Disk:
    """A mounted disk. Files that a program writes at `path` are stored in `backing`, where a test
    can read them without the disk's faults. `traits` are options of `farwrite-disk`.

    Remove the disk before waiting for the programs that use it. A program cannot end while one of
    its operations waits, even if it is killed. When the disk is gone, such operations fail."""

    def __init__(self, program, where, *traits):
        self.command = [program, *traits]
        self.path = where / "disk"
        self.backing = where / "backing"
        self.process = None

    def __enter__(self):
        self.path.mkdir(parents=True)
        self.backing.mkdir()
        self.process = subprocess.Popen([*self.command, str(self.backing), str(self.path)],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        if self.process.stdout.readline() != "ready\n":
            raise DiskFailed(self.process.communicate(timeout=60)[1].strip())
        return self

    def __exit__(self, *_):
        # The disk unmounts itself at the end of its input. This also happens if the tests are
        # killed.
        self.process.communicate(timeout=60)

    def block(self, operation, path_part=""):
        """Block an operation. Here and in the next methods, `path_part` limits the fault to paths
        that contain it."""
        self._do("block", operation, path_part)

    def slow(self, operation, bytes_per_s, path_part=""):
        """Slow an operation down to a rate."""
        self._do("slow", operation, bytes_per_s, path_part)

    def fail(self, operation, errno, path_part=""):
        self._do("fail", operation, errno, path_part)

    def heal(self, operation):
        """End the fault of an operation. Blocked operations continue."""
        self._do("heal", operation)

    def waiting(self, operation):
        """Return the number of calls of an operation that the disk holds now."""
        return int(self._ask("waiting", operation))

    def _do(self, *words):
        answer = self._ask(*words)
        if answer != "ok":
            raise DiskFailed(f"{words}: {answer}")

    def _ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()
