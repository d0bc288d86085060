"""Duration of a short job, and of the time between the end of its last replica and that of the command."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import NOT_MEASURED, Place, Row, compared, limited, main, paired

ECHO = ("run", "-s", "local_cwd", "utils.echo", "--msg", "hi")
BARE = "import subprocess; subprocess.run(['echo', 'hi'])"


def rows(place: Place) -> Iterator[Row]:
    """Measures a job of one line, and the end of a job."""
    floor = place.timed(sys.executable, "-c", BARE)
    times = paired(
        place.timed(*place.torchx(*ECHO)),
        floor,
        place.peer_timed(*ECHO),
        rounds=place.size(20, 1),
        peer_rounds=place.size(7, 1),
    )
    yield compared("`torchx run utils.echo`", times, "`subprocess.run` in Python", of_peer=0.4)
    yield ends(place, 1, limit=50)
    yield ends(place, place.size(100, 3), limit=50)


def ends(place: Place, replicas: int, limit: float) -> Row:
    """Measures from the end of the last replica, which prints the time, to the end of the command."""
    copies = ("utils.sh", "--num_replicas", str(replicas), "date", "+%s%N")
    bare = "import subprocess; subprocess.run(['date', '+%s%N'])"
    times = paired(
        after_the_end(place, place.torchx("run", "-s", "local_cwd", *copies)),
        after_the_end(place, [sys.executable, "-c", bare]) if replicas == 1 else None,
        after_the_end(place, [place.peer, "run", "-s", "local_cwd", *copies]) if place.peer else None,
        rounds=place.size(21, 1),
        peer_rounds=place.size(5 if replicas == 1 else 1, 1),
    )
    floor = f"{1000 * statistics.median(times.floor):.0f} ms, Python's own end" if times.floor else ""
    peer = f"{1000 * statistics.median(times.peer):.0f} ms" if times.peer else NOT_MEASURED
    name = "the replica's" if replicas == 1 else f"the last of {replicas} replicas'"
    return limited(
        f"from {name} end to the command's", 1000 * statistics.median(times.ours), "ms", limit,
        floor=floor, peer=peer,
    )  # fmt: skip


def after_the_end(place: Place, words: list[str]) -> Callable[[], float]:
    """Returns an action: it returns the seconds between the last printed time and a command's end."""
    output = place.folder / "output"

    def action() -> float:
        place.run(words, output)
        ended = time.time()
        return ended - last_time(output)

    return action


def last_time(output: Path) -> float:
    """Returns the latest printed time, in seconds since the epoch."""
    lines = output.read_text().splitlines()
    found = [int(line.split()[-1]) for line in lines if line.split()[-1:] and line.split()[-1].isdigit()]
    return max(found) / 1e9


if __name__ == "__main__":
    main(__doc__, rows)
