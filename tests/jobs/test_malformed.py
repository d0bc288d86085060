"""Special files in the state home and damaged records: each is listed, and hides no other."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobhome import change, job, jobs, states

from torchx.errors import StateError
from torchx.jobs import ended, pruning
from torchx.jobs.paths import Home
from torchx.jobs.view import load
from torchx.machine import locks as lock
from torchx.schedulers.local.cancel import delete
from torchx.schedulers.local.status import LocalJobs
from torchx.scheduling.query import AppQuery
from torchx.specs.status import AppState

NOBODY = 65534
as_root = pytest.mark.skipif(bool(os.geteuid()), reason="gives files to another user: run the tests as root")


# --- what is no file is no file ---------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    (path.parent / "target").write_bytes(b'{"schema": 1}')
    path.symlink_to(path.parent / "target")


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # an address is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def anothers(path: Path) -> None:
    path.write_bytes(b"{}")
    if not os.geteuid():
        os.chown(path, NOBODY, NOBODY)


KINDS = [pipe, link, dangling, device, folder, unix_socket, anothers]


@pytest.fixture
def bounded() -> Iterator[None]:
    """Wakes a thread that waits for the other end of a pipe, so that it fails instead of hanging."""
    woken = threading.Event()
    home = Path(os.environ["TORCHX_HOME"])

    def wake() -> None:
        if not woken.wait(20):
            for path in home.rglob("*"):
                if path.is_fifo():
                    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    threading.Thread(target=wake, daemon=True).start()
    began = time.monotonic()
    yield
    woken.set()
    assert time.monotonic() - began < 20, "something waited for a pipe"


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("job.json", kind) for kind in KINDS),
        *((f, k) for f in ("events.jsonl", "lock") for k in (pipe, link, anothers)),
    ],
)
def test_a_file_of_a_record_that_is_none(home: Home, name: str, make: Callable[[Path], None]) -> None:
    bad, good = job(home, "bad-1"), job(home, "good-1")
    if name == "lock":
        bad.events.write_bytes(b"")  # a job that has ended is not looked for its supervisor
    (bad.folder / name).unlink()
    make(bad.folder / name)
    home.ended.unlink()
    assert states(home) == {"bad-1": AppState.UNKNOWN, "good-1": AppState.SUCCEEDED}
    (line,) = jobs(home).select(AppQuery(called="bad-1"))
    assert "is damaged: it " in line.msg
    assert line.ended_at is not None, "nothing of it runs, so that it can be deleted and pruned"
    with pytest.raises(StateError, match="is damaged"):
        jobs(home).find("bad-1")
    assert [each.app_id for each in pruning.prune(home, ["bad-1"], dryrun=True)] == ["bad-1"]
    delete(jobs(home), "bad-1")
    assert states(home) == {"good-1": AppState.SUCCEEDED}
    assert good.record.exists()


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("make", KINDS)
def test_ended_job_whose_lock_is_no_file_is_deleted(home: Home, make: Callable[[Path], None]) -> None:
    bad, _ = job(home, "bad-1"), job(home, "good-1")
    bad.lock.unlink()
    make(bad.lock)
    delete(jobs(home), "bad-1")
    assert states(home) == {"good-1": AppState.SUCCEEDED}


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("make", KINDS)
def test_a_list_of_ended_jobs_that_is_none(home: Home, make: Callable[[Path], None]) -> None:
    paths = job(home, "good-1")
    home.ended.unlink()
    make(home.ended)
    for _ in range(2):
        assert states(home) == {"good-1": AppState.SUCCEEDED}
    ended.finish(load(paths), paths)  # finds no place, and nothing is written elsewhere
    target = home.path / "target"
    assert not target.exists() or target.read_bytes() == b'{"schema": 1}'
    assert list(pruning.prune(home, [])) == []
    if make is not folder:
        assert states(home) == {"good-1": AppState.SUCCEEDED}
        jobs(home).reconcile("good-1")
        assert home.ended.is_file()


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("make", [pipe, link, device, unix_socket, anothers])
def test_a_job_that_is_no_folder(home: Home, make: Callable[[Path], None]) -> None:
    job(home, "good-1")
    make(home.jobs / "bad-1")
    (home.jobs / "target").unlink(missing_ok=True)
    assert states(home) == {"bad-1": AppState.UNKNOWN, "good-1": AppState.SUCCEEDED}
    delete(jobs(home), "bad-1")
    assert not os.path.lexists(home.jobs / "bad-1")


def test_folder_of_no_job_is_deleted_by_shown_name(home: Home) -> None:
    job(home, "good-1")
    (home.jobs / "two\nlines").mkdir()
    (home.jobs / "empty-1").mkdir()
    listed = states(home)
    assert listed.keys() == {"good-1", "empty-1", "two%0Alines"}
    for app_id in listed:
        delete(jobs(home), app_id)
    assert list(home.jobs.iterdir()) == []


@as_root
def test_job_of_another_user_is_neither_believed_nor_signalled(home: Home) -> None:
    paths = job(home, "bad-1")
    paths.events.write_bytes(b"")
    os.chown(paths.folder, NOBODY, NOBODY)
    home.ended.unlink()
    assert states(home) == {"bad-1": AppState.UNKNOWN}
    assert paths.events.read_bytes() == b"", "nothing is noted in it"


# --- one malformed item hides no other --------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"schema": 99}',
        '{"schema": true}',
        '{"schema": NaN}',
        "1" * 10_000,
        "\udc80",
        '"\\ud800"',
    ],
    ids=["lists", "objects", "newer", "bool", "nan", "digits", "bytes", "surrogate"],
)
def test_a_record_that_is_no_record(home: Home, text: str) -> None:
    bad, _ = job(home, "bad-1"), job(home, "good-1")
    bad.record.write_bytes(text.encode("utf-8", "surrogateescape"))
    home.ended.unlink()
    assert states(home) == {"bad-1": AppState.UNKNOWN, "good-1": AppState.SUCCEEDED}
    assert [each.app_id for each in pruning.prune(home, ["bad-1", "good-1"])] == ["bad-1", "good-1"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session", "two\nlines"),
        ("session", "\ud800"),
        ("scheduler", "\u001b[31m"),
        ("scheduler", "never_installed"),
        ("submitted_at", 1e300),
        ("submitted_at", -1),
        ("submitted_at", float("nan")),
        ("submitted_at", 10**400),
        ("name", ["x"]),
        ("app", []),
        ("cfg", None),
        ("grace", "ten"),
        ("grace", float("inf")),
        ("roles", [{"name": "w", "replicas": [{"args": "x", "env": {}}], "env": {}}]),
        ("roles", [{"name": "w", "replicas": [], "env": {"A": 1}}]),
        ("roles", [{"name": "\ud800", "replicas": [], "env": {}}]),
        ("roles", [{"name": "w", "replicas": {}, "env": {}}]),
    ],
)
def test_a_value_that_cannot_be(home: Home, name: str, value: object) -> None:
    bad, _ = job(home, "bad-1"), job(home, "good-1")
    change(bad, **{name: value})
    assert states(home) == {"bad-1": AppState.UNKNOWN, "good-1": AppState.SUCCEEDED}
    other = LocalJobs(home, "local_dir")
    assert [line.app_id for line in other.select(AppQuery())] == [], "each is listed by one scheduler"
    delete(jobs(home), "bad-1")
    assert states(home) == {"good-1": AppState.SUCCEEDED}


@pytest.mark.parametrize(
    "change_line",
    [
        {"msg": ["x"]},
        {"ended_at": 1e300},
        {"ended_at": "x"},
        {"session": "two\nlines"},
        {"exit_code": "3"},
        {"state": "NO_STATE"},
        {"scheduler": "local_cwe"},
        {"app_id": "other-1"},
        {"name": 5},
    ],
    ids=str,
)
def test_line_that_cannot_be_is_read_from_record(home: Home, change_line: dict[str, object]) -> None:
    job(home, "good-1")
    line = {**json.loads(home.ended.read_text()), **change_line}
    if "app_id" in change_line:  # twice in one line: the first is what it is found by, the last what it says
        text = json.dumps({"app_id": "good-1"})[:-1] + "," + json.dumps(line)[1:]
    else:
        text = json.dumps(line)
    home.ended.write_text(text.replace(": ", ":").replace(", ", ",") + "\n")
    (listed,) = jobs(home).select(AppQuery())
    assert (listed.app_id, listed.state, listed.msg) == ("good-1", AppState.SUCCEEDED, "")


def test_half_of_character_in_message_is_no_obstacle(home: Home) -> None:
    paths = job(home, "good-1")
    end = {"t": time.time(), "e": "end", "state": "FAILED", "msg": "\ud800!", "first": None}
    paths.events.write_text(json.dumps(end) + "\n")
    home.ended.unlink()
    (listed,) = jobs(home).select(AppQuery())
    assert listed.msg.encode() == b"?!"


def test_a_prune_goes_on_behind_what_cannot_be_removed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a-1", "b-1", "c-1"):
        job(home, name)
    real = pruning.remove

    def remove(path: Path) -> None:
        if path.name == ".b-1":
            raise StateError(f"{path} cannot be removed: it is used")
        real(path)

    monkeypatch.setattr(pruning, "remove", remove)
    gone = []
    with pytest.raises(StateError, match=r"\.b-1 cannot be removed"):
        for each in pruning.prune(home, ["a-1", "b-1", "c-1"]):
            gone.append(each.app_id)
    assert gone == ["a-1", "c-1"]


def test_unreadable_job_with_a_live_supervisor_is_not_pruned(home: Home) -> None:
    paths = job(home, "bad-1")
    paths.record.write_text("{")
    held = lock.acquire(paths.lock)
    assert held is not None
    try:
        assert list(pruning.prune(home, ["bad-1"])) == []
        home.ended.unlink()
        (line,) = jobs(home).select(AppQuery())
        assert (line.state, line.ended_at) == (AppState.UNKNOWN, None)
    finally:
        os.close(held)
