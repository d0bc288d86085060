"""Duration and memory of jobs with many replicas, compared with a loop that starts the same processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import NOT_MEASURED, Memory, Place, Row, compared, limited, main, paired, until

from torchx.jobs.measurement import read_usage
from torchx.jobs.paths import Home
from torchx.jobs.view import JobView, load
from torchx.machine.processes import look_up

BARE = """
import subprocess, sys
started = []
for number in range(int(sys.argv[1])):
    with open(f"{number}.out", "w") as out, open(f"{number}.err", "w") as err:
        started.append(subprocess.Popen(["echo", "hello world"], stdout=out, stderr=err))
for process in started:
    process.wait()
"""
PYTHON = "`python -I -S`"


def rows(place: Place) -> Iterator[Row]:
    """Measures 200 to 10,000 replicas, and the supervisor's memory."""
    for replicas, rounds, limit in ((200, 9, 3.0), (1000, 5, 1.5), (5000, 3, 1.5), (10_000, 3, None)):
        if replicas <= 1000 or not place.quick:
            yield many(place, place.size(replicas, 4), place.size(rounds, 1), limit)
    for replicas, most in ((1, 25), (place.size(1000, 5), 60)):
        yield from idle(place, replicas, most)


def many(place: Place, replicas: int, rounds: int, limit: float | None) -> Row:
    """Measures an echo in each replica.

    Args:
        place: where to run.
        replicas: their number.
        rounds: the number of runs.
        limit: how many times of the bare loop it may take.
    """
    words = ("run", "-s", "local_cwd", "utils.echo", "--num_replicas", str(replicas))
    output = place.folder / "output"

    def printed(command: list[str]) -> Callable[[], float]:
        def action() -> float:
            took = place.run(command, output)
            lines = output.read_text().count("hello world")
            if lines != replicas:
                raise SystemExit(f"{lines} of {replicas} lines came")
            return took

        return action

    # the peer's time grows with the square of the replicas: it runs with the smaller number only, once
    peer = printed([place.peer, *words]) if place.peer and replicas <= 200 else None
    times = paired(
        printed(place.torchx(*words)),
        place.timed(sys.executable, "-c", BARE, str(replicas)),
        peer,
        rounds=rounds,
        peer_rounds=1,
    )
    return compared(f"{replicas:,} replicas of echo", times, "a bare loop of `Popen`", of_floor=limit)


def idle(place: Place, replicas: int, limit: float) -> Iterator[Row]:
    """Measures the memory of a job's supervisor and guard, and the cost of sampling, while replicas sleep."""
    app_id = place.submit("utils.sh", "--num_replicas", str(replicas), "sleep", "600")
    home = Home(place.folder / ".torchx")

    def view() -> JobView:
        return load(home.job(app_id))

    until(lambda: sum(bool(r.attempts) for r in view().replicas) == replicas, "all replicas run")
    supervisor = view().supervisor
    assert supervisor is not None
    paths = home.job(app_id)
    # with the first samples, which take memory too; the program of a replica sleeps from the start
    until(
        lambda: (usage := read_usage(view(), paths)) is not None and len(usage.replicas) == replicas,
        "samples",
    )
    held = Memory(supervisor.pid).megabytes + own_memory(parent_of(supervisor.pid))
    begin, used = time.monotonic(), cpu_time(supervisor.pid)
    time.sleep(place.size(60, 1))
    share = 100 * (cpu_time(supervisor.pid) - used) / (time.monotonic() - begin)
    place.run(place.torchx("cancel", app_id))
    until(lambda: view().has_ended, "the job has ended")
    count = f"{replicas:,} replica{'s' if replicas > 1 else ''}"
    yield limited(
        f"the memory of supervisor and guard with {count}", held, "MB", limit,
        floor=f"{bare_memory():.1f} MB {PYTHON}", peer=NOT_MEASURED,
    )  # fmt: skip
    yield limited(f"the CPU time of sampling {count}", share, "% of a core", 2, peer=NOT_MEASURED)


def cpu_time(pid: int) -> float:
    """Returns the CPU time of a process in seconds."""
    entry = look_up(pid)
    return entry.ticks / os.sysconf("SC_CLK_TCK") if entry is not None else 0.0


def parent_of(pid: int) -> int:
    """Returns the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def own_memory(pid: int) -> float:
    """Returns the private memory of a process, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def bare_memory() -> float:
    """Returns the memory of an idle Python, in MB."""
    import subprocess

    bare = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held = Memory(process.pid).megabytes
        process.communicate(b"\n")
    return held


if __name__ == "__main__":
    main(__doc__, rows)
