"""Making room: prune, and the filters of list."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from program import answer, torchx
from support import wait_until
from terminal import Terminal

from torchx.jobs import ended, pruning
from torchx.jobs.paths import Home, LogPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import load
from torchx.machine import locks as lock
from torchx.schedulers.local.status import LocalJobs
from torchx.scheduling.query import AppQuery


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    return Home(Path(os.environ["TORCHX_HOME"]))


def job(home: Home, app_id: str, *, age: float = 0.0, state: str = "SUCCEEDED", name: str = "job") -> None:
    """Puts an ended job on record, with logs, that was submitted so many seconds ago."""
    paths, then = home.job(app_id), time.time() - age
    logs = LogPaths(home.logs / "torchx" / app_id)
    paths.folder.mkdir(parents=True)
    logs.replica("w", 0).mkdir(parents=True)
    (logs.replica("w", 0) / "combined.log").write_bytes(b"x" * 10000)
    role = RoleRecord("w", [ReplicaRecord(["true"], {})], {})
    JobRecord(app_id, "local_cwd", "torchx", name, then, str(logs.folder), [role], {}, {}).save(paths.record)
    paths.lock.touch()
    end = {"t": then + 1, "e": "end", "state": state, "msg": "", "first": None}
    paths.events.write_text(json.dumps(end) + "\n", encoding="utf-8")
    ended.remember(ended.EndedJob.of(load(paths)), paths)


def make_old(path: Path, age: float = 7200.0) -> None:
    then = time.time() - age
    for each in [*path.rglob("*"), path]:
        os.utime(each, (then, then), follow_symlinks=False)


def listed() -> list[str]:
    return [app["app_id"] for app in answer("list", "-s", "local_cwd", "-o", "json")]


def test_what_is_old_goes_and_the_room_is_reported(home: Home) -> None:
    job(home, "new-1", age=86400)
    job(home, "old-1", age=8 * 86400)
    preview = torchx("prune", "--dryrun")
    assert preview.stdout.splitlines()[1].split()[:2] == ["old-1", "SUCCEEDED"]
    assert preview.stdout.splitlines()[-1].startswith("would remove 1 application: ")
    assert listed() == ["new-1", "old-1"]
    done = torchx("prune", "--yes")
    assert done.returncode == 0
    size = preview.stdout.splitlines()[-1].rpartition(": ")[2]
    assert done.stdout == f"removed 1 application: {size} freed\n"
    assert listed() == ["new-1"]
    assert not (home.logs / "torchx" / "old-1").exists()
    assert b"old-1" not in home.ended.read_bytes()
    assert torchx("prune", "--yes").stderr == "nothing to remove\n"


def test_a_removal_is_confirmed(home: Home) -> None:
    job(home, "old-1", age=8 * 86400)
    done = torchx("prune")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "APP    SCHEDULER  STATE\nold-1  local_cwd  SUCCEEDED\nerror: confirm on a terminal to prune"
    )
    for reply, code, left in (("n\r", 1, ["old-1"]), ("y\r", 0, [])):
        with Terminal("prune") as terminal:
            while "[y/N]" not in terminal.written:
                terminal.read(1.0)
            assert "prune 1 application? [y/N]" in terminal.written
            terminal.send(reply)
            assert terminal.end() == code
        assert listed() == left
    assert torchx("prune").stderr == "nothing to remove\n"


def test_which_ones(home: Home) -> None:
    for number in range(6):
        job(home, f"j-{number}", age=3600.0 * number, state="FAILED" if number % 2 else "SUCCEEDED")
    data = answer("prune", "--yes", "--older-than", "150m", "--state", "failed", "-o", "json")
    assert [app["app_id"] for app in data["applications"]] == ["j-3", "j-5"]
    assert data["dryrun"] is False
    assert data["freed"] == sum(app["bytes"] for app in data["applications"]) > 20000
    assert torchx("prune", "--yes", "--keep", "2").stdout.startswith("removed 2 applications: ")
    assert listed() == ["j-0", "j-1"]
    assert torchx("prune", "--yes", "--older-than", "0").returncode == 0
    assert listed() == []
    assert torchx("prune", "--yes", "--state", "nope").returncode == 2


def test_what_runs_stays(home: Home) -> None:
    app_id = torchx("run", "-d", "utils.sh", "while ! test -e go; do sleep 0.02; done").stdout.strip()
    assert torchx("prune", "--yes", "--older-than", "0").stderr == "nothing to remove\n"
    Path("go").touch()
    assert torchx("wait", app_id).returncode == 0
    folder = home.jobs / app_id.rpartition("/")[2]
    held = wait_until(lambda: lock.acquire(folder / "lock"), "its supervisor has gone")
    try:  # it has ended, and somebody still looks after it
        assert list(pruning.prune(home, [folder.name])) == []
        assert folder.exists()
    finally:
        os.close(held)
    assert [each.app_id for each in pruning.prune(home, [folder.name])] == [folder.name]


def test_leftovers(home: Home) -> None:
    for name in (".half-1", ".half-2", ".held-1"):
        (home.jobs / name).mkdir(parents=True)
        (home.jobs / name / "job.json").write_text("{", encoding="utf-8")
    job(home, "gone-1")
    (home.jobs / "gone-1").rename(home.jobs / ".gone-1")  # a delete that was killed half-way
    job(home, "stays-1", age=100 * 86400)
    (home.logs / "torchx" / "orphan-1").mkdir()
    (home.images / "0123456789abcdef").mkdir(parents=True)
    (home.images / ".unpacking-x").mkdir()
    (home.path / "last.1.partial").touch()
    held = lock.acquire(home.jobs / ".held-1" / "lock")
    assert held is not None
    make_old(home.path)
    (home.jobs / ".half-2" / "lock").touch()  # somebody is at it
    found = [Path(each.path).name for each in pruning.prune(home, [], dryrun=True)]
    expected = [
        "gone-1", ".gone-1", ".half-1", "orphan-1", "last.1.partial", ".unpacking-x", "0123456789abcdef"
    ]  # fmt: skip
    assert found == expected
    assert [Path(each.path).name for each in pruning.prune(home, [])] == expected
    assert list(pruning.prune(home, [])) == []
    assert listed() == ["stays-1"]
    assert (home.jobs / ".held-1").exists()
    os.close(held)


def test_an_image_that_is_in_use_stays(home: Home) -> None:
    image = home.images / "0123456789abcdef"
    image.mkdir(parents=True)
    job(home, "user-1")
    record = home.job("user-1").record
    text = record.read_text(encoding="utf-8")
    record.write_text(text.replace('"args":["true"]', f'"args":["{image}/run"]'), encoding="utf-8")
    make_old(home.path)
    assert list(pruning.prune(home, [])) == []
    assert [Path(each.path).name for each in pruning.prune(home, ["user-1"], dryrun=True)] == [
        "user-1",
        image.name,
    ]
    os.utime(image)  # as a submit does that is about to use it
    assert [Path(each.path).name for each in pruning.prune(home, ["user-1"])] == ["user-1"]
    assert image.is_dir()


def test_no_line_is_lost_when_list_is_written_anew(home: Home) -> None:
    for number in range(200):
        job(home, f"j-{number}")
    stop = threading.Event()

    def compact() -> None:
        while not stop.is_set():
            ended.compact(home)

    compactor = threading.Thread(target=compact)
    compactor.start()
    try:
        for number in range(200, 500):
            job(home, f"j-{number}")
    finally:
        stop.set()
        compactor.join()
    assert set(ended.lines(home)) == {f"j-{number}".encode() for number in range(500)}
    ended.compact(home)
    assert len(home.ended.read_bytes().splitlines()) == 500


def test_a_lost_or_damaged_line_is_written_again(home: Home) -> None:
    job(home, "a-1", age=20)
    job(home, "b-1", age=10)
    data = home.ended.read_bytes()
    home.ended.write_bytes(data[: len(data) - 40] + b"\n")
    jobs = LocalJobs(home, "local_cwd")
    assert [line.app_id for line in jobs.select(AppQuery())] == ["b-1", "a-1"]
    home.ended.unlink()
    listed = list(jobs.select(AppQuery()))
    assert [line.app_id for line in listed] == ["b-1", "a-1"]
    assert not home.ended.exists(), "a listing changes nothing"
    jobs.reconcile(next(line.app_id for line in listed if line.needs_reconcile))
    assert not any(line.needs_reconcile for line in jobs.select(AppQuery()))
    assert set(ended.lines(home)) == {b"a-1", b"b-1"}


def test_the_filters_of_list(home: Home) -> None:
    for number in range(4):
        name = "train" if number % 2 else "eval é"
        job(
            home,
            f"{name[:4]}-{number}",
            age=3600.0 * number,
            name=name,
            state="FAILED" if number > 1 else "SUCCEEDED",
        )
    for words, expected in (
        ([], ["eval-0", "trai-1", "eval-2", "trai-3"]),
        (["--state", "failed,running"], ["eval-2", "trai-3"]),
        (["--name", "train"], ["trai-1", "trai-3"]),
        (["--name", "e*é"], ["eval-0", "eval-2"]),
        (["--since", "90m"], ["eval-0", "trai-1"]),
        (["--since", "3d", "-n", "1", "--state", "failed"], ["eval-2"]),
    ):
        data = answer("list", "-s", "local_cwd", "-o", "json", *words)
        assert [app["app_id"] for app in data] == expected, words
    assert torchx("list", "-s", "local_cwd", "--name", "x").stderr == "no matching applications\n"
    assert torchx("list", "--since", "soon").returncode == 2


def test_a_long_list_is_cut_and_says_so(home: Home) -> None:
    for number in range(105):
        job(home, f"j-{number}", age=float(number))
    done = torchx("list", "-s", "local_cwd")
    assert len(done.stdout.splitlines()) == 101
    assert done.stderr == "only the newest 100 are shown (to see more: torchx list -n 500)\n"
    assert len(torchx("list", "-s", "local_cwd", "-n", "104").stdout.splitlines()) == 105
    assert len(listed()) == 105
    shutil.rmtree(home.jobs)
    assert torchx("list", "-s", "local_cwd").stderr == "no applications\n"
