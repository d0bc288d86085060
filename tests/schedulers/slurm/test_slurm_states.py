"""The state of a job from all that is known, and from parts that are lost."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import StateError
from torchx.exit_codes import TIMED_OUT
from torchx.jobs.log_index import PARTIAL, STDOUT, WHOLE, Piece, encode
from torchx.jobs.log_reader import Member
from torchx.schedulers.shared.batch.logs import BatchLog, require_folder
from torchx.schedulers.shared.batch.outcome import Outcome, save_outcome
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.batch.status import MAX_LISTED_REPLICAS
from torchx.schedulers.slurm.outcome import outcome_of, outcome_without_slurm
from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.status import describe, listed
from torchx.scheduling.logs import LogQuery, Stream
from torchx.specs.status import AppState, EndCause

NOW = float(int(time.time()))  # a time with fractions differs after its conversions


@pytest.fixture(autouse=True)
def _this_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes may lie between the reading of this file and a test."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", time.time())


def record(folder: Path, job_id: int = 7, token: str = "b1", **changes: Any) -> BatchRecord:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    app = {"name": "a", "roles": [{"name": "r", "num_replicas": 2, "max_retries": 1}]}
    facts = {"submitted_at": NOW - 600, "app": app, **changes}
    return BatchRecord(job_id, token, "a", f"a-{token}", "torchx", str(folder), **facts)


def facts(state: str, reason: str = "", **changes: Any) -> JobFacts:
    return JobFacts(7, 0, state, reason, "a-b1", submitted=NOW - 600, **changes)


def end(folder: Path, replica: int, attempt: int = 1, **answer: Any) -> None:
    place = folder / "r" / str(replica) / f"attempt-{attempt}"
    place.mkdir(parents=True)
    (place / "end.json").write_text(
        json.dumps({"host": f"node{replica}", "started_at": NOW - 9, "ended_at": NOW, **answer})
    )


@pytest.mark.parametrize(
    ("state", "expected", "said"),
    [
        ("COMPLETED", AppState.SUCCEEDED, ""),
        ("FAILED", AppState.FAILED, ""),
        ("CANCELLED", AppState.CANCELLED, "cancelled"),
        ("TIMEOUT", AppState.FAILED, "time limit reached"),
        ("OUT_OF_MEMORY", AppState.FAILED, "out of memory"),
        ("NODE_FAIL", AppState.FAILED, "a node failed"),
        ("PREEMPTED", AppState.FAILED, "preempted by a job of higher priority"),
        ("LAUNCH_FAILED", AppState.FAILED, "it could not be started on its nodes"),
        (
            "A_NEW_WORD",
            AppState.UNKNOWN,
            "Slurm reports A_NEW_WORD: neither an end nor a known state",
        ),
        ("RUNNING", AppState.RUNNING, ""),
        ("SUSPENDED", AppState.RUNNING, "suspended"),
        ("COMPLETING", AppState.RUNNING, ""),
        ("CONFIGURING", AppState.PENDING, "its nodes are being prepared"),
        ("PENDING", AppState.PENDING, "Slurm has not considered it yet"),
    ],
)
def test_states_by_slurms_words(tmp_path: Path, state: str, expected: AppState, said: str) -> None:
    found = outcome_of(record(tmp_path), [facts(state)])
    assert found is not None
    assert (found.state, found.msg) == (expected, said)


def test_why_it_waits_and_until_when(tmp_path: Path) -> None:
    start = NOW + 86400
    found = outcome_of(record(tmp_path), [facts("PENDING", "Priority", started=start)])
    assert found is not None
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(start))
    assert found.msg == f"Priority: other jobs have higher priority; expected to start at {when}"
    found = outcome_of(record(tmp_path), [facts("PENDING", "Resources", started=NOW + 360 * 86400)])
    assert found is not None
    assert found.msg == "Resources: waits for free nodes", "Slurm adds a year to an unknown end"
    for reason, said in (
        ("QOSMaxGRESPerUser", "a limit"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "are down"),
        ("Odd", "Odd"),
    ):
        found = outcome_of(record(tmp_path), [facts("PENDING", reason)])
        assert found is not None
        assert said in found.msg


def test_end_that_it_reports_itself_counts(tmp_path: Path) -> None:
    mine = record(tmp_path)
    (tmp_path / "over").write_text(f"7 0 {int(NOW)}\n")
    running = [facts("RUNNING", started=NOW - 5)]
    found = outcome_of(mine, running)
    assert found is not None
    assert found.state is AppState.SUCCEEDED
    again = outcome_of(mine, [facts("RUNNING", started=NOW + 60)])
    assert again is not None
    assert again.state is AppState.RUNNING, "the end of an earlier run"


def test_cancelled_before_the_script_could_hear_of_it(tmp_path: Path) -> None:
    mine = record(tmp_path)
    (tmp_path / "over").write_text(f"7 1 {int(NOW)}\n")
    for queue in ([facts("CANCELLED")], [facts("RUNNING", started=NOW - 5)], []):
        found = outcome_of(mine, queue)
        assert found is not None
        assert found.state is AppState.FAILED, "it had failed before"
        (tmp_path / "outcome.json").unlink(missing_ok=True)
    (tmp_path / "cancelled").touch()
    os.utime(tmp_path / "cancelled", (NOW - 1, NOW - 1))
    for queue in ([facts("RUNNING", started=NOW - 5)], [], [facts("CANCELLED")]):
        found = outcome_of(mine, queue)
        assert found is not None
        assert (found.state, found.msg) == (AppState.CANCELLED, "cancelled")


def test_without_queue_and_accounting(tmp_path: Path) -> None:
    mine = record(tmp_path)
    assert outcome_of(mine, []) is None
    assert outcome_without_slurm(mine).state is AppState.UNKNOWN
    assert outcome_without_slurm(record(tmp_path, submitted_at=time.time())).state is AppState.SUBMITTED
    (tmp_path / "batch.log").write_text(
        "slurmstepd: error: *** JOB 7 ON n CANCELLED AT x DUE TO TIME LIMIT ***\n"
    )
    assert outcome_without_slurm(mine).msg == "time limit reached"
    (tmp_path / "over").write_text(f"7 3 {int(NOW)}\n")
    found = outcome_of(mine, [])
    assert found is not None
    assert (found.state, found.exit_code) == (AppState.FAILED, 3)


def test_a_step_that_was_killed_for_its_memory(tmp_path: Path) -> None:
    mine = record(tmp_path)
    (tmp_path / "over").write_text(f"7 137 {int(NOW)}\n")
    killed = "slurmstepd-n: error: StepId=7.0 exceeded memory limit (2 > 1), being killed\n"
    others = "srun: error: node1: task 7: Killed\n" * 1000
    for said in (
        killed,
        killed + others,
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some …\n",
    ):
        (tmp_path / "batch.log").write_text(f"== attempt 1\n{said}")
        for queue in ([facts("FAILED")], [facts("RUNNING", started=NOW - 5)], []):
            (tmp_path / "outcome.json").unlink(missing_ok=True)
            found = outcome_of(mine, queue)
            assert found is not None
            assert (found.state, found.msg) == (AppState.FAILED, "out of memory")
    (tmp_path / "outcome.json").unlink(missing_ok=True)
    (tmp_path / "batch.log").write_text(f"== attempt 1\n{killed}== attempt 2\n")
    found = outcome_of(mine, [facts("FAILED")])
    assert found is not None
    assert found.msg == "", "that was an earlier attempt"


def test_an_end_that_was_waited_for_is_remembered(tmp_path: Path) -> None:
    mine = record(tmp_path / "jobs" / "a-b1")
    ended = outcome_of(mine, [facts("NODE_FAIL", ended=NOW)])
    assert ended is not None
    assert outcome_of(mine, []) is None, "a query writes nothing"
    save_outcome(mine, ended)
    found = outcome_of(mine, [])
    assert found is not None
    assert (found.state, found.msg) == (AppState.FAILED, "a node failed")


@pytest.mark.parametrize("key", ["stop_signal", "told"])  # an agent of version 0.1.0 writes the latter
def test_replicas_by_what_their_nodes_have_left(tmp_path: Path, key: str) -> None:
    mine = record(tmp_path)
    end(tmp_path, 0, exit_code=0, **{key: "SIGTERM"})
    end(tmp_path, 1, signal="SIGKILL")
    (tmp_path / "r" / "1" / "error.json").write_text('{"message": "boom"}')
    outcome = outcome_of(mine, [facts("OUT_OF_MEMORY", started=NOW - 9, ended=NOW)])
    assert outcome is not None
    answer = describe(mine, "7", outcome, ())
    first, second = answer.roles_statuses[0].replicas
    assert (second.state, second.signal, second.hostname) == (AppState.FAILED, "SIGKILL", "node1")
    assert second.attempts[-1].msg == "out of memory"
    assert first.state is AppState.FAILED
    assert answer.first_failure is not None
    assert answer.structured_error_msg != "<NONE>" or answer.first_failure.replica == 0
    assert first.max_attempts == 2


@pytest.mark.parametrize(("code", "signal"), [(137, "SIGKILL"), (143, "SIGTERM")])
def test_step_that_was_killed_with_its_agents(tmp_path: Path, code: int, signal: str) -> None:
    """By `scancel JOB.STEP`, or as its srun was killed: no program has failed."""
    mine = record(tmp_path)
    (tmp_path / "over").write_text(f"7 {code} {int(NOW)}\n")
    (tmp_path / "first").write_text(f"{code} 0\n")
    (tmp_path / "batch.log").write_text("srun: error: node3: task 0: Exited with exit code 143\n")
    end(tmp_path, 1, signal="SIGTERM", stop_signal="SIGTERM")
    outcome = outcome_of(mine, [facts("FAILED", started=NOW - 9, ended=NOW)])
    assert outcome is not None
    answer = describe(mine, "7", outcome, ())
    assert answer.msg.startswith(f"the step of r was killed by {signal}: ")
    assert (answer.cause, answer.first_failure) == (EndCause.SUPERVISOR_LOST, None)
    stopped = answer.roles_statuses[0].replicas[1]
    assert (stopped.state, stopped.attempts[-1].msg) == (AppState.CANCELLED, answer.msg)
    end(tmp_path, 0, exit_code=137)
    first = describe(mine, "7", outcome, ()).first_failure
    assert first is not None
    assert (first.replica, first.exit_code) == (0, 137)


def test_attempts_have_their_run_and_its_notice(tmp_path: Path) -> None:
    mine = record(tmp_path)
    end(tmp_path, 0, exit_code=75, run=1, noticed_at=NOW - 5)
    end(tmp_path, 0, attempt=2, exit_code=0, run=2)
    outcome = outcome_of(mine, [facts("COMPLETED", started=NOW - 9, ended=NOW)])
    assert outcome is not None
    attempts = describe(mine, "7", outcome, ()).roles_statuses[0].replicas[0].attempts
    assert [attempt.run for attempt in attempts] == [1, 2]
    noticed = [attempt.noticed_at and attempt.noticed_at.timestamp() for attempt in attempts]
    assert noticed == [pytest.approx(NOW - 5), None]


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize("running", [True, False])
def test_durations_hold_if_the_clock_of_a_node_differs(tmp_path: Path, ahead: float, running: bool) -> None:
    """A job has waited for two hours and has run for an hour, or for ten minutes."""
    lasts = 3600.0 if running else 600.0
    job = record(tmp_path, submitted_at=NOW - lasts - 7200)
    place = tmp_path / "r" / "0" / "attempt-1"
    place.mkdir(parents=True)
    facts_of_node = {"host": "node0", "started_at": NOW - lasts + ahead}
    (place / "start.json").write_text(json.dumps(facts_of_node))
    os.utime(place / "start.json", (NOW - lasts, NOW - lasts))
    begun = int(NOW - lasts)
    part = facts("RUNNING", started=begun)
    if not running:
        (place / "end.json").write_text(
            json.dumps({**facts_of_node, "ended_at": NOW + ahead, "exit_code": 0})
        )
        part = facts("COMPLETED", started=begun, ended=int(NOW), exit_code=0)
    outcome = outcome_of(job, [part])
    assert outcome is not None
    found = describe(job, "7", outcome, [part])
    (attempt,) = found.roles_statuses[0].replicas[0].attempts
    for each in (found, attempt):
        assert each.started_at is not None
        end = each.ended_at.timestamp() if each.ended_at else NOW
        assert abs(end - each.started_at.timestamp() - lasts) < 5
        assert (each.ended_at is None) == running


@pytest.mark.parametrize(("code", "msg"), [(137, "out of memory"), (1, "")])
def test_a_shell_whose_program_was_killed_for_its_memory(tmp_path: Path, code: int, msg: str) -> None:
    mine = record(tmp_path)
    end(tmp_path, 0, exit_code=code)
    outcome = outcome_of(mine, [facts("OUT_OF_MEMORY", started=NOW - 9, ended=NOW)])
    assert outcome is not None
    (attempt,) = describe(mine, "7", outcome, ()).roles_statuses[0].replicas[0].attempts
    assert (attempt.exit_code, attempt.msg) == (code, msg)


@pytest.mark.parametrize(
    ("cfg", "facts_of_end", "msg"),
    [
        ({"no_retry_on": ["oom"]}, {"signal": "SIGKILL"}, "out of memory; not retried: oom"),
        (
            {"no_retry_on": ["oom"]},
            {"exit_code": 0, "stop_signal": "SIGTERM"},
            "out of memory; not retried: oom",
        ),
        (
            {"retry_on": ["3"]},
            {"signal": "SIGKILL"},
            "out of memory; not retried: SIGKILL is not in retry_on",
        ),
        (
            {"no_retry_on": ["log:bad luck"]},
            {"signal": "SIGKILL", "msg": "not retried: log:bad luck"},
            "out of memory; not retried: log:bad luck",
        ),
        ({}, {"signal": "SIGKILL"}, "out of memory"),
    ],
)
def test_replica_that_is_out_of_memory_and_not_retried(
    tmp_path: Path, cfg: dict[str, Any], facts_of_end: dict[str, Any], msg: str
) -> None:
    mine = record(tmp_path, cfg=cfg)
    end(tmp_path, 0, **facts_of_end)
    outcome = outcome_of(mine, [facts("OUT_OF_MEMORY", started=NOW - 9, ended=NOW)])
    assert outcome is not None
    status = describe(mine, "7", outcome, ())
    assert status.roles_statuses[0].replicas[0].attempts[-1].msg == msg
    assert status.first_failure is not None
    assert status.first_failure.msg == msg
    mine.app["roles"][0]["max_retries"] = 0
    last = describe(mine, "7", outcome, ()).roles_statuses[0].replicas[0].attempts[-1]
    assert last.msg == "; ".join(filter(None, ["out of memory", facts_of_end.get("msg")]))


def test_step_killed_for_memory_without_retries(tmp_path: Path) -> None:
    """No replica has recorded its end, so that none has failed first."""
    mine = record(tmp_path, cfg={"no_retry_on": ["oom"]})
    (tmp_path / "r" / "1" / "attempt-1").mkdir(parents=True)
    outcome = outcome_of(mine, [facts("OUT_OF_MEMORY", started=NOW - 9, ended=NOW)])
    assert outcome is not None
    status = describe(mine, "7", outcome, ())
    assert (status.first_failure, status.msg) == (None, "out of memory; not retried: oom")


def test_a_row_has_the_reason_of_the_first_failure(tmp_path: Path) -> None:
    one = record(tmp_path)
    end(tmp_path, 1, exit_code=127, ended_at=NOW - 5, msg="no program `x`")
    outcome = Outcome(AppState.FAILED, "", "FAILED", exit_code=1)
    assert (listed(one, "7", outcome).msg, listed(one, "7", outcome).exit_code) == ("no program `x`", 1)
    assert listed(one, "7", outcome._replace(msg="time limit reached")).msg == "time limit reached"
    ended = outcome._replace(msg="time limit reached", word="TIMEOUT", exit_code=0)
    assert listed(one, "7", ended).exit_code == TIMED_OUT, "as with the other engines"
    lost = outcome._replace(msg="a node failed", word="NODE_FAIL", exit_code=9)
    assert listed(one, "7", lost).exit_code == 9
    one.app["roles"][0]["num_replicas"] = MAX_LISTED_REPLICAS + 1
    assert listed(one, "7", outcome).msg == "", "files of many replicas are not read for a listing"


def test_a_job_that_is_queued_again(tmp_path: Path) -> None:
    mine = record(tmp_path)
    attempt = tmp_path / "attempt"
    attempt.write_text("1\n")
    os.utime(attempt, (NOW - 599.5, NOW - 599.5))  # queued again in the same second
    end(tmp_path, 0, exit_code=3)
    outcome = outcome_of(mine, [facts("PENDING", "BeginTime")])
    assert outcome is not None
    answer = describe(mine, "7", outcome, ())
    assert answer.msg.startswith("queued again; BeginTime")
    assert [replica.state for replica in answer.roles_statuses[0].replicas] == [AppState.PENDING] * 2


@pytest.mark.parametrize("python", [True, False])
def test_a_start_after_slurms_answer(tmp_path: Path, python: bool) -> None:
    """The answer is older than the files: the attempt has not ended, and the job is not queued again."""
    mine = record(tmp_path)
    (tmp_path / "attempt").write_text("1\n")
    place = tmp_path / "r" / "0" / "attempt-1"
    place.mkdir(parents=True)
    if python:
        (place / "start.json").write_text(json.dumps({"host": "node0", "started_at": NOW - 300}))
    else:  # the folder has the time
        os.utime(place, (NOW - 300, NOW - 300))

    def attempts(state: str, submitted: float) -> tuple[bool, list[AppState]]:
        outcome = outcome_of(mine, [facts(state)._replace(submitted=submitted)])
        assert outcome is not None
        answer = describe(mine, "7", outcome, ())
        again = answer.msg.startswith("queued again")
        return again, [attempt.state for attempt in answer.replicas[0].attempts]

    assert attempts("PENDING", NOW - 600) == (False, [])
    assert attempts("RUNNING", NOW - 600) == (False, [AppState.RUNNING])
    assert attempts("REVOKED", NOW - 600)[1] == [AppState.UNKNOWN], "an unknown state does not end it"
    assert attempts("PENDING", NOW + 10) == (True, [AppState.FAILED])


def test_ids_that_are_used_again(tmp_path: Path) -> None:
    old = record(tmp_path / "jobs" / "a-b1", token="b1")
    new = record(tmp_path / "jobs" / "a-c2", token="c2", submitted_at=NOW)
    for each in (new, old):
        Records("slurm").add(each)
    found = Records("slurm").find(7)
    assert found is not None
    assert found.token == "c2"
    assert Records("slurm").find(7, "b1") == old
    theirs = JobFacts(7, 0, "RUNNING", comment="torchx:zz:/x", name="a-zz")
    assert not new.is_of(theirs.name, theirs.comment)
    assert new.is_of("a-c2", "mine torchx:c2:/x")
    assert not old.is_of("somebody-elses", "")
    Records("slurm").remove(new)
    assert Records("slurm").deleted_tokens() == {"c2"}
    assert Records("slurm").find(7) == old


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[None]:
    """Makes this process one that may not look into the folder of the test."""
    mode, root = tmp_path.stat().st_mode, os.geteuid() == 0
    tmp_path.chmod(0)
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)
    tmp_path.chmod(mode)


def test_jobs_of_other_people(tmp_path: Path, stranger: None) -> None:
    theirs = BatchRecord(7, "b1", "a", "a-b1", "torchx", str(tmp_path / "x"), NOW, {"name": "a"})
    for state, expected in (("RUNNING", AppState.RUNNING), ("COMPLETED", AppState.SUCCEEDED)):
        found = outcome_of(theirs, [facts(state)])
        assert found is not None
        assert found.state is expected
        assert describe(theirs, "7", found, ()).state is expected
    assert outcome_without_slurm(theirs).state is AppState.SUBMITTED
    with pytest.raises(StateError, match="cannot read the logs of the job: Permission denied"):
        require_folder(theirs.paths, over=False)


def test_logs_that_are_not_here(tmp_path: Path) -> None:
    paths = BatchPaths(tmp_path / "elsewhere")
    require_folder(paths, over=False)
    with pytest.raises(StateError, match="not found"):
        require_folder(paths, over=True)


def test_logs_of_nodes_without_python(tmp_path: Path) -> None:
    mine = record(tmp_path)
    place = tmp_path / "r" / "0" / "attempt-1"
    place.mkdir(parents=True)
    (place / "stdout.log").write_text("a\nb\n")
    (place / "stderr.log").write_text("c\n")
    log = BatchLog(lambda: mine.paths, [Member("r", 0), Member("r", 1)], lambda: False)
    assert b"".join(chunk.data for chunk in log.read(LogQuery())) == b"a\nb\nc\n"
    assert [chunk.data for chunk in log.read(LogQuery(stream=Stream.STDERR))] == [b"c\n"]
    assert [chunk.data for chunk in log.read(LogQuery(tail=1, stream=Stream.STDOUT))] == [b"b\n"]


def test_last_matching_lines_of_pieces_and_damaged_index(tmp_path: Path) -> None:
    place = tmp_path / "r" / "0" / "attempt-1"
    place.mkdir(parents=True)
    parts = [b"yes 1\n", *[b"not ", b"yes\n"] * 12]
    (place / "combined.log").write_bytes(b"".join(parts))
    starts = itertools.accumulate(map(len, parts), initial=0)
    pieces = [
        Piece(10**18 + n, start, len(part), 0, 1, STDOUT, WHOLE if part.endswith(b"\n") else PARTIAL)
        for n, (start, part) in enumerate(zip(starts, parts, strict=False))
    ]
    wrong = [pieces[0]._replace(offset=(1 << 64) - 1), pieces[0]._replace(stream=9)]
    (place / "log.index").write_bytes(b"".join(map(encode, [*wrong, *pieces])))
    os.truncate(place / "log.index", 1 << 40)
    log = BatchLog(lambda: record(tmp_path).paths, [Member("r", 0)], lambda: False)
    assert [chunk.data for chunk in log.read(LogQuery(tail=1, regex="^yes"))] == [b"yes 1\n"]
    assert [chunk.data for chunk in log.read(LogQuery(tail=1))] == [b"not yes\n"]
