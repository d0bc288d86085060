"""Duration of a submission from a large repository, with and without the record of its source."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator

from measure import Place, Row, compared, limited, main, paired, until

FILES_IN_A_FOLDER = 100


def rows(place: Place) -> Iterator[Row]:
    """Measures the time until the handle is printed, and the time until the source is recorded."""
    files = place.size(100_000, 200)
    fill(place, files)
    times = paired(to_the_handle(place, "1"), to_the_handle(place, "0"), rounds=place.size(40, 1))
    where = f"a repository of {files:,} files"
    yield compared(f"`torchx run --detach` in {where}, to the handle", times, "with TORCHX_PROVENANCE=0")
    more = statistics.median(a - b for a, b in zip(times.ours, times.floor, strict=True))
    yield limited(f"the record of the source in {where}, to the handle", 1000 * more, "ms", 10)
    recorded = paired(to_the_record(place), rounds=place.size(5, 1))
    yield compared(f"from the handle to the recorded source of {where}", recorded)


def fill(place: Place, files: int) -> None:
    """Makes a repository with one commit and a few changes."""
    for number in range(files):
        folder = place.folder / f"d{number // FILES_IN_A_FOLDER}"
        if number % FILES_IN_A_FOLDER == 0:
            folder.mkdir()
        (folder / f"f{number}.py").write_text(f"x = {number}\n" * 5)
    (place.folder / ".gitignore").write_text(".torchx\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "gc.auto=0")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "x"]):
        place.run(["git", *words])
    (place.folder / "d0" / "f0.py").write_text("changed = 1\n")
    (place.folder / "new.py").write_text("new = 1\n")


def to_the_handle(place: Place, recorded: str) -> Callable[[], float]:
    """Returns an action: it submits, and returns the seconds until the handle is printed."""

    def action() -> float:
        took, handle = submit(place, recorded)
        place.run(place.torchx("wait", handle))
        if recorded == "1":
            wait_for_record(place, handle)  # it would take part in the next measurement
        return took

    return action


def to_the_record(place: Place) -> Callable[[], float]:
    """Returns an action: it submits, and returns the seconds from the handle to the complete record."""

    def action() -> float:
        _, handle = submit(place, "1")
        start = time.perf_counter()
        wait_for_record(place, handle)
        return time.perf_counter() - start

    return action


def submit(place: Place, recorded: str) -> tuple[float, str]:
    """Submits, and returns the seconds until the handle is printed, and the handle."""
    command = place.torchx("run", "-s", "local_cwd", "--detach", "utils.echo")
    env = {**place.env, "TORCHX_PROVENANCE": recorded}
    start = time.perf_counter()
    with subprocess.Popen(command, env=env, cwd=place.folder, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        handle = child.stdout.readline().strip()
        took = time.perf_counter() - start
    if not handle:
        raise SystemExit(f"{' '.join(command)} printed no handle")
    return took, handle


def wait_for_record(place: Place, handle: str) -> None:
    """Waits until the source of an application is recorded."""
    folder = place.folder / ".torchx" / "jobs" / handle.rpartition("/")[2] / "provenance"
    until(lambda: '"recording":false' in (folder / "record.json").read_text(), "the source is recorded")


if __name__ == "__main__":
    main(__doc__, rows)
