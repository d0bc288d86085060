"""Situations that broke other launchers: the clock, cancels between attempts, jobs in jobs, own files."""

from __future__ import annotations

import os
import random
import shlex
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    describe,
    ended,
    paths,
    processes_of,
    replicas,
    running,
    scheduler,
    sh,
    submit,
    text,
)
from program import ROOT, torchx
from support import wait_until

from torchx.jobs.events import read_events
from torchx.schedulers.local import submit as local_submit
from torchx.specs.status import AppState

COUNT = int(os.environ.get("TORCHX_RECIPES", "20"))
PROCESSES = 8


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Cancels the jobs of a test at its end."""
    yield
    for app in scheduler().list():
        if app.ended_at is None:
            scheduler().cancel(app.app_id)


class Earlier(datetime):
    """A clock that was set back by an hour."""

    @classmethod
    def now(cls, tz: object = None) -> Earlier:
        return cls.fromtimestamp(time.time())


def set_clock_back(seconds: float) -> None:
    """Sets the clock of this process back."""
    true = time.time
    time.time = lambda: true() - seconds
    local_submit.datetime = Earlier  # type: ignore[attr-defined]


def submissions(count: int, back: float) -> list[str]:
    """Submits jobs in several processes at the same time, whose clock is set back; returns the handles."""
    begin, ready = os.pipe()
    reader, writer = os.pipe()
    pids = []
    for _ in range(PROCESSES):
        if not (pid := os.fork()):
            set_clock_back(back)
            os.close(ready)
            os.read(begin, 1)  # until all are there
            try:
                for _ in range(count // PROCESSES):
                    app_id = submit(sh("true"))
                    os.write(writer, f"{app_id}\n".encode())
            finally:
                os._exit(0)
        pids.append(pid)
    for descriptor in (begin, ready, writer):
        os.close(descriptor)
    with open(reader) as lines:
        found = lines.read().split()
    for pid in pids:
        os.waitpid(pid, 0)
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ids_do_not_depend_on_the_clock() -> None:
    count = max(COUNT, 2 * PROCESSES) // PROCESSES * PROCESSES
    app_ids = submissions(count, 0.0) + submissions(count, 3600.0)
    assert len(app_ids) == len(set(app_ids)) == 2 * count
    for app_id in app_ids:
        assert ended(app_id).state is AppState.SUCCEEDED
    listed = [line.app_id for line in scheduler().list()]
    assert sorted(listed) == sorted(app_ids)
    folders = {describe(app_id).log_dir for app_id in app_ids}
    assert len(folders) == 2 * count


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_attempt_starts_after_a_cancel() -> None:
    """At random moments: while a program runs, fails, waits for its next attempt, or is started."""
    chance = random.Random(26)
    for number in range(COUNT):
        app_id = submit(sh("exit 3", retries=1000), retry_backoff=0.05, grace_period=1.0)
        moment = chance.uniform(0.0, 0.6)
        end = time.monotonic() + moment
        wait_until(lambda end=end: time.monotonic() >= end, "the moment")  # type: ignore[misc]
        scheduler().cancel(app_id)
        found = ended(app_id)
        assert found.state is AppState.CANCELLED, (number, moment, found.msg)
        kinds = [event["e"] for event in read_events(paths(app_id).events)]
        assert kinds[-1] == "end"
        begun = kinds.count("start")
        assert begun == kinds.count("exit"), kinds
        if "cancel" in kinds:
            assert "start" not in kinds[kinds.index("cancel") :], kinds
        assert_nothing_runs(app_id)
        assert len(replicas(describe(app_id))[0].attempts) == begun


INNER = """
cd {root}
{torchx} run -d -s local_cwd utils.sh sleep 600 > inner
{torchx} exec $(cat inner) sleep 600 &
echo $! > exec
sleep 600 &
echo up
wait
"""


@pytest.mark.long
def test_a_job_that_submits_a_job_and_enters_it(tmp_path: Path) -> None:
    """The end of the inner job ends nothing of the outer one, and neither ends another job."""
    command = f"{shlex.quote(sys.executable)} -m torchx_cli"
    script = INNER.format(root=tmp_path, torchx=f"env PYTHONPATH={ROOT} {command}")
    outer, other = submit(sh(script)), submit(sh("exec sleep 600"))
    wait_until(lambda: "up" in text(outer), "it has submitted the inner job")
    inner = (tmp_path / "inner").read_text().strip().rpartition("/")[2]
    running(inner)
    entered = int((tmp_path / "exec").read_text())
    wait_until(lambda: len(processes_of(inner)) >= 2, "its program runs in the inner job")
    scheduler().cancel(inner)
    assert ended(inner).state is AppState.CANCELLED
    wait_until(lambda: not Path(f"/proc/{entered}/cwd").exists(), "the command line ends with its program")
    assert_nothing_runs(inner)
    for app_id in (outer, other):
        assert describe(app_id).state is AppState.RUNNING
    (tmp_path / "inner").unlink()
    second = torchx("run", "-d", "-s", "local_cwd", "utils.sh", "sleep", "600").stdout.strip()
    scheduler().cancel(outer)
    assert ended(outer).state is AppState.CANCELLED
    assert_nothing_runs(outer)
    for app_id in (other, second.rpartition("/")[2]):
        running(app_id)
        scheduler().cancel(app_id)


@pytest.mark.long
def test_job_that_replica_has_submitted_ends_with_it(tmp_path: Path) -> None:
    """As all processes that the replica has started; its state says so."""
    command = f"env PYTHONPATH={ROOT} {shlex.quote(sys.executable)} -m torchx_cli"
    script = f"cd {tmp_path}; {command} run -d -s local_cwd utils.sh sleep 600 > inner; echo up; sleep 600"
    outer = submit(sh(script))
    wait_until(lambda: "up" in text(outer), "it has submitted the inner job")
    inner = (tmp_path / "inner").read_text().strip().rpartition("/")[2]
    running(inner)
    scheduler().cancel(outer)
    assert ended(outer).state is AppState.CANCELLED
    assert ended(inner).state is AppState.CANCELLED
    assert_nothing_runs(inner)


@pytest.mark.parametrize("kind", ["folder", "link", "home", "session"])
def test_own_files_in_the_folder_of_logs_stay(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    (mine / "torchx").mkdir(parents=True)
    (mine / "torchx" / "notes").write_text("mine")
    (mine / "file").write_text("mine")
    (mine / ".profile").write_text("mine")
    before = dict(os.environ)
    place = mine
    if kind == "link":
        place = tmp_path / "link"
        place.symlink_to(mine)
    if kind == "home":
        monkeypatch.setenv("HOME", str(mine))
    if kind == "session":
        place = mine / "torchx"
    app_ids = [submit(sh("echo x"), log_dir=str(place)) for _ in range(3)]
    for app_id in app_ids:
        assert ended(app_id).state is AppState.SUCCEEDED
        assert (place / "torchx" / app_id).is_dir()
    scheduler().delete(app_ids[0])
    assert list(scheduler().prune([app_ids[1]]))
    done = torchx("delete", f"local_cwd://torchx/{app_ids[2]}")
    assert done.returncode == 0, done.stderr
    left = sorted(str(path.relative_to(mine)) for path in mine.rglob("*"))
    assert left == [".profile", "file", "torchx", "torchx/notes"]
    assert (kind != "link") or place.is_symlink()
    assert {**before, "HOME": os.environ["HOME"]} == dict(os.environ)
