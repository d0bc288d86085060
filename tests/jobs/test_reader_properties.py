"""Every reader of what a local job keeps, given anything: a documented error at most, and soon."""

from __future__ import annotations

import copy
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torchx.errors import StateError
from torchx.jobs import ended
from torchx.jobs.catalog import catalog
from torchx.jobs.events import read_events
from torchx.jobs.log_index import LAYOUT
from torchx.jobs.log_reader import JobLog, Member
from torchx.jobs.paths import Home, LogPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord, scheduler_in
from torchx.jobs.view import load
from torchx.machine import locks as lock
from torchx.schedulers.local.scheduler import LocalScheduler
from torchx.schedulers.local.status import LocalJobs
from torchx.scheduling.base import ListAppResponse
from torchx.scheduling.logs import LogQuery, Stream
from torchx.scheduling.query import AppQuery
from torchx.specs.app import AppDef, Role
from torchx.specs.serialize import app_to_dict

APP_ID = "fuzz-b1"
OTHER = "good-b1"
SOON = 20.0
"""Seconds for one example, on a machine that has much else to do; they take some milliseconds."""

TEXTS = st.one_of(
    st.text(st.characters(), max_size=8),  # half characters included
    st.sampled_from(
        ["", "two\nlines", "\ud800", "\udc80", "\x1b[2J", "\u202e", "a" * 5000, "NaN", "../..", "SIGKILL"]
    ),
)
NUMBERS = st.one_of(
    st.integers(-2, 3),
    st.sampled_from([2**31, 2**63, 2**64, 10**30, -(10**30), 10**400, True, False]),
    st.floats(),
)
VALUES = st.recursive(
    st.none() | TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.fixed_dictionaries(
    {
        "e": st.sampled_from(
            ["supervisor", "starting", "start", "not_started", "exit", "retry", "cancel", "end", "new"]
        )
    },
    optional={
        "t": VALUES | st.floats(0, 4e9),
        "r": VALUES | st.just(0),
        "a": VALUES | st.just(1),
        # no process has such a pid: nothing is signalled on the word of these
        "pid": VALUES | st.just((1 << 22) - 1),
        "start": VALUES | st.just(5),
        "boot": VALUES,
        "guard": VALUES | st.just([(1 << 22) - 1, 5]),
        "code": VALUES | st.just(3),
        "signal": VALUES | st.sampled_from(["SIGKILL", "SIGRTMIN+3", "SIG99"]),
        "stopped": VALUES,
        "msg": VALUES | TEXTS,
        "peak_kib": VALUES,
        "state": VALUES | st.sampled_from(["FAILED", "SUCCEEDED"]),
        "first": VALUES | st.just([0, 1]),
    },
)


def record() -> JobRecord:
    folder = Home(Path(os.environ["TORCHX_HOME"])).logs / "torchx" / APP_ID
    roles = [RoleRecord("w", [ReplicaRecord(["true"], {}), ReplicaRecord(["true"], {"A": "1"})], {"B": "2"})]
    app = app_to_dict(AppDef("fuzz", [Role("w", "", entrypoint="true", num_replicas=2)]))
    return JobRecord(APP_ID, "local_cwd", "torchx", "fuzz", 1e9, str(folder), roles, app, {"a": 1})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A state home with one job that is spoiled, whose supervisor seems to live, and another one."""
    with pytest.MonkeyPatch.context() as patch:
        home = Home(tmp_path_factory.mktemp("fuzz") / ".torchx")
        patch.setenv("TORCHX_HOME", str(home.path))
        paths, other = home.job(APP_ID), home.job(OTHER)
        for each in (paths, other):
            each.folder.mkdir(parents=True)
        record().save(paths.record)
        logs = home.logs / "torchx" / OTHER
        record()._replace(app_id=OTHER, log_dir=str(logs)).save(other.record)
        other.events.write_text('{"t":2e9,"e":"end","state":"SUCCEEDED","first":null}\n')
        held = lock.acquire(paths.lock)
        assert held is not None
        yield home
        os.close(held)


@pytest.fixture(autouse=True)
def _same_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(home.path))
    record().save(home.job(APP_ID).record)
    home.job(APP_ID).events.write_bytes(b"")
    home.ended.unlink(missing_ok=True)


def check(home: Home) -> None:
    """Reads all that there is to be read, as the commands do."""
    began = time.monotonic()
    paths = home.job(APP_ID)
    try:
        load(paths)
    except (StateError, FileNotFoundError) as error:
        assert "\n" not in str(getattr(error, "message", ""))
    listed = list(LocalJobs(home, "local_cwd").select(AppQuery()))
    listed += LocalJobs(home, "local_dir").select(AppQuery())
    mine = [APP_ID]
    if scheduler_in(paths.record) == "local_docker":  # which lists it
        mine = []
    assert sorted(line.app_id for line in listed) == [*mine, OTHER], "each is listed, and once"
    for line in listed:
        shown(line)
    for question in (LocalScheduler("torchx").describe, LocalScheduler("torchx").glance):
        try:
            described = question(APP_ID)
        except StateError:
            continue
        assert described is not None
        json.dumps(described.msg).encode()
        for role in described.roles_statuses:
            for replica in role.replicas:
                for attempt in replica.attempts:
                    assert attempt.started_at is None or attempt.started_at.isoformat()
                    attempt.msg.encode()
    assert time.monotonic() - began < SOON


def shown(line: ListAppResponse) -> None:
    """Uses a line as a listing does."""
    for moment in (line.submitted_at, line.started_at, line.ended_at):
        assert moment is None or moment.isoformat()
    assert line.exit_code is None or line.exit_code + (1 << 31) >= 0
    (line.app_id + line.name + line.msg + line.app_handle).encode()


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the way to each value within some JSON."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def spoiled(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(data)
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


fuzzed = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@fuzzed
@given(data=st.data(), value=VALUES)
def test_a_record_of_which_one_value_is_anything(home: Home, data: st.DataObject, value: Any) -> None:
    whole = json.loads(json.dumps(record()._plain()))
    path = data.draw(st.sampled_from(list(places(whole))))
    home.job(APP_ID).record.write_text(json.dumps(spoiled(whole, path, value)))
    check(home)


def test_a_record_of_an_unknown_scheduler(home: Home) -> None:
    home.job(APP_ID).record.write_text(json.dumps(spoiled(record()._plain(), ("scheduler",), "0")))
    check(home)


@fuzzed
@given(raw=st.binary(max_size=64) | VALUES.map(lambda value: json.dumps(value).encode()))
@example(raw=b"[" * 100_000)
@example(raw=b'{"app":' * 100_000)
@example(raw=b"\xff\xfe{\x00")
def test_a_record_that_is_anything(home: Home, raw: bytes) -> None:
    home.job(APP_ID).record.write_bytes(raw)
    check(home)


@fuzzed
@given(events=st.lists(EVENTS, max_size=8), rest=st.binary(max_size=40))
@example(events=[], rest=b"[" * 60_000)
@example(events=[], rest=b'{"e":"end","x":"' + b"x" * 200_000)
def test_events_that_are_anything(home: Home, events: list[dict[str, Any]], rest: bytes) -> None:
    paths = home.job(APP_ID)
    paths.events.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in events) + rest)
    for event in read_events(paths.events):
        assert isinstance(event["e"], str)
    home.ended.unlink(missing_ok=True)
    check(home)


@fuzzed
@given(line=st.dictionaries(st.sampled_from(ended.EndedJob._fields), VALUES), raw=st.binary(max_size=40))
@example(line={"msg": ["x"]}, raw=b"")
@example(line={"ended_at": 1e300}, raw=b"")
def test_a_list_of_ended_jobs_that_is_anything(home: Home, line: dict[str, Any], raw: bytes) -> None:
    paths = home.job(APP_ID)
    paths.events.write_text('{"t":2e9,"e":"end","state":"SUCCEEDED","first":null}\n')
    facts = {**ended.EndedJob.of(load(paths))._asdict(), **line}
    facts["app_id"] = APP_ID
    text = json.dumps(facts, separators=(",", ":")).encode()
    home.ended.write_bytes(text + b"\n" + raw + b"\n" + text[: len(text) // 2] + b"\n")
    for each in catalog(home).lines.values():
        ended.submitted_at(each)
        ended.parse(each)
    check(home)


ENTRIES = st.tuples(
    st.integers(0, 2**64 - 1),
    st.integers(0, 40) | st.integers(0, 2**64 - 1),
    st.integers(0, 40) | st.integers(0, 2**32 - 1),
    st.integers(0, 3) | st.integers(0, 2**32 - 1),
    st.integers(0, 3) | st.integers(0, 2**16 - 1),
    st.integers(0, 3),
    st.integers(0, 255),
)


@fuzzed
@given(
    entries=st.lists(ENTRIES, max_size=12),
    rest=st.binary(max_size=40),
    tail=st.none() | st.integers(0, 5),
    regex=st.none() | st.just("a"),
    stream=st.sampled_from(list(Stream)),
)
@example(entries=[(1, 2**63, 1, 0, 1, 1, 0)], rest=b"", tail=None, regex=None, stream=Stream.COMBINED)
@example(entries=[(1, 0, 2**32 - 1, 0, 1, 1, 0)] * 9, rest=b"", tail=2, regex=None, stream=Stream.COMBINED)
def test_a_log_index_that_is_anything(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[int, ...]],
    rest: bytes,
    tail: int | None,
    regex: str | None,
    stream: Stream,
) -> None:
    logs = LogPaths(tmp_path_factory.getbasetemp() / "index")
    folder = logs.replica("w", 0)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("combined.log", "stdout.log", "stderr.log"):
        (folder / name).write_bytes(b"abc\n" * 8)
    logs.index.write_bytes(b"".join(LAYOUT.pack(*each) for each in entries) + rest)
    query = LogQuery(tail=tail, regex=regex, stream=stream)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunks = list(JobLog(logs, [Member("w", 0), Member("w", 1)], lambda: False).read(query))
    assert sum(len(chunk.data) for chunk in chunks) <= 32 * 4, (
        "nothing is returned more than once in an attempt"
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
