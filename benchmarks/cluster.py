"""Duration of starting and listing jobs on Slurm, compared with its own programs on the same cluster."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from measure import NOT_MEASURED, ROOT, Place, Row, compared, limited, main, paired, until

from torchx.errors import TorchxError
from torchx.schedulers.slurm import commands as client

BY_HAND = """\
#!/bin/bash
#SBATCH --job-name=by-hand
#SBATCH --output=/dev/null
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=100M
srun sh -c 'date +%s%N > {file}.part && mv {file}.part {file}'
"""

CROWD_BY_HAND = """\
#!/bin/bash
#SBATCH --job-name=crowd-by-hand
#SBATCH --output=/dev/null
#SBATCH --nodes={nodes} --ntasks={tasks} --overcommit --mem=0
srun --overcommit true
touch {file}
"""

MANY = """\
import sys
from concurrent.futures import ThreadPoolExecutor
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role

scheduler = create_scheduler("torchx")

def submit(number):
    role = Role("r", "", entrypoint="true", resource=Resource(1, 0, 100))
    return scheduler.submit(AppDef(f"bench{number}", [role]), {"hold": True})

with ThreadPoolExecutor(4) as pool:
    print(*pool.map(submit, range(int(sys.argv[1]))))
"""


def missing() -> str:
    """Returns the missing requirements of these benchmarks and how to install them, or an empty string."""
    try:
        client.call(["sinfo", "--noheader", "--format=%N"], timeout=client.LIST_TIMEOUT)
    except TorchxError as error:
        return f"{error.message}; .ci/slurm starts one"
    return ""


def rows(place: Place) -> Iterator[Row]:
    """Measures the start of a job, a job of 1,000 replicas, and listings of 1,000 jobs."""
    place = replace(place, engine=True)
    yield started(place)
    yield crowd(place, place.size(1000, 4))
    yield from listings(place, place.size(1000, 5))


def started(place: Place) -> Row:
    """Measures from the start of the command to the start of the job's program."""
    by_hand = place.folder / "by-hand.sh"
    file = place.folder / "runs"
    by_hand.write_text(BY_HAND.format(file=file))
    say = f"date +%s%N > {file}.part && mv {file}.part {file}"
    job = ("utils.sh", "--cpu", "1", "--memMB", "100", say)
    times = paired(
        until_it_runs(place, place.torchx("run", "-s", "slurm", "--detach", *job), file),
        until_it_runs(place, ["sbatch", str(by_hand)], file),
        rounds=place.size(15, 1),
    )
    more = statistics.median(a - b for a, b in zip(times.ours, times.floor, strict=True))
    return limited(
        "from `torchx run --detach` to the job's first line, beyond a script by hand",
        1000 * more, "ms", 500,
        floor=f"{1000 * statistics.median(times.floor):.0f} ms `sbatch` of a script by hand",
        peer=NOT_MEASURED,
    )  # fmt: skip


def until_it_runs(place: Place, words: Sequence[str], file: Path) -> Callable[[], float]:
    """Returns an action that submits a job and returns the seconds until its program wrote the time."""

    def action() -> float:
        file.unlink(missing_ok=True)
        begun = time.time()
        place.run(words)
        until(file.exists, "the job runs")
        took = int(file.read_text()) / 1e9 - begun
        time.sleep(1.0)  # its node is free again, and Slurm has looked at its queue
        return took

    return action


def crowd(place: Place, replicas: int) -> Row:
    """Measures from the start of the command to the end of a job with many replicas on four nodes."""
    by_hand, file, nodes = place.folder / "crowd.sh", place.folder / "crowd", min(replicas, 4)
    by_hand.write_text(CROWD_BY_HAND.format(nodes=nodes, tasks=replicas, file=file))
    options = f"overcommit=true,mem=0,nodes={nodes}"
    job = ("utils.sh", "--num_replicas", str(replicas), "--cpu", "1", "--memMB", "0", "true")

    def ours() -> float:
        begun = time.time()
        place.run(place.torchx("run", "-s", "slurm", "--detach", "-cfg", options, *job))
        place.run(place.torchx("wait", "@last"))
        return time.time() - begun

    def alone() -> float:
        file.unlink(missing_ok=True)
        begun = time.time()
        place.run(["sbatch", str(by_hand)])
        until(file.exists, "the job has ended", 900)
        return time.time() - begun

    times = paired(ours, alone, rounds=place.size(3, 1))
    return compared(f"a job of {replicas:,} replicas, with logs and ends", times, "one bare `srun`")


def listings(place: Place, jobs: int) -> Iterator[Row]:
    """Measures list and status with held jobs in the queue."""
    submit = [sys.executable, "-c", MANY, str(jobs)]
    done = subprocess.run(
        submit, env={"PYTHONPATH": str(ROOT), **place.env}, stdout=subprocess.PIPE, text=True
    )
    ids = done.stdout.split()
    if done.returncode or len(ids) != jobs:
        raise SystemExit(f"{len(ids)} of {jobs} jobs were submitted")
    try:
        yield compared(
            f"`torchx list -s slurm`, {jobs:,} jobs",
            paired(
                place.timed(*place.torchx("list", "-s", "slurm", "-n", str(jobs))),
                place.timed("squeue", "--json", "--me"),
                rounds=place.size(7, 1),
            ),
            "`squeue --json`", of_floor=1.5,
        )  # fmt: skip
        one = paired(
            place.timed(*place.torchx("status", f"slurm://torchx/{ids[0]}")),
            place.timed("squeue", f"--jobs={ids[0]}"),
            rounds=place.size(9, 1),
        )
        yield limited(
            f"`torchx status` of one, {jobs:,} jobs", 1000 * statistics.median(one.ours), "ms", 200,
            floor=f"{1000 * statistics.median(one.floor):.0f} ms `squeue --jobs`", peer=NOT_MEASURED,
        )  # fmt: skip
    finally:
        for begin in range(0, len(ids), 200):
            subprocess.run(["scancel", *ids[begin : begin + 200]], check=False)


if __name__ == "__main__":
    main(__doc__, rows, missing)
