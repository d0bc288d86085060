"""What is written to a record is read back, values within their bounds are accepted, and no others."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx import json_shape
from torchx.errors import StateError
from torchx.jobs import events, record
from torchx.jobs.catalog import paths_of
from torchx.jobs.events import Clock, EventLog, read_events
from torchx.jobs.paths import Home, LogPaths, file_name
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord, is_own_log_dir

# --- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (
            json_shape.timestamp,
            [0, 0.5, json_shape.LATEST],
            [-0.1, json_shape.LATEST * 2, float("nan"), True, "1", None],
        ),
        (
            json_shape.integer,
            [0, 1, json_shape.LARGEST_NUMBER],
            [-1, json_shape.LARGEST_NUMBER + 1, 1.0, True, "1", None],
        ),
        (
            json_shape.exit_code,
            [None, -(1 << 31), 0, (1 << 32) - 1],
            [-(1 << 31) - 1, 1 << 32, 0.0, False, "0"],
        ),
        (
            json_shape.signal_name,
            [None, "SIGKILL", "SIG40", "SIGRTMIN10"],
            ["", "KILL", "SIG", "SIG1234", "SIGkill", 9],
        ),
        (
            json_shape.handle_text,
            ["", "a b", "é"],
            ["a\nb", "\x1b", "\x7f", "\x85", "\u2028", "\ud800", 1, None],
        ),
        (json_shape.system_text, ["", "é", "\udc80"], ["\ud800", b"x", None]),
        (
            json_shape.check_of(list[json_shape.SystemText]),
            [[], ["a", "\udc80"]],
            ["a", ("a",), [1], ["\ud800"], None],
        ),
        (
            json_shape.check_of(json_shape.Environment),
            [{}, {"A": "1"}],
            [{"A": 1}, {1: "A"}, {"A": "\ud800"}, [], None],
        ),
        (json_shape.mapping, [{}, {"a": 1}], [[], "a", None]),
        (json_shape.sequence, [[], [1]], [{}, "a", (), None]),
    ],
)
def test_values_within_their_bounds(
    check: Callable[[Any, str], Any], good: list[Any], bad: list[Any]
) -> None:
    assert [check(value, "x") for value in good] == good
    for value in bad:
        with pytest.raises((TypeError, ValueError), match=r"`x` |can't encode"):
            check(value, "x")


def test_half_characters_of_a_text_are_replaced() -> None:
    assert [json_shape.text(text, "x") for text in ("", "a", "é", "a\ud800é")] == ["", "a", "é", "a?é"]


# --- records -----------------------------------------------------------------------------------------


def whole(home: Home) -> JobRecord:
    replicas = [ReplicaRecord(["a", "\udc80"], {"A": "1"}), ReplicaRecord([], {})]
    roles = [
        RoleRecord("w", replicas, {"B": "2"}, "/cwd", 3, "ROLE", 2, "/workspace"),
        RoleRecord("x", replicas[:1], {}),
    ]
    logs = str(home.logs / "torchx" / "job-1")
    app, cfg = {"name": "job"}, {"a": 1}
    return JobRecord("job-1", "local_cwd", "torchx", "job", 5.5, logs, roles, app, cfg, 7.5, False, 0.25)


def saved(home: Home, written: JobRecord, **changed: object) -> Path:
    path = home.job("job-1").record
    path.parent.mkdir(parents=True, exist_ok=True)
    written.save(path)
    if changed:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return path


def test_a_record_is_read_as_it_was_written(home: Home) -> None:
    path = saved(home, whole(home))
    assert JobRecord.load(path) == whole(home)
    assert path.stat().st_mode & 0o777 == 0o600
    assert whole(home).handle == "local_cwd://torchx/job-1"
    assert [(n, role.name, i) for n, role, i in whole(home).replicas()] == [
        (0, "w", 0),
        (1, "w", 1),
        (2, "x", 0),
    ]


def test_fields_that_an_older_version_did_not_write(home: Home) -> None:
    path = saved(home, whole(home))
    data = json.loads(path.read_text())
    for name in ("grace", "fail_fast", "backoff"):
        del data[name]
    data["roles"] = [{"name": "w", "replicas": [{"args": [], "env": {}}], "env": {}}]
    path.write_text(json.dumps(data))
    read = JobRecord.load(path)
    assert (read.grace, read.fail_fast, read.backoff) == (10.0, True, 1.0)
    assert read.roles == [RoleRecord("w", [ReplicaRecord([], {})], {}, None, 0, "APPLICATION", 0, None)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"schema": 3}, "was written by a newer version (schema 3, known: 2)"),
        ({"schema": 0}, "is damaged: `schema` is out of range"),
        ({"scheduler": ""}, "is damaged: `scheduler` is empty"),
        ({"app_id": "job-2"}, "is damaged: it is the record of another job"),
        ({"log_dir": "/logs/other/job-1"}, "is damaged: `log_dir` is not a folder of this job"),
        ({"grace": -1}, "is damaged: `grace` is out of range"),
    ],
)
def test_why_a_record_is_not_read(home: Home, changed: dict[str, object], why: str) -> None:
    path = saved(home, whole(home), **changed)
    with pytest.raises(StateError) as caught:
        JobRecord.load(path)
    assert caught.value.message == f"the record {path} {why}"


def test_record_that_cannot_be_read_or_does_not_exist(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(home, whole(home))
    for missing in (
        home.job("job-2").record,
        home.job("x" * 300).record,
        Path("/a\0b/job.json"),
        path / "x" / "y",
    ):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            JobRecord.load(missing)

    def fail(path: Path, largest: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(record.files, "read_file", fail)
    with pytest.raises(StateError, match=r"job\.json cannot be read: Input/output error"):
        JobRecord.load(path)


def test_a_record_has_a_maximum_size(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(home, whole(home))
    size = path.stat().st_size
    for largest in (size, size - 1):
        monkeypatch.setattr(record, "LARGEST", largest)
        if largest == size:
            whole(home).save(path)
            assert JobRecord.load(path) == whole(home)
            continue
        with pytest.raises(StateError, match="the record of the application takes 0 MB, maximum 0 MB"):
            whole(home).save(path)
        with pytest.raises(StateError, match="is damaged: it has more than"):
            JobRecord.load(path)


@pytest.mark.parametrize(
    ("log_dir", "own"),
    [
        ("/logs/torchx/a-1", True),
        ("/torchx/a-1", False),
        ("logs/torchx/a-1", False),
        ("/logs/../x/torchx/a-1", False),
        ("/logs/torchx/a-2", False),
        ("/logs/other/a-1", False),
        ("/logs/torchx/a-1/w", False),
        ("/logs\0/torchx/a-1", False),
    ],
)
def test_which_log_folders_are_of_a_job(log_dir: str, own: bool) -> None:
    assert is_own_log_dir(log_dir, "torchx", "a-1") is own


# --- names and paths ---------------------------------------------------------------------------------


def test_names_of_files() -> None:
    assert [file_name(name) for name in ("a-1_b.c +,=@:~", ".", "...", "", "é", "a\0", "\udc80", "%")] == [
        *("a-1_b.c +,=@:~", "%2E", "%2E%2E%2E", "", "%C3%A9", "a%00", "%80", "%25"),
    ]


def test_the_folders_of_replicas() -> None:
    logs = LogPaths(Path("/logs/torchx/a-1"))
    assert logs.replica("w/1", 2) == Path("/logs/torchx/a-1/w%2F1/2")
    assert logs.torchelastic("w/1") == Path("/logs/torchx/a-1/torchelastic/w%2F1")


def test_folder_with_invalid_id_is_found_by_shown_name(home: Home) -> None:
    for name in ("a\nb", "a%0Ac"):
        (home.jobs / name).mkdir(parents=True)
    assert paths_of(home, "a%0Ab").folder == home.jobs / "a\nb"
    assert paths_of(home, "a%0Ac").folder == home.jobs / "a%250Ac"
    assert paths_of(home, "a%0Ad").folder == home.jobs / "a%250Ad"
    assert paths_of(home, "plain-1").folder == home.jobs / "plain-1"


# --- events ------------------------------------------------------------------------------------------


def test_a_clock_does_not_start_before_a_time() -> None:
    later = time.time() + 5000
    assert later <= Clock(later).now() < later + 60
    assert abs(Clock(5.0).now() - time.time()) < 60
    assert Clock().ns() / 1e9 == pytest.approx(time.time(), abs=60)


def test_events_are_appended_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "events"
    for text, expected in (
        ("", ["a"]),
        ('{"e":"x"}\n', ["x", "a"]),
        ('{"e":"x"}', ["x", "a"]),
        ('{"e":', ["a"]),
    ):
        path.write_text(text)
        log = EventLog(path, Clock())
        log.add("a", t=5.0, r=1)
        log.close()
        assert [event["e"] for event in read_events(path)] == expected
        assert path.read_bytes().endswith(
            b'\n{"t":5.0,"e":"a","r":1}\n' if text else b'{"t":5.0,"e":"a","r":1}\n'
        )
        assert b"\n\n" not in path.read_bytes()


def test_on_a_full_disk_the_reserve_makes_room_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, reserve = tmp_path / "events", tmp_path / "reserve"
    reserve.write_bytes(b"x")
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:4] if reserve.exists() else data)

    monkeypatch.setattr(events.os, "write", write)
    log = EventLog(path, Clock(), reserve)
    log.add("first")
    assert not reserve.exists()
    log.add("second")
    assert [event["e"] for event in read_events(path)] == ["first", "second"]
    monkeypatch.setattr(events.os, "write", lambda descriptor, data: len(data) - 1)
    with pytest.raises(OSError, match="No space left on device"):
        log.add("third")
    log.close()


def test_too_many_events_and_lines_that_are_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events"
    line = '{"e":"x"}\n'
    path.write_text(line + '{"e":"y","x":"%s"}\n' % ("z" * 100) + line)
    monkeypatch.setattr(events, "LONGEST_LINE", 60)
    assert [event["e"] for event in read_events(path)] == ["x", "x"]
    monkeypatch.setattr(events, "LARGEST", path.stat().st_size)
    assert len(list(read_events(path))) == 2
    monkeypatch.setattr(events, "LARGEST", path.stat().st_size - 1)
    with pytest.raises(OSError, match="it is larger than 0 MB"):
        list(read_events(path))
