"""Compares the steps of all ranks of a job, and writes their progress to the folder of the job.

The script of the job starts it: ``stragglers.py FOLDER PROCESS``. It ends with that process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from torchx.stragglers.watch import Watch

PAUSE = 2.0  # seconds between two comparisons
POLL = 0.5  # seconds between two looks at the process of the script
SHARE = 0.05  # the largest share of the time that reading takes
SKEW = 0.2  # seconds by which the clocks of two nodes may differ
LARGEST = 1 << 20


STEPS = 0  # of the option; the copy in the folder of a job has its own values
ROLES: list[tuple[str, str, int]] = []  # the name, the folder and the number of replicas of each role
REPORTS = ".stragglers"  # the file with the reports of all runs, a line each


def read(path: str) -> list[str]:
    """Returns the lines of a small file; none if it is missing."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(LARGEST).splitlines()
    except (OSError, ValueError):
        return []


def beats_of(place: str) -> dict[int, list[tuple[float, int]]] | None:
    """Returns the last steps of a replica, by local rank; None if it does not run."""
    try:
        numbers = [
            int(name[8:]) for name in os.listdir(place) if name[:8] == "attempt-" and name[8:].isdigit()
        ]
    except OSError:
        return None
    if not numbers:
        return None
    path = os.path.join(place, "attempt-" + str(max(numbers)))
    if os.path.exists(os.path.join(path, "end.json")):
        return None
    found: dict[int, list[tuple[float, int]]] = {}
    for line in read(os.path.join(path, "steps")):
        try:
            rank, at, step = line.split()
            found.setdefault(int(rank), []).append((float(at), int(step)))
        except ValueError:  # damaged
            continue
    return found


class Job:
    """The replicas of a job, and the comparison of their ranks.

    Args:
        folder: the folder of the job.
    """

    def __init__(self, folder: str) -> None:
        members = [(role, place, n) for role, place, count in ROLES for n in range(count)]
        self.places = [os.path.join(folder, place, str(n)) for _, place, n in members]
        self.path, self.reports = os.path.join(folder, "steps.json"), os.path.join(folder, REPORTS)
        rows = [line.split(" ", 2) for line in read(self.reports)]
        reports = [{"at": float(at), "replica": int(n), "message": text} for at, n, text in rows]
        self.watch = Watch([(role, n) for role, _, n in members], STEPS, SKEW, reports)
        self.known: set[int] = set()
        self.last = b""

    def compare(self) -> None:
        """Compares the ranks of the running replicas; after the end of all, their last steps are kept."""
        found = {ordinal: beats_of(place) for ordinal, place in enumerate(self.places)}
        running = {ordinal: beats for ordinal, beats in found.items() if beats is not None}
        if not running:
            return
        for ordinal in self.known - set(running):
            self.watch.forget(ordinal)
        self.known = set(running)
        now = time.time()
        new = self.watch.update({ordinal: beats for ordinal, beats in running.items() if beats}, now)
        if new:
            lines = [*read(self.reports), *(f"{now:.3f} {ordinal} {text}" for ordinal, text in new)]
            write(self.reports, ("\n".join(lines) + "\n").encode())
        data = json.dumps(self.watch.data()).encode()
        if data != self.last and b'"role"' in data:
            self.last = data
            write(self.path, data)


def follow(job: Job, alive: Callable[[], bool]) -> None:
    """Compares the ranks of a job until its script has ended."""
    next_at = 0.0
    while alive():
        time.sleep(POLL)
        now = time.monotonic()
        if now >= next_at:
            job.compare()
            next_at = now + max(PAUSE, (time.monotonic() - now) / SHARE)


def write(path: str, data: bytes) -> None:
    """Writes a private file whole or not at all."""
    try:
        descriptor = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.rename(path + ".part", path)
    except OSError:
        return  # a full disk


def start_of(pid: str) -> str:
    """Returns the time at which a process has started; empty for none."""
    try:
        with open("/proc/" + pid + "/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


if __name__ == "__main__":
    job, script = sys.argv[1:3]
    begun = start_of(script)
    follow(Job(job), lambda: bool(begun) and start_of(script) == begun)
