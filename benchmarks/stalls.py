"""Stacks of many processes, and the detection of stalls: duration, delay and cost."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import BIN, CANNOT, Place, Row, limited, main, paired, span

LONGEST = 3_000
"""Milliseconds for the stacks of 64 processes."""
LATEST = 2_000
"""Milliseconds between the limit and the record of the stall."""
LIMIT = 2.0
"""Seconds of the limit."""

PROGRAM = "import threading; print('ready', flush=True); threading.Event().wait()"


def rows(place: Place) -> Iterator[Row]:
    """Measures stacks and stalls of Python programs that wait."""
    yield stacks(place, place.size(64, 2))
    yield delay(place, place.size(7, 1))
    yield from wake_ups(place, place.size(20, 1))


@contextmanager
def job(place: Place, replicas: int, *flags: str) -> Iterator[str]:
    """Runs Python programs that print a line and wait, until the block ends."""
    program = place.folder / "wait.py"
    program.write_text(PROGRAM)
    start = f"exec {BIN / 'python'} {program}"
    app_id = place.submit(*flags, "utils.sh", "--num_replicas", str(replicas), start)
    place.run(place.torchx("wait", app_id, "--for", "log:ready"))
    try:
        yield app_id
    finally:
        place.run(place.torchx("cancel", app_id))


def stacks(place: Place, processes: int) -> Row:
    """Measures the stacks of the processes of a job."""
    with job(place, processes) as app_id:
        output = place.folder / "output"
        command = place.torchx("stacks", app_id)
        status = place.torchx("status", app_id)
        times = paired(
            lambda: place.run(command, output), lambda: place.run(status, output), rounds=place.size(5, 1)
        )
    took = statistics.median(times.ours) * 1000
    what = f"`torchx stacks HANDLE` of {processes} processes"
    return limited(what, took, "ms", LONGEST, floor=f"{span(times.floor)} `torchx status`", peer=CANNOT)


def delay(place: Place, rounds: int) -> Row:
    """Measures the time between the limit and the record of a stall."""
    found = []
    for _ in range(rounds):
        with job(place, 1, "--stall", f"{LIMIT}s") as app_id:
            place.run(place.torchx("wait", app_id, "--for", "stalled"))
            (stall,) = [each for each in events(place, app_id) if each["e"] == "stalled"]
            found.append(float(str(stall["t"])) - float(str(stall["since"])) - LIMIT)
    what = "from the limit to the record of a stall"
    return limited(what, statistics.median(found) * 1000, "ms", LATEST, floor="", peer=CANNOT)


def wake_ups(place: Place, seconds: int) -> Iterator[Row]:
    """Counts how often the supervisor wakes up with and without the detection of stalls."""
    for flags, name in (((), "without `--stall`"), (("--stall", "10m"), "with `--stall 10m`")):
        with job(place, 1, *flags) as app_id:
            pid = next(each["pid"] for each in events(place, app_id) if each["e"] == "supervisor")
            before = switches(pid)
            time.sleep(seconds)
            count = switches(pid) - before
        # the measurements of replicas take one per 5 seconds
        limit = seconds / 5 + 2
        what = f"wake-ups of the supervisor {name}, during {seconds} s"
        yield limited(what, count, "", limit, floor="", peer=CANNOT)


def events(place: Place, app_id: str) -> list[dict[str, object]]:
    """Returns the recorded events of a job."""
    path = Path(place.env["TORCHX_HOME"], "jobs", app_id, "events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def switches(pid: object) -> int:
    """Returns how often a process has waited."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


if __name__ == "__main__":
    main(__doc__, rows)
