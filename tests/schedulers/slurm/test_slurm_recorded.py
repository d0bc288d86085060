"""Recorded answers of Slurm 26.05 and 22.05, and answers from which a part is missing or has a new state."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from torchx.schedulers.shared.batch.batch_log import last_error_line, log_tail
from torchx.schedulers.shared.batch.ends import CAUSES
from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.slurm.cancel import has_ended
from torchx.schedulers.slurm.outcome import outcome_of, outcome_without_slurm
from torchx.schedulers.slurm.parse import FIELDS, JobFacts, by_job, read_account, read_queue
from torchx.schedulers.slurm.queue import SlurmJob, outcome_off_queue
from torchx.specs.status import AppState, EndCause, is_terminal

READERS = {"squeue": read_queue, "sacct": read_account}
PENDING, RUNNING, UNKNOWN = AppState.PENDING, AppState.RUNNING, AppState.UNKNOWN
SUCCEEDED, FAILED, CANCELLED = AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED
STATES = {
    "pending": {
        "3": PENDING,
        "4": PENDING,
        "5": PENDING,
        "6": PENDING,
        "7": PENDING,
        "9": PENDING,
        "10": PENDING,
    },
    "running": {"2": RUNNING},
    "completed": {"13": SUCCEEDED},
    "exit code 7": {"14": FAILED},
    "a step ended by SEGV": {"15": FAILED, "16": FAILED},
    "memory limit": {"17": FAILED},
    "time limit": {"18": FAILED},
    "cancelled while": {"2": CANCELLED, "5": PENDING, "6": CANCELLED, "12": CANCELLED},
    "preempted and requeued": {"19": PENDING},
    "the same job": {"19": RUNNING},
    "preempted without": {"21": FAILED},
    "suspended": {"2": RUNNING},
    "array": {
        "25_1": FAILED,
        "25_2": RUNNING,
        "25_3": SUCCEEDED,
        "25_4": SUCCEEDED,
        "25_5": SUCCEEDED,
        "25_6": RUNNING,
    },
    "heterogeneous": {"32": RUNNING},
    "node of the jobs": {"146": FAILED, "147": PENDING},
    "right after scontrol requeue": {"24": RUNNING},
    "pending after": {"24": PENDING},
    "after scontrol requeuehold": {"24": PENDING},
    "after scontrol requeuehold State": {"24": PENDING},
    "waits for a reservation": {"34": PENDING},
    "node of a job with": {"112": RUNNING},
}
"""The state of each job in the recorded answers, by the begin of the title of its situation."""
LATER = {("right after scontrol requeue", "sacct"): PENDING, ("node of a job with", "sacct"): PENDING}
"""States that differ in the accounting, which already knows of the requeue."""


def situations(resources: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the title of each situation, and the answers by their program."""
    text = (resources / "slurm/26.05.txt").read_text()
    for part in text.split("##### ")[1:]:
        title, *answers = re.split(r"^\$ ", part, flags=re.MULTILINE)
        yield title.strip(), {name: rows for name, _, rows in (each.partition("\n") for each in answers)}


def answers(resources: Path) -> Iterator[tuple[str, str]]:
    """Yields each recorded answer of 26.05 and 22.05, after the name of its program."""
    for _, programs in situations(resources):
        yield from programs.items()
    for name in READERS:
        yield name, (resources / f"slurm/{name}.txt").read_text()


def outcomes(name: str, text: str, between: str = "|") -> dict[str, Outcome]:
    """Returns the outcome of each job in an answer."""
    facts = READERS[name](text.replace("|", between), between)
    found = {key: outcome_of(None, parts) for key, parts in by_job(facts).items()}
    return {key: outcome for key, outcome in found.items() if outcome is not None}


def ended(name: str, text: str) -> set[str]:
    """Returns the ids of the jobs that have ended by an answer, with either kind of separator."""
    found = [item for between in ("|", "|0f1e|") for item in outcomes(name, text, between).items()]
    return {key for key, outcome in found if is_terminal(outcome.state)}


def test_states_of_recorded_answers(resources: Path) -> None:
    for title, programs in situations(resources):
        start = max((start for start in STATES if title.startswith(start)), key=len)
        for name, text in programs.items():
            found = {key: outcome.state for key, outcome in outcomes(name, text).items()}
            if expected := LATER.get((start, name)):
                assert set(found.values()) == {expected}, (title, name)
            else:
                assert found == STATES[start], (title, name)


def test_times_and_codes_of_recorded_answers(resources: Path) -> None:
    recorded = dict(situations(resources))
    title = next(title for title in recorded if title.startswith("exit code 7"))
    ends = [outcomes(name, recorded[title][name])["14"] for name in READERS]
    assert [(end.submitted_at, end.started_at, end.ended_at) for end in ends] == [
        (1795793185.0, 1795793185.0, 1795793186.0)
    ] * 2
    assert ends[1].exit_code == 7
    title = next(title for title in recorded if title.startswith("a step ended"))
    killed = by_job(read_account(recorded[title]["sacct"]))
    assert [(killed[key][0].exit_code, killed[key][0].signal) for key in ("15", "16")] == [
        (139, None),
        (0, 9),
    ]
    title = next(title for title in recorded if title.startswith("heterogeneous"))
    assert [part.nodes for part in by_job(read_queue(recorded[title]["squeue"]))["32"]] == ["node1", "node2"]


def test_a_new_state_is_not_an_end(resources: Path) -> None:
    words = "NEWWORD", "EXPEDITING", "REVOKED", "RESV_DEL_HOLD", "NEWWORD+", "NEWWORD by 7"
    for name, text in answers(resources):
        for word in words:
            for row, line in enumerate(lines := text.splitlines()):
                cells = line.split("|")
                if len(cells) < FIELDS:
                    continue
                cells[2] = word
                changed = "\n".join([*lines[:row], "|".join(cells), *lines[row + 1 :]])
                job = re.split(r"[+]", cells[0])[0]
                assert job not in ended(name, changed), (name, changed)
    states = {
        word: outcomes("squeue", f"7|7|{word}|1|2|3|user1|node1|None|a|(null)")["7"] for word in words[:4]
    }
    assert [outcome.state for outcome in states.values()] == [UNKNOWN, PENDING, UNKNOWN, PENDING]
    assert states["REVOKED"].msg == "Slurm reports REVOKED: neither an end nor a known state"


def test_no_end_by_a_missing_row_or_field(resources: Path) -> None:
    for name, text in answers(resources):
        before, lines = ended(name, text), text.splitlines()
        for row, line in enumerate(lines):
            assert ended(name, "\n".join([*lines[:row], *lines[row + 1 :]])) <= before, (name, line)
            cells = line.split("|")
            for column in range(len(cells)):
                for mutant in (
                    [*cells[:column], *cells[column + 1 :]],
                    [*cells[:column], "", *cells[column + 1 :]],
                ):
                    changed = "\n".join([*lines[:row], "|".join(mutant), *lines[row + 1 :]])
                    assert ended(name, changed) <= before, (name, changed)


def part(number: int, state: str, **changes: object) -> JobFacts:
    return JobFacts(7, number, state, **changes)  # type: ignore[arg-type]


def test_end_of_later_part_is_not_that_of_job() -> None:
    found = outcome_of(None, [part(1, "COMPLETED")])
    assert found is not None
    assert (found.state, found.msg) == (
        UNKNOWN,
        "Slurm reports only a part of the job: neither an end nor a known state",
    )
    for state, expected in (("NEWWORD", UNKNOWN), ("PENDING", PENDING), ("RUNNING", RUNNING)):
        found = outcome_of(None, [part(0, "COMPLETED"), part(1, state)])
        assert found is not None
        assert found.state is expected


def test_the_end_of_an_earlier_run_without_a_start(tmp_path: Path) -> None:
    record = a_record(tmp_path)
    (tmp_path / "over").write_text(f"7 0 {int(time.time()) - 60}\n")
    for state, expected in (("RUNNING", RUNNING), ("COMPLETING", RUNNING), ("NEWWORD", UNKNOWN)):
        found = outcome_of(record, [part(0, state)])
        assert found is not None
        assert found.state is expected


def a_record(folder: Path) -> BatchRecord:
    folder.chmod(0o700)
    return BatchRecord(7, "b1", "a", "a-b1", "torchx", str(folder), time.time() - 600, {})


def test_job_in_new_state_has_not_ended_for_delete(tmp_path: Path) -> None:
    for queue, expected in (((part(0, "NEWWORD"),), False), ((), True)):
        outcome = Outcome(UNKNOWN)
        assert has_ended(SlurmJob("7", a_record(tmp_path), queue, outcome)) is expected


@pytest.mark.parametrize(
    ("job", "state", "said", "last"),
    [
        ("17", FAILED, "out of memory", "node5: task 0: Killed"),
        ("2", CANCELLED, "cancelled", "node5: tasks 0-1: Terminated"),
        ("18 (time limit)", FAILED, "time limit reached", "node5: task 0: Terminated"),
    ],
)
def test_messages_of_srun_and_slurmstepd(
    job: str, state: AppState, said: str, last: str, resources: Path, tmp_path: Path
) -> None:
    text = (resources / "slurm/26.05-output.txt").read_text()
    output = text.partition(f"--- job {job}\n")[2].partition("---")[0]
    record = a_record(tmp_path)
    paths: BatchPaths = record.paths
    paths.batch_log.write_text(f"== attempt 1\n{output}")
    found = outcome_without_slurm(record)
    assert (found.state, found.msg, last_error_line(log_tail(paths))) == (state, said, last)
    lines = [line for line in output.splitlines(keepends=True) if line.startswith("[")]
    paths.batch_log.write_text("".join(lines))
    assert "] error:" not in last_error_line(log_tail(paths))


def test_a_requeue_is_not_a_cancellation(tmp_path: Path) -> None:
    record = a_record(tmp_path)
    for head in ("slurmstepd: error:", "[2026-11-27T15:26:29.578] error:"):
        record.paths.batch_log.write_text(
            f"{head} *** STEP 7.0 ON n CANCELLED AT 2026 DUE TO JOB REQUEUE ***\n"
        )
        assert outcome_without_slurm(record).state is UNKNOWN
        assert outcome_off_queue(record, [], []).state is UNKNOWN
    assert outcome_of(record, ()) is None


def test_a_start_in_a_year_is_left_out() -> None:
    soon, later = time.time() + 3600, time.time() + 365 * 86400
    for start, shown in ((soon, True), (later, False)):
        found = outcome_of(None, [part(0, "PENDING", reason="Priority", started=start)])
        assert found is not None
        assert ("expected to start" in found.msg) is shown


@pytest.mark.parametrize("name", READERS)
def test_a_batch_script_that_was_killed(name: str, resources: Path) -> None:
    recorded = dict(situations(resources))
    title = next(title for title in recorded if title.startswith("a step ended"))
    found = outcomes(name, recorded[title][name])
    assert found["16"].msg == "its batch script was killed by SIGKILL on node5"
    assert CAUSES[found["16"].word] is EndCause.SUPERVISOR_LOST
    assert found["15"].msg == "", "its script has ended by itself"


NOT_STARTED = "it could not be started on its nodes"


def test_the_answers_of_22_05_about_a_killed_script(tmp_path: Path) -> None:
    """Its queue calls that a launch failure, without the signal."""
    now, record = time.time(), BatchRecord(7, "b1", "a", "a-b1", "torchx", str(tmp_path), 0.0, {})
    part = JobFacts(7, 0, "FAILED", "JobLaunchFailure", nodes="node[5-6]", started=now - 60)
    never = outcome_of(record, [part])
    assert never is not None
    assert (never.msg, CAUSES[never.word]) == (NOT_STARTED, EndCause.NOT_STARTED), "it has not begun"
    accounted = outcome_of(record, [], [part._replace(reason="", exit_code=0, signal=53)])
    assert accounted is not None
    assert accounted.msg == NOT_STARTED
    unseen = outcome_of(replace(record, folder=str(tmp_path / "elsewhere")), [part])
    assert unseen is not None
    assert unseen.msg == "", "it may have begun where this machine sees no files"
    (tmp_path / "attempt").write_text("1\n")
    killed = outcome_of(record, [part])
    assert killed is not None
    assert (killed.state, killed.msg) == (FAILED, "its batch script was killed on node5")
    later = outcome_of(record, [part._replace(started=now + 60)])
    assert later is not None
    assert later.msg == "", "an earlier run has begun"
    signalled = outcome_of(record, [], [part._replace(reason="", exit_code=0, signal=9)])
    assert signalled is not None
    assert signalled.msg == "its batch script was killed by SIGKILL on node5"
    launch = outcome_of(record, [], [part._replace(reason="", exit_code=0, signal=53, started=now + 60)])
    assert launch is not None
    assert launch.msg == "", "Slurm's number for a script that it cannot start, but an earlier run has begun"
    over = tmp_path / "over"
    over.write_text(f"7 3 {int(now)}\n")
    ended = outcome_of(record, [part])
    assert ended is not None
    assert ended.msg == "", "the script has reported its end"
    over.unlink()
    (tmp_path / "batch.log").write_text(
        "== attempt 1\nslurmstepd-node1: error: *** STEP 7.0 ON node1 FAILED (non-zero exit code or other "
        "failure mode) ***\nsrun: error: Slurm job 7 has expired\n"
    )
    alone = outcome_without_slurm(record)
    assert (alone.state, alone.msg) == (FAILED, "its batch script was killed")
