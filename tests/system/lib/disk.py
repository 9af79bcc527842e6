"""A disk with faults: `farwrite-disk` (tests/system/disk), mounted while a `with` block runs."""

import subprocess


class DiskFailed(Exception):
    """The disk could not be mounted, or did not take a command."""


class Disk:
    """What a program writes at `path` lies in `backing`, where a test finds it without the disk's
    faults. `traits` are options of `farwrite-disk`.

    The disk has to go before the programs that use it are waited for: a program cannot end, even
    when it is killed, while an operation of its own waits. Operations fail once the disk is
    gone."""

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
        # The disk unmounts itself at the end of its input, and also where the tests are killed.
        self.process.communicate(timeout=60)

    def block(self, operation, path_part=""):
        """Makes an operation wait. Here and below `path_part` limits the fault to paths that
        contain it."""
        self._do("block", operation, path_part)

    def slow(self, operation, bytes_per_s, path_part=""):
        """Makes an operation take as long as its bytes take at a rate."""
        self._do("slow", operation, bytes_per_s, path_part)

    def fail(self, operation, errno, path_part=""):
        """Makes an operation fail."""
        self._do("fail", operation, errno, path_part)

    def heal(self, operation):
        """Ends the fault of an operation; what waits goes on."""
        self._do("heal", operation)

    def waiting(self, operation):
        """How many of an operation the disk holds up now."""
        return int(self._ask("waiting", operation))

    def _do(self, *words):
        answer = self._ask(*words)
        if answer != "ok":
            raise DiskFailed(f"{words}: {answer}")

    def _ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()
