"""Readers of Slurm's answers and of the files of jobs: whatever these hold, only documented errors."""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import StateError
from torchx.schedulers.shared.batch.marks import mark_of
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.progress import attempts_of, read_script_end
from torchx.schedulers.shared.batch.record import BatchRecord, Records, read_record
from torchx.schedulers.slurm import queue as slurm_jobs
from torchx.schedulers.slurm.marked import minimal_record
from torchx.schedulers.slurm.outcome import outcome_of, outcome_without_slurm
from torchx.schedulers.slurm.parse import (
    ACCOUNT_FORMAT,
    JobFacts,
    by_job,
    hosts_of,
    queue_format,
    read_account,
    read_queue,
    separator,
)
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.schedulers.slurm.status import describe, listed
from torchx.specs.status import AppState

BOUND = settings(max_examples=60)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "\ud800",
            "\udcff",
            "a\nb",
            "1e999",
            "-1",
            "9" * 5000,
            "NaN",
            "RUNNING",
            "COMPLETED",
            "b1",
            "²",
            "\0",
        ]
    ),
)
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([1 << 63, 1 << 200, 10**400, -1, 1e308, float("nan")])
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
ME = slurm_jobs.user_name()


def everything_works(queue: list[JobFacts]) -> None:
    """Whatever can be said of a job is said, by all that a command needs."""
    for parts in by_job(queue).values():
        mark_of(parts[0].comment)
        outcome = outcome_of(None, parts)
        assert outcome is not None
        outcome.msg.encode("utf-8", "surrogateescape")
        for part in parts:
            assert len(list(islice(hosts_of(part.nodes), 200_000))) <= 100_000
            part.name.encode("utf-8", "surrogateescape")
        result = minimal_record(parts[0], "b1", [], True)
        describe(result, "7", outcome, parts)
        listed(result, "7", outcome)


@given(st.one_of(TEXTS, VALUES.map(lambda value: json.dumps(value))))
@BOUND
def test_what_is_no_answer_at_all(text: str) -> None:
    assert isinstance(read_queue(text), list)
    assert isinstance(read_account(text), list)


LINE = st.text(alphabet=st.characters(exclude_categories=()), max_size=60) | TEXTS


@given(
    LINE,
    LINE,
    st.sampled_from(["\n", "|", "\n8|8|RUNNING|1|1|1|root||None|x|torchx:zz:/x", "\x0b", "\u2028"]),
)
@BOUND
def test_a_name_with_line_breaks_hides_and_forges_nothing(name: str, comment: str, odd: str) -> None:
    between = separator()
    rows = [
        ["7", "7", "RUNNING", "5", "6", "N/A", ME, "node1", "None", f"{name}{odd}", f"{comment}{odd}"],
        ["9", "9", "PENDING", "5", "N/A", "N/A", "bob", "", "Priority", "next", "torchx:b1:/x"],
    ]
    text = "".join(between.join(row) + "\n" for row in rows)
    found = read_queue(text, between)
    assert [(job.job_id, job.state, job.user) for job in found] == [(7, "RUNNING", ME), (9, "PENDING", "bob")]
    assert found[1].name == "next"
    found = read_account(text, between)
    assert [(job.job_id, job.state) for job in found] == [(7, "RUNNING"), (9, "PENDING")]
    everything_works(found)


def test_the_formats_have_as_many_fields_as_are_read() -> None:
    assert queue_format("|").count("|") == ACCOUNT_FORMAT.count(",") == 10


@given(
    st.text(alphabet="a0129,[]-", max_size=40)
    | st.sampled_from(["n[0-999999999]", "[0-9]" * 5000, "n[1-2" * 900])
)
@BOUND
def test_lists_of_nodes(nodes: str) -> None:
    begun = time.process_time()
    assert sum(1 for _ in hosts_of(nodes)) <= 100_000
    assert time.process_time() - begun < 2


RECORD = {
    "job_id": 7, "token": "b1", "name": "a", "job_name": "a-b1", "session": "torchx", "submitted_at": 1.0,
    "app": {"name": "a", "roles": [{"name": "r", "num_replicas": 1, "max_retries": 0}]}, "cfg": {},
    "schema": 1,
}  # fmt: skip
ROLE = st.dictionaries(st.sampled_from(["name", "num_replicas", "max_retries", "image", "env"]), VALUES)
CHANGES = st.one_of(
    st.dictionaries(st.sampled_from([*RECORD, "folder", "damage"]), VALUES, min_size=1, max_size=3),
    st.fixed_dictionaries(
        {"app": st.fixed_dictionaries({"name": TEXTS, "roles": st.lists(ROLE, max_size=2)})}
    ),
    st.sampled_from(
        [{"session": "a\nb"}, {"name": "\ud800"}, {"submitted_at": 1e300}, {"folder": "/"}, {"schema": 9}]
    ),
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "a-b1"
    (folder / "r" / "0" / "attempt-1").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    (Path(os.environ["TORCHX_HOME"]) / "slurm" / "index").mkdir(parents=True, exist_ok=True)
    return folder


@given(CHANGES)
@BOUND
def test_records_of_any_shape(home: Path, changes: dict[str, Any]) -> None:
    path = Path(os.environ["TORCHX_HOME"]) / "slurm" / "index" / "7-b1.json"
    path.write_text(json.dumps({**RECORD, "folder": str(home), **changes}))
    sound = path.with_name("9-c2.json")
    folder = str(home.with_name("s-c2"))
    sound.write_text(json.dumps({**RECORD, "job_id": 9, "token": "c2", "name": "sound", "folder": folder}))
    found = {record.job_id: record for record in Records("slurm").all()}
    assert found[9].name == "sound"
    record = found[7]
    outcome = outcome_of(record, ()) or outcome_without_slurm(record)
    if record.damage:
        assert (outcome.state, outcome.msg) == (AppState.UNKNOWN, record.damage)
        assert record.paths.folder == Path("/dev/null/no-folder"), "no path of it is believed"
    described = describe(record, "7", outcome, ())
    line = listed(record, "7", outcome)
    "".join([described.name, described.msg, line.name, line.msg, line.app_handle]).encode(
        "utf-8", "surrogateescape"
    )
    assert "\n" not in line.app_handle + line.msg


@given(
    st.dictionaries(
        st.sampled_from(["exit_code", "signal", "told", "msg", "host", "started_at", "ended_at"]), VALUES
    )
)
@BOUND
def test_ends_of_any_shape(home: Path, end: dict[str, Any]) -> None:
    (home / "r" / "0" / "attempt-1" / "end.json").write_text(json.dumps(end))
    record = BatchRecord(**{**RECORD, "folder": str(home)})
    for state in ("COMPLETED", "RUNNING", "FAILED", ""):
        outcome = outcome_of(record, [JobFacts(7, 0, state)])
        assert outcome is not None
        described = describe(record, "7", outcome, ())
        assert described.msg.isprintable() or described.msg


@given(
    st.binary(max_size=40) | st.sampled_from([b"7 0 1e999", b"7 -1 3", b"9" * 5000, b"7 0 99999999999999"])
)
@BOUND
def test_small_files_of_any_content(home: Path, data: bytes) -> None:
    paths = BatchPaths(home)
    for path in (paths.over, paths.attempt, paths.outcome, paths.id, paths.batch_log, paths.record):
        path.write_bytes(data)
    over = read_script_end(paths)
    assert over is None or 0 <= over.code < 1000
    assert attempts_of(paths) >= 0
    record = BatchRecord(**{**RECORD, "folder": str(home)})
    listed(record, "7", outcome_of(record, ()) or outcome_without_slurm(record))
    with pytest.raises(ValueError, match=r".+"):
        read_record(paths.record, "b1")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "huge"])
def test_files_that_are_none_hold_up_nothing(home: Path, kind: str) -> None:
    """A pipe would block the reader, a link leads elsewhere."""
    index = Path(os.environ["TORCHX_HOME"]) / "slurm" / "index" / "7-b1.json"
    paths = BatchPaths(home)
    attempt = home / "r" / "0" / "attempt-1"
    for path in (index, paths.over, paths.attempt, paths.outcome, paths.batch_log, attempt / "end.json"):
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/dev/zero")
        elif kind == "folder":
            path.mkdir()
        else:
            path.touch()
            os.truncate(path, 1 << 40)
    (damaged,) = Records("slurm").all()
    assert damaged.damage.startswith("its record is damaged")
    record = BatchRecord(**{**RECORD, "folder": str(home)})
    outcome = outcome_of(record, ()) or outcome_without_slurm(record)
    assert describe(record, "7", outcome, ()).state in (AppState.UNKNOWN, AppState.CANCELLED)
    Records("slurm").remove(damaged)
    assert not list(Records("slurm").all())


def test_a_damaged_record_is_listed_and_deleted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Path(os.environ["TORCHX_HOME"]) / "slurm" / "index"
    usual = index.parent / "jobs" / "a-b1"
    usual.mkdir(mode=0o700, parents=True)
    (index / "7-b1.json").write_text("{half")
    (index / "8-c2.json").write_text(json.dumps({**RECORD, "job_id": 8, "token": "c2", "schema": 2}))
    monkeypatch.setattr(slurm_jobs, "query_all_jobs", lambda all_users: dict)
    monkeypatch.setattr(slurm_jobs, "ANSWERS", SimpleNamespace(about=lambda key: []))
    monkeypatch.setattr(slurm_jobs, "query_accounting", lambda records: [])
    monkeypatch.setattr("torchx.schedulers.slurm.commands.require_slurm", lambda program: None)
    monkeypatch.setattr("torchx.schedulers.slurm.commands.call", lambda *argv, **more: "")
    scheduler = create_scheduler("torchx")
    reported = {line.app_id: (line.state.name, line.msg.partition(":")[0]) for line in scheduler.list()}
    assert reported == dict.fromkeys(("7", "8"), ("UNKNOWN", "its record is damaged"))
    for app_id in reported:
        with pytest.raises(StateError, match="cannot read the logs of the job: its record is damaged: "):
            list(scheduler.log_iter(app_id, "r"))
        scheduler.delete(app_id)
    assert list(scheduler.list()) == []
    assert not usual.exists(), "its folder is found by its name"
