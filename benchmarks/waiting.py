"""Jobs that wait for GPUs: memory and CPU of the keeper, and the time until the next one starts."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from measure import CANNOT, ROOT, Place, Row, limited, main, until
from replicas import cpu_time

sys.path.append(str(ROOT / "tests"))

from chaos import Chaos, Sampler, longest_gap  # modules of the tests, as the next three
from fakegpus import FakeGpus
from program import pids_of
from users import UIDS, User, shared_folder

from torchx.jobs import ticket
from torchx.jobs.paths import Home
from torchx.jobs.ticket import Ticket
from torchx.jobs.view import load
from torchx.queue import keepers

MOST_MEMORY = 30
"""MB of the keeper and its guard, with 1,000 waiting jobs."""
MOST_CPU = 1
"""Percent of a processor, with 1,000 waiting jobs and no change."""
LONGEST_GAP = 500
"""Milliseconds from the end of a job to the start of the next one, and of a fitting one beside free GPUs."""

SMI = '#!/bin/sh\ntest "$1" = -L && cat "$0.list"\nexit 0\n'
"""A program `nvidia-smi` with two GPUs that no program uses."""


def rows(place: Place) -> Iterator[Row]:
    """Measures a queue on GPUs that do not exist."""
    with gpus(place):
        yield from idle(place, place.size(1000, 10))
        yield gap(place, place.size(10, 2))
    yield several_users(place, place.size(200, 6))


@contextmanager
def gpus(place: Place) -> Iterator[None]:
    """Gives the commands of the benchmark a machine with two GPUs."""
    folder = place.folder / "driver"
    folder.mkdir()
    run = uuid.uuid4().hex[:16]
    (folder / "nvidia-smi.list").write_text("".join(f"GPU {n}: a GPU (UUID: GPU-{n}{run})\n" for n in (0, 1)))
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
        shutil.rmtree(folder)


def submit(place: Place, script: str) -> str:
    """Submits a job that needs both GPUs."""
    return place.submit("utils.sh", "--gpu", "2", script)


def idle(place: Place, count: int) -> Iterator[Row]:
    """Measures the keeper of many jobs that wait for one that runs."""
    home = Home(Path(place.env["TORCHX_HOME"]))
    first = submit(place, "exec sleep 600")
    until(lambda: load(home.job(first)).supervisor is not None, "the first one starts")
    copies = _copies(home, submit(place, "true"), count - 1)
    until(lambda: len(keepers.survey()) >= count, "the keeper has all jobs")
    time.sleep(place.size(3, 0))
    pids = _keeper(home)
    memory = sum(_megabytes(pid) for pid in pids)
    began, used = time.monotonic(), sum(map(cpu_time, pids))
    time.sleep(place.size(20, 1))
    share = 100 * (sum(map(cpu_time, pids)) - used) / (time.monotonic() - began)
    for name in copies:  # as if they had been deleted
        shutil.rmtree(home.jobs / name)
    _wake(home, copies)
    place.run(place.torchx("cancel", first))
    until(lambda: not _keeper(home), "the keeper ends")
    what = f"keeper of {count} waiting jobs, with its guard"
    yield limited(f"{what}: memory", memory, "MB", MOST_MEMORY, floor="", peer=CANNOT)
    yield limited(f"{what}: CPU without a change", share, "%", MOST_CPU, floor="", peer=CANNOT)


def _copies(home: Home, app_id: str, count: int) -> list[str]:
    """Adds copies of a waiting job to the queue: a thousand command lines would take minutes."""
    own = home.job(app_id)
    mine, record = Ticket.load(own), own.record.read_text()
    names = []
    for number in range(count):
        copy = home.job(f"{app_id}{number}")
        # without its source, which a process of its own may still record
        shutil.copytree(own.folder, copy.folder, ignore=shutil.ignore_patterns(own.provenance.name))
        copy.record.write_text(record.replace(app_id, copy.folder.name))
        mine._replace(app_id=copy.folder.name, at=mine.at + number).save(copy)
        ticket.mark(home, copy)
        names.append(copy.folder.name)
    _wake(home, names)
    return names


def _wake(home: Home, names: list[str]) -> None:
    """Notifies the keeper of all jobs in one connection, so that it decides few times."""
    connection = keepers.connect(keepers.name_of(home.path), 60.0)
    if connection is None:
        raise SystemExit("the keeper has ended")
    with connection:
        connection.sendall(b"".join(keepers.WAKE + name.encode() + b"\n" for name in names))
        left = len(keepers.OK) * len(names)
        while left > 0:
            left -= len(connection.recv(1 << 16)) or left


def gap(place: Place, rounds: int) -> Row:
    """Measures the time from the end of a job to the start of the next one, which needs the same GPUs."""
    home = Home(Path(place.env["TORCHX_HOME"]))
    jobs = [submit(place, "until test -e go; do sleep 0.1; done")]
    jobs += [submit(place, "sleep 0.2") for _ in range(rounds)]
    (place.folder / "go").touch()
    until(lambda: load(home.job(jobs[-1])).has_ended, "all jobs end")
    views = [load(home.job(app_id)) for app_id in jobs]
    pairs = itertools.pairwise(views)
    gaps = [1000 * ((after.started_at or 0.0) - (before.ended_at or 0.0)) for before, after in pairs]
    what = "time from the end of a job to the start of the next one in the queue"
    return limited(what, statistics.median(gaps), "ms", LONGEST_GAP, floor="", peer=CANNOT)


def several_users(place: Place, count: int) -> Row:
    """Measures for how long the first job waits although it fits, with random kills."""
    before = dict(os.environ)
    with shared_folder() as folder, ExitStack() as running:
        machine = FakeGpus(folder / "driver", 8)
        os.environ.update(PATH=machine.path, DOCKER_HOST=place.env["DOCKER_HOST"], TORCHX_PROVENANCE="0")
        try:
            users = [running.enter_context(User(uid, folder / f"home{n}")) for n, uid in enumerate(UIDS)]
        finally:
            os.environ.clear()
            os.environ.update(before)
        chaos, sampler = Chaos(users, folder, guards=False), running.enter_context(Sampler(machine.ids))
        chaos.submit(count)
        until(chaos.all_have_ended, "all jobs end", 600)
        longest = 1000 * longest_gap(chaos, sampler)
    what = f"longest time of a fitting first job beside free GPUs, {count} jobs of 3 users with random kills"
    return limited(what, longest, "ms", LONGEST_GAP, floor="", peer=CANNOT)


def _keeper(home: Home) -> list[int]:
    """Returns the pids of the keeper and its guard."""
    return pids_of("waiting.keeper", home.path)


def _megabytes(pid: int) -> float:
    """Returns the memory of a process, in MB; pages that it shares with its guard count half for each."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) / 1024


if __name__ == "__main__":
    main(__doc__, rows)
