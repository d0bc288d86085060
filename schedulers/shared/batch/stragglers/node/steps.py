"""The steps of the ranks of a replica, which its agent publishes in the folder of the job.

The agent loads it as ``.node/steps.py``, with any Python 3.8.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque

from torchx.stragglers.slots import KEPT, PAGE, VARIABLE, read_page, since_last_reset

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0  # seconds between two publications, first and later
SHARE = 0.1  # of the age of the attempt
LONGEST_LINE = 1 << 16
LONGEST_SEARCH = 1.0  # seconds in some output, after which it is searched no more
RANK = re.compile(rb"\[[^\]\d]*(\d{1,9})\]:")


PATTERN = ""  # of the option; the copy in the folder of a job has its own


def begin(path: str, env: dict[str, str]) -> Steps | None:
    """Returns the steps of an attempt; None if they cannot be recorded: the program runs without.

    Args:
        path: the folder of the attempt.
        env: the environment of the program.
    """
    try:
        return Steps(path, PATTERN, env)
    except OSError:
        return None


class Steps:
    """The steps of one attempt.

    Args:
        path: the folder of the attempt.
        pattern: finds the number of a step in a line of output; empty without one.
        env: the environment of the program, which gets the place of the steps.

    Raises:
        OSError: the memory for the steps cannot be created.
    """

    def __init__(self, path: str, pattern: str, env: dict[str, str]) -> None:
        self.path = os.path.join(path, "steps")
        self.pattern = re.compile(pattern.encode()) if pattern else None
        self.lines: dict[int, deque[tuple[float, int]]] = {}
        self.rest = {1: b"", 2: b""}
        self.began = self.at = time.monotonic()
        self.last = b""
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"  # noqa: S108
        self.name = folder + "/torchx-" + str(os.getpid()) + "-" + os.urandom(8).hex()
        self.memory = os.open(self.name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(self.memory, PAGE)
        env[VARIABLE] = "0:" + self.name

    def feed(self, stream: int, data: bytes) -> None:
        """Handles output of the program."""
        if self.pattern is None:
            return
        *lines, rest = (self.rest[stream] + data).split(b"\n")
        self.rest[stream] = rest[-LONGEST_LINE:]
        now = time.monotonic()
        for line in lines:
            match = self.pattern.search(line[:LONGEST_LINE])
            number = (match and match[1]) or b""
            if number.isdigit() and len(number) < 19:
                prefix = RANK.match(line)
                rank = int(prefix[1]) if prefix else 0
                self.lines.setdefault(rank, deque(maxlen=KEPT)).append((now, int(number)))
            if time.monotonic() - now > LONGEST_SEARCH:
                self.pattern = None
                return

    def measure(self, now: float) -> None:
        """Publishes new steps if it is due."""
        if now >= self.at:
            self.at = now + min(max(SHARE * (now - self.began), FIRST_PAUSE), LONGEST_PAUSE)
            self.publish()

    def publish(self) -> None:
        """Writes the steps, by the clock of the system."""
        found = read_page(os.pread(self.memory, PAGE, 0))
        for rank, last in self.lines.items():
            found.setdefault(rank, since_last_reset(list(last)))
        ahead = time.time() - time.monotonic()
        rows = [f"{rank} {at + ahead:.6f} {step}\n" for rank, last in found.items() for at, step in last]
        data = "".join(rows).encode()
        if not found or data == self.last:
            return
        self.last = data
        try:
            descriptor = os.open(self.path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.rename(self.path + ".part", self.path)
        except OSError:
            return  # a full disk

    def close(self) -> None:
        """Publishes the last steps, and removes the memory."""
        self.publish()
        os.close(self.memory)
        try:
            os.unlink(self.name)
        except OSError:
            return  # the program has removed it
