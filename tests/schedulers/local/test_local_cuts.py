"""A supervisor that is killed between two lines of its journal: an end that was decided before is kept."""

from __future__ import annotations

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local import ended, kill_supervision, paths, processes_of, scheduler, sh, submit, supervision_of
from support import wait_until

from torchx.jobs.events import parse_event
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.reconcile import read, reconcile
from torchx.jobs.view import JobView, load
from torchx.json_limits import Object
from torchx.machine import locks as lock
from torchx.machine import processes
from torchx.specs.app import Role
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState
from torchx.testing.retry_cases import case_of, sample
from torchx.testing.retry_model import Case, Outcome, predict, script

WAITS = "until [ -e {file} ]; do sleep 0.02; done"
STUBBORN = "trap '' TERM; : > {file}; while :; do sleep 0.05; done"


def roles_of(case: Case, outcome: Outcome, folder: Path) -> list[Role]:
    roles = []
    for number, role in enumerate(case.roles):
        each = [script(outcome, (number, id), str(folder), 0.0) for id in range(role.replicas)]
        choices = " ".join(f"{id}) {command};;" for id, command in enumerate(each))
        line = f"case ${{replica_id}} in {choices} esac"
        retries, policy = role.max_retries, role.policy.value
        roles.append(sh(line, role.replicas, name=f"r{number}", retries=retries, policy=policy))
    return roles


def answer(view: JobView) -> tuple[object, ...]:
    return view.state, view.first_failure, view.exit_code, view.msg, view.cause


def cut(paths: JobPaths, lines: list[bytes], folder: Path) -> JobPaths:
    """Copies the record of a job whose supervisor has written these lines of its journal only."""
    copy = JobPaths(Home(folder).jobs / paths.folder.name)
    shutil.copytree(paths.folder, copy.folder)
    copy.events.write_bytes(b"".join(lines))
    return copy


def is_decided(case: Case, outcome: Outcome, lines: list[Object], count: int) -> bool:
    """Whether these first lines decide the end, by the model."""
    exits = [line for line in lines[:count] if line["e"] == "exit"]
    if outcome.first is None:
        return [line["e"] for line in lines[count:]] == ["end"]
    ordinal = case.replicas.index(outcome.first)
    last = outcome.attempts[outcome.first]
    return any((line["r"], line["a"]) == (ordinal, last) for line in exits)


def differences(seed: int, folder: Path) -> list[str]:
    """Runs a case, cuts its journal after each line, and compares the answers."""
    case = case_of(seed)
    outcome = predict(case)
    folder = folder / str(seed)
    folder.mkdir()
    app_id = submit(*roles_of(case, outcome, folder))
    ended(app_id)
    journal = paths(app_id).events.read_bytes().splitlines(keepends=True)
    lines = [parse_event(line) or {} for line in journal]
    whole = load(paths(app_id))
    found = []
    for count in range(2, len(lines)):
        copy = cut(paths(app_id), journal[:count], folder / f"cut{count}")
        decided, shown = is_decided(case, outcome, lines, count), read(copy)
        if (answer(shown) == answer(whole)) != decided:
            found.append(f"case {seed}, {count} lines: {decided=}, {answer(shown)}, {answer(whole)}")
        elif decided and count > len(lines) - 3 and answer(reconcile(copy)) != answer(whole):
            found.append(f"case {seed}, {count} lines: another end is recorded")
    return found


@pytest.mark.timeout(900)
def test_an_end_that_the_journal_decides_is_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda seed: differences(seed, tmp_path), sample(12)))
    assert not any(reports), "\n".join(line for lines in reports for line in lines)


def cut_at_exit(app_id: str, folder: Path) -> JobView:
    """Returns the view of an ended job without the line of its end."""
    journal = paths(app_id).events.read_bytes().splitlines(keepends=True)
    copy = cut(paths(app_id), journal[:-1], folder)
    assert answer(read(copy)) == answer(load(paths(app_id)))
    return reconcile(copy)


@pytest.mark.parametrize(
    ("roles", "cfg", "state"),
    [
        ([sh("exit 0", 3)], {}, "SUCCEEDED"),
        ([sh("exit 3"), sh("exit 0", name="v")], {"fail_fast": False}, "FAILED"),
        ([sh("trap 'exit 0' TERM; while :; do sleep 0.05; done")], {"time_limit": "0.2s"}, "FAILED"),
    ],
)
def test_a_cut_before_the_end_changes_nothing(
    roles: list[Role], cfg: dict[str, CfgVal], state: str, tmp_path: Path
) -> None:
    app_id = submit(*roles, **cfg)
    ended(app_id)
    assert cut_at_exit(app_id, tmp_path / "home").state == state


def test_failed_start_of_retry_is_kept(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nrm "$0"; exit 1\n')
    program.chmod(0o755)
    app_id = submit(Role("w", image="", entrypoint=str(program), max_retries=1))
    ended(app_id)
    view = cut_at_exit(app_id, tmp_path / "home")
    assert (view.state, view.first_failure, view.exit_code) == ("FAILED", (0, 2), 127)
    assert view.msg.startswith("w/0 could not be started: ")


def test_a_decided_failure_outlives_the_supervisor(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    first = sh(f"{WAITS.format(file=file)}; exit 7", name="first")
    app_id = submit(first, sh(STUBBORN.format(file=file)), grace_period=0.5)
    wait_until(lambda: '"code":7' in paths(app_id).events.read_text(), "the failure is on record")
    processes.send(supervision_of(app_id)[0], signal.SIGKILL)
    done = ended(app_id)
    assert done.first_failure is not None
    assert (done.state, done.msg, done.first_failure.exit_code) == (AppState.FAILED, "", 7)
    assert not processes_of(app_id)


def test_a_failure_stays_one_when_cancelled_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    first = sh(f"{WAITS.format(file=file)}; exit 7", name="first")
    app_id = submit(first, sh(STUBBORN.format(file=file)), grace_period=60.0)
    wait_until(lambda: '"code":7' in paths(app_id).events.read_text(), "the failure is on record")
    scheduler().cancel(app_id)
    wait_until(lambda: '"e":"cancel"' in paths(app_id).events.read_text(), "the request is on record")
    kill_supervision(app_id)
    view = reconcile(paths(app_id))
    assert (view.state, view.msg, view.exit_code) == ("FAILED", "", 7)


def test_damaged_decision_leaves_presumed_end(tmp_path: Path) -> None:
    app_id = submit(sh("exit 0"))
    ended(app_id)
    journal = paths(app_id).events.read_bytes().splitlines(keepends=True)
    for number, damage in enumerate([b'{"state":7}', b'"x"', b'{"state":"FAILED","first":[9,1]}']):
        damaged = journal[-2].split(b'"over":')[0] + b'"over":' + damage + b"}\n"
        copy = cut(paths(app_id), [*journal[:-2], damaged], tmp_path / str(number))
        assert reconcile(copy).msg == "its supervisor was killed"


def test_first_interrupted_replica_is_the_first_failure(tmp_path: Path) -> None:
    """After the notice of a time limit, replicas may end one after the other."""
    file = tmp_path / "ended"
    late = f"trap '{WAITS.format(file=file)}; sleep 0.2; exit 5' USR1; while :; do sleep 0.05; done"
    early = f"trap ': > {file}; exit 3' USR1; while :; do sleep 0.05; done"
    done = ended(submit(sh(late, name="late"), sh(early, name="early"), time_limit="1h", notice="3599.5s"))
    assert done.first_failure is not None
    assert (done.first_failure.role, done.first_failure.exit_code) == ("early", 3)


def test_supervisor_stopped_between_both_lines_is_killed(tmp_path: Path) -> None:
    """The replica has ended, and a process that it has left keeps the supervisor from its end."""
    app_id = submit(sh("trap '' TERM; sleep 602 & exit 0"), grace_period=60.0)
    wait_until(lambda: '"over":' in paths(app_id).events.read_text(), "the result is on record")
    for process in supervision_of(app_id):
        processes.send(process, signal.SIGSTOP)
    supervisor, guard = supervision_of(app_id)
    os.kill(guard.pid, signal.SIGKILL)
    os.kill(supervisor.pid, signal.SIGKILL)
    assert lock.wait_free(paths(app_id).lock, 60)
    assert (read(paths(app_id)).state, reconcile(paths(app_id)).state) == ("SUCCEEDED", "SUCCEEDED")
    assert not processes_of(app_id)
