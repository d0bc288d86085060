"""The number of queries by which commands that wait load a controller, counted by a squeue of this test."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from program import start, torchx
from slurms import configure_no_controller
from support import wait_until

from torchx.runner import get_runner, reports
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.slurm import queue as slurm_queue
from torchx.schedulers.slurm.queue import find
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.schedulers.slurm.wait import watch as watch_of
from torchx.scheduling import pace
from torchx.scheduling.pace import LONGEST, Answers, pause_after, sharing
from torchx.specs.status import AppState

SQUEUE = r"""#!/bin/sh
echo squeue >> "$FAKE_QUERIES"
for argument; do
    case $argument in
        --version) echo slurm 22.05.8; exit ;;
        --user=*) echo listing >> "$FAKE_QUERIES" ;;
        --jobs=*) jobs=$(echo "${argument#--jobs=}" | tr , ' ') ;;
        --format=*) format=${argument#--format=} ;;
    esac
done
read -r state < "$FAKE_STATE"
submitted=$(date +%s)
[ -z "$state" ] || for job in ${jobs:-473}; do
printf '%s\n' "$format" | sed "s/%i/$job/; s/%A/$job/; s/%T/$state/; s/%[VS]/$submitted/; s/%e/NONE/;
s/%u/${FAKE_USER:-$(id -un)}/; s/%N//; s/%r/Priority/; s/%j/a-b1/; s/%[VS]/$submitted/
s#%k#${FAKE_COMMENT:-(null)}#"
done
"""
OTHER = '#!/bin/sh\necho "${0##*/}" >> "$FAKE_QUERIES"\n'
LISTING = "listing"
SECONDS = 30.0
MOST = 12
"""Maximum queries of one command in that time: two parts of a command may query, and its start."""
COMMANDS = {
    "wait": ("wait", "473"),
    "status": ("status", "-w", "473"),
    "describe": ("describe", "-w", "473"),
    "log": ("log", "-f", "473"),
    "attach": ("attach", "473"),
    "running": ("wait", "--for", "ready", "473"),
    "events": ("events", "-f", "slurm://torchx/473"),
    "all-events": ("events", "-f", "-s", "slurm"),
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of a cluster with one job, whose state is in the file `state`."""
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "sacct", "sstat", "scontrol", "sinfo", "scancel", "srun"):
        (tmp_path / "bin" / name).write_text(SQUEUE if name == "squeue" else OTHER)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "state").write_text("PENDING\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("FAKE_QUERIES", str(tmp_path / "queries"))
    configure_no_controller(monkeypatch, tmp_path)
    (tmp_path / "jobs" / "a-b1").mkdir(mode=0o700, parents=True)
    app = {"name": "a", "roles": [{"name": "r", "num_replicas": 1}]}
    for name in ("ANSWERS", "ACCOUNTS"):  # none of earlier tests
        monkeypatch.setattr(slurm_queue, name, Answers(getattr(slurm_queue, name)._query))
    folder = str(tmp_path / "jobs" / "a-b1")
    Records("slurm").add(
        BatchRecord(473, "b1", "a", "a-b1", "torchx", folder, submitted_at=time.time(), app=app)
    )
    return tmp_path


def queries(folder: Path, name: str = "queries") -> list[str]:
    path = folder / name
    return path.read_text().split() if path.exists() else []


@pytest.mark.long
@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_no_command_that_waits_queries_often(cluster: Path, state: str) -> None:
    (cluster / "state").write_text(f"{state}\n")
    commands = {name: words for name, words in COMMANDS.items() if state == "PENDING" or name != "running"}
    running = {
        name: start(*words, env={"FAKE_QUERIES": str(cluster / name)}) for name, words in commands.items()
    }
    begun = time.monotonic()
    wait_until(lambda: all(queries(cluster, name) for name in running), "all commands have begun")
    time.sleep(max(SECONDS - (time.monotonic() - begun), 0.0))
    counts = {name: len([q for q in queries(cluster, name) if q != LISTING]) for name in running}
    ended = [name for name, command in running.items() if command.poll() is not None]
    texts = {}
    for name, command in running.items():
        command.send_signal(signal.SIGKILL)
        texts[name] = command.communicate()
    assert {name: texts[name] for name in ended} == {}
    assert {name: count for name, count in counts.items() if count > MOST} == {}


def test_a_retry_is_read_from_files_without_a_query(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "pause_after", lambda *args, **kwargs: 1e6)
    monkeypatch.setattr(reports, "FILES_INTERVAL", 0.0)
    monkeypatch.setattr(reports, "ATTEMPTS_PER_SECOND", 1e9)
    attempts, state = cluster / "jobs" / "a-b1" / "r" / "0", cluster / "state"
    feed = reports.Feed(get_runner("torchx"), "slurm://torchx/473")

    def write(number: int, name: str, **facts: float) -> None:
        (attempts / f"attempt-{number}").mkdir(mode=0o700, parents=True, exist_ok=True)
        (attempts / f"attempt-{number}" / f"{name}.json").write_text(json.dumps(facts))

    def read(*, now: bool = False) -> list[str]:
        return [f"{event.kind} {event.attempt}" for event in feed.read(now=now) if event.attempt]

    state.write_text("RUNNING\n")
    write(1, "start", started_at=time.time())
    assert read() == ["started 1"]
    write(1, "end", exit_code=4, ended_at=time.time())
    write(2, "start", started_at=time.time())
    assert read() == ["ended 1", "retry 1", "started 2"]
    assert len(queries(cluster)) == 1
    write(2, "end", exit_code=4, ended_at=time.time())
    state.write_text("PENDING\n")  # queued again
    assert read(now=True) == ["ended 2"]
    state.write_text("RUNNING\n")
    write(3, "start", started_at=time.time())
    assert read() == [], "the answer is older: it has neither begun nor was it interrupted"
    assert read(now=True) == ["retry 2", "started 3"]
    assert len(queries(cluster)) == 3
    write(3, "end", exit_code=4, ended_at=time.time())
    assert read() == ["ended 3"]
    assert len(queries(cluster)) == 3


@pytest.mark.parametrize("name", ["473", "slurm://torchx/473"])
def test_a_number_with_a_record_needs_no_listing(cluster: Path, name: str) -> None:
    done = torchx("status", name)
    assert done.stdout.startswith("473  PENDING  slurm"), done
    assert queries(cluster) == ["squeue"]


def test_a_number_without_a_record_is_looked_up(cluster: Path) -> None:
    shutil.rmtree(cluster / "home")
    torchx("status", "473")
    assert LISTING in queries(cluster)


@pytest.mark.parametrize(
    "words", [("exec", "REPLICA", "true"), ("log", "REPLICA"), ("port", "REPLICA", "80")]
)
def test_command_for_replica_of_another_user_names_owner(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    shutil.rmtree(cluster / "home")
    monkeypatch.setenv("FAKE_USER", "daemon")
    monkeypatch.setenv("FAKE_COMMENT", f"torchx:c3:{cluster}/jobs/x-c3")
    done = torchx(*(word.replace("REPLICA", "slurm://torchx/473/r/0") for word in words))
    assert done.stderr == "error: 473 belongs to the user daemon: its replicas are private\n"
    assert done.returncode == 77


def test_ended_jobs_share_queries(cluster: Path) -> None:
    (cluster / "state").write_text("\n")
    known = Records("slurm").find("473", "b1")
    assert known is not None
    records = [replace(known, job_id=number, token=f"e{number}") for number in range(700, 720)]
    for record in records:
        Records("slurm").add(record)
    for _ in range(2):
        with sharing(time.monotonic()):
            assert None not in [find(record.full_id) for record in records]
        counts = Counter(queries(cluster))
        assert (counts["squeue"], counts["sacct"]) in itertools.product((1, 2), (1, 2))
        (cluster / "queries").unlink()


def test_waits_for_jobs_of_other_users_share_queries(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_USER", "daemon")
    monkeypatch.setenv("FAKE_COMMENT", f"torchx:c3:{cluster}/jobs/x-c3")
    names = [str(number) for number in range(800, 810)]
    with sharing():
        assert [job is not None and job.owner for job in map(find, names)] == ["daemon"] * 10
    (cluster / "queries").unlink()
    with sharing(time.monotonic()):
        assert [job is not None and job.owner for job in map(find, names)] == ["daemon"] * 10
    assert sorted(queries(cluster)) == [LISTING, "squeue", "squeue"]


def test_pace_after_minute_is_one_query_in_15_seconds() -> None:
    times, now = [0.0], 0.0
    while now < 300.0:
        now += pause_after(now)
        times.append(now)
    assert len([each for each in times if each <= 60.0]) == 9
    assert all(later - earlier == LONGEST for earlier, later in itertools.pairwise(times) if earlier > 30)


def test_a_watch_checks_files_between_two_queries(cluster: Path) -> None:
    record = Records("slurm").find("473", "b1")
    assert record is not None
    watch = watch_of(record)
    assert [watch.has_ended() for _ in range(50)] == [False] * 50
    assert len(queries(cluster)) == 1
    (cluster / "state").write_text("RUNNING\n")
    (cluster / "jobs" / "a-b1" / "over").write_text(f"473 0 {int(time.time()) + 1} 1\n")
    assert watch.has_ended()


def test_the_end_of_an_earlier_run_is_no_end(cluster: Path) -> None:
    """As after `scontrol requeue` of an ended job: the file of the end stays until the next run begins."""
    record = Records("slurm").find("473", "b1")
    assert record is not None
    (cluster / "jobs" / "a-b1" / "over").write_text(f"473 0 {int(time.time())} 1\n")
    scheduler = create_scheduler("torchx")
    assert scheduler.wait("473", 1.5) is False
    assert len(queries(cluster)) <= 3
    watch = watch_of(record)
    assert not watch.has_ended()
    (cluster / "jobs" / "a-b1" / "over").unlink()
    (cluster / "state").write_text("RUNNING\n")
    assert not watch.has_ended()
    (cluster / "jobs" / "a-b1" / "over").write_text(f"473 0 {int(time.time()) + 1} 1\n")
    assert watch.has_ended()
    described = scheduler.describe("473")
    assert described is not None
    assert described.state is AppState.SUCCEEDED


def several(cluster: Path, count: int) -> list[str]:
    """Adds jobs that run, and returns their numbers."""
    (cluster / "state").write_text("RUNNING\n")
    known = Records("slurm").find("473", "b1")
    assert known is not None
    numbers = range(500, 500 + count)
    for number in numbers:
        folder = cluster / "jobs" / f"a-c{number}"
        folder.mkdir(mode=0o700)
        Records("slurm").add(replace(known, job_id=number, token=f"c{number}", folder=str(folder)))
    # squeue lists them all
    script = (cluster / "bin" / "squeue").read_text()
    listed = " ".join(map(str, numbers))
    (cluster / "bin" / "squeue").write_text(script.replace("${jobs:-473}", f"${{jobs:-{listed}}}"))
    return [str(number) for number in numbers]


def end(cluster: Path, number: str) -> None:
    (cluster / "jobs" / f"a-c{number}" / "over").write_text(f"{number} 0 {int(time.time()) + 60} 1\n")


def test_wait_for_many_jobs_shares_queries(cluster: Path) -> None:
    numbers = several(cluster, 24)
    command = start("wait", *numbers, env={"FAKE_QUERIES": str(cluster / "wait")})
    wait_until(lambda: len(queries(cluster, "wait")) >= 6, "the jobs are watched")
    assert Counter(queries(cluster, "wait"))["squeue"] <= 8
    before = len(queries(cluster, "wait"))
    for number in numbers:  # one after another
        end(cluster, number)
        time.sleep(0.1)
    _, error = command.communicate()
    assert error.count("SUCCEEDED") == 24
    assert len(queries(cluster, "wait")) - before <= 24, "a query of two lines in half a second"


def test_cancel_of_many_jobs_shares_queries(cluster: Path) -> None:
    numbers = several(cluster, 24)
    command = start("cancel", *numbers, env={"FAKE_QUERIES": str(cluster / "cancel")})
    wait_until(lambda: queries(cluster, "cancel").count("scancel") == 24, "all are cancelled")
    for number in numbers:
        end(cluster, number)
    command.communicate()
    assert Counter(queries(cluster, "cancel"))["squeue"] <= 12
