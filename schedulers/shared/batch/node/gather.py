"""Keeps the logs of attempts on the disk of their node, and copies them to the folder of the job.

The agents of replicas load it as ``.node/gather.py``. At the end of a job with failures, the script runs it
on each node, for the logs of agents that were killed.
"""

import os
import sys
import time
from typing import Any

GATHER_EVERY = 5.0  # seconds after which logs on the node's disk are copied again
TARGET = ".target"  # the file with the path of the copy


class Gathered:
    """The logs of one attempt on the disk of this node, and their copy in the folder of the job.

    Args:
        folder: the folder on the node; that of the attempt, if it cannot be created.
        target: the folder of the attempt, which gets the copy.
    """

    FILES = ("stdout.log", "stderr.log", "combined.log", "log.index")  # the index last: it refers to the log

    def __init__(self, folder: str, target: str) -> None:
        self.folder, self.target = folder, target
        self.copied = {}  # type: dict[str, int]
        self.at = time.monotonic()

    def is_due(self, now: float, ending: bool) -> bool:
        """Returns True if new output should be copied; soon after a signal, since a kill may follow."""
        return now > self.at + (GATHER_EVERY / 10 if ending else GATHER_EVERY)

    def copy(self) -> bool:
        """Appends new output to the files in the folder of the job; returns True if all is there."""
        self.at = time.monotonic()
        if self.folder == self.target:
            return True
        try:
            # sizes first, in this order, so that the copied index never refers to output that is not copied
            ends = {name: os.path.getsize(os.path.join(self.folder, name)) for name in reversed(self.FILES)}
            for name in self.FILES:
                self.copy_file(name, ends[name])
        except OSError as error:
            warn("cannot gather the logs: " + str(error.strerror) + ": " + self.target)
            return False
        return True

    def copy_file(self, name: str, end: int) -> None:
        """Appends the bytes that the copy of a file lacks, up to a size."""
        if self.copied.get(name) == end:
            return
        source = os.open(os.path.join(self.folder, name), os.O_RDONLY)
        target = os.open(os.path.join(self.target, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            at = os.fstat(target).st_size
            while at < end:
                at += os.write(target, os.pread(source, min(1 << 20, end - at), at))
            self.copied[name] = end
        finally:
            os.close(source)
            os.close(target)

    def finish(self) -> None:
        """Copies the rest, and removes the files from the node's disk if all of them are copied."""
        if not self.copy() or self.folder == self.target:
            return
        try:
            for name in (*self.FILES, TARGET):
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)
        except OSError as error:  # the end of the replica is recorded all the same
            warn("cannot remove " + self.folder + ": " + str(error.strerror))


def on_node(root: str, target: str) -> Gathered:
    """Returns the logs of an attempt that begins, on the disk of this node if possible.

    Args:
        root: the folder on the node.
        target: the folder of the attempt.
    """
    try:
        os.makedirs(root, 0o700, exist_ok=True)
        folder = os.path.join(root, "torchx-" + str(os.getpid()) + "-" + str(time.time()))
        os.mkdir(folder, 0o700)
        with os.fdopen(os.open(os.path.join(folder, TARGET), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(target)
        return Gathered(folder, target)
    except OSError as error:
        warn("cannot write logs to " + root + ": " + str(error.strerror))
        return Gathered(target, target)


def warn(text: str) -> None:
    """Writes a message to the output of the job."""
    sys.stderr.write("torchx: " + text + "\n")
    sys.stderr.flush()


def left_by_killed_agents(job: str, root: str) -> Any:
    """Yields the logs of a job that are left on the disk of this node, after its agents have ended."""
    try:
        names = sorted(name for name in os.listdir(root) if name.startswith("torchx-"))
    except OSError:
        return
    for name in names:
        folder = os.path.join(root, name)
        try:
            if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
                continue
            with open(os.path.join(folder, TARGET)) as file:
                target = file.read()
        except OSError:
            continue  # of another user, or removed meanwhile
        if target.startswith(job + os.sep) and os.pardir not in target.split(os.sep):
            yield Gathered(folder, target)


if __name__ == "__main__":
    for each in left_by_killed_agents(sys.argv[1], sys.argv[2]):
        each.finish()
