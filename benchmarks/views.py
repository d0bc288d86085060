"""Duration and size of the views of applications with many replicas."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from measure import CANNOT, Place, Row, limited, main, paired, span

SLOWEST, LARGEST = 2_000, 3.0
"""Milliseconds and megabytes of a report."""
SLOWEST_ANSWER, LARGEST_ANSWER = 300, 4.0
"""Milliseconds and kilobytes of an explanation."""
MOST_CPU = 5.0
"""Percent of a core that the live view may use."""


def rows(place: Place) -> Iterator[Row]:
    """Measures views of 1,000 replicas."""
    replicas = place.size(1000, 5)
    yield from report(place, replicas)
    yield top(place, replicas, place.size(30, 2))
    yield from why(place, place.size(64, 4))


def report(place: Place, replicas: int) -> Iterator[Row]:
    """Measures a report of an ended application: its duration and its size."""
    app_id = place.submit("utils.sh", "--num_replicas", str(replicas), "sleep 3")
    place.run(place.torchx("log", "--follow", app_id))
    page, output = place.folder / "run.html", place.folder / "output"
    command = place.torchx("report", app_id, "-o", str(page))
    describe = place.torchx("describe", app_id, "-o", "json")
    times = paired(
        lambda: place.run(command, output), lambda: place.run(describe, output), rounds=place.size(5, 1)
    )
    what = f"`torchx report HANDLE` of {replicas:,} replicas"
    took = sorted(times.ours)[len(times.ours) // 2] * 1000
    yield limited(what, took, "ms", SLOWEST, floor=f"{span(times.floor)} `describe -o json`", peer=CANNOT)
    yield limited("its page", page.stat().st_size / 1e6, "MB", LARGEST, floor="", peer=CANNOT)


def why(place: Place, replicas: int) -> Iterator[Row]:
    """Measures the explanation of a failure: its duration and its size."""
    script = 'seq 20; sleep 1; echo "ValueError: no batch" >&2; exit 1'
    app_id = place.submit("utils.sh", "--num_replicas", str(replicas), script)
    place.run(place.torchx("log", "--follow", app_id))
    output = place.folder / "output"
    command, status = (place.torchx(name, app_id, "-o", "json") for name in ("why", "status"))
    times = paired(
        lambda: place.run(command, output), lambda: place.run(status, output), rounds=place.size(20, 1)
    )
    what = f"`torchx why HANDLE -o json` of {replicas:,} replicas"
    took = sorted(times.ours)[len(times.ours) // 2] * 1000
    yield limited(
        what, took, "ms", SLOWEST_ANSWER, floor=f"{span(times.floor)} `status -o json`", peer=CANNOT
    )
    place.run(command, output)
    yield limited("its answer", output.stat().st_size / 1e3, "kB", LARGEST_ANSWER, floor="", peer=CANNOT)


def top(place: Place, replicas: int, seconds: int) -> Row:
    """Measures the share of one core that the live view of a running application uses."""
    app_id = place.submit("utils.sh", "--num_replicas", str(replicas), "while sleep 5; do echo step; done")
    columns, lines = 120, 40
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    env = {**place.env, "TERM": "xterm-256color"}
    with subprocess.Popen(
        place.torchx("top", app_id), stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=place.folder
    ) as command:
        read_for(ours, 8)
        used, began = cpu_of(command.pid), time.monotonic()
        read_for(ours, seconds)
        share = 100 * (cpu_of(command.pid) - used) / (time.monotonic() - began)
        os.write(ours, b"q")
        read_for(ours, 1)
    os.close(ours)
    os.close(theirs)
    place.run(place.torchx("cancel", app_id))
    what = f"CPU of `torchx top` with {replicas:,} replicas, during {seconds} s"
    return limited(what, share, "% of a core", MOST_CPU, floor="", peer=CANNOT)


def read_for(terminal: int, seconds: float) -> None:
    """Reads what a terminal shows for a time."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            os.read(terminal, 1 << 16)


def cpu_of(pid: int) -> float:
    """Returns the seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(__doc__, rows)
