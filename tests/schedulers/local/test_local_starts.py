"""How jobs start at awkward moments: many at once, under limits, in homes that cannot be written."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import subprocess
import threading
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    ended,
    kill_supervision,
    paths,
    run,
    scheduler,
    sh,
    submit,
    text,
)
from program import COMMAND, ROOT, environment
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.specs import TORCHX_HOME
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState

AS_NOBODY = [
    *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),  # to find the interpreter
]
"""Before a command: another user, who may see all files but write only where everybody may."""


def limited(limit: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command line as a user who is not root, under a limit of his."""
    home.mkdir(mode=0o777, exist_ok=True)
    home.chmod(0o777)
    user = [] if os.geteuid() else AS_NOBODY
    script = ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *COMMAND, *words]
    env = environment({"TORCHX_HOME": str(home / "state"), "HOME": str(home)})
    return subprocess.run([*user, *script], capture_output=True, text=True, env=env, timeout=90)


@pytest.mark.long
def test_hundred_jobs_started_at_same_moment_by_hundred_processes() -> None:
    fork = multiprocessing.get_context("fork")
    gate, said = fork.Barrier(100), fork.SimpleQueue()

    def one(number: int) -> None:
        gate.wait()
        said.put((number, submit(sh(f"echo {number}"), name="same")))

    starters = [fork.Process(target=one, args=(number,)) for number in range(100)]
    for starter in starters:
        starter.start()
    ids = dict(said.get() for _ in starters)
    for starter in starters:
        starter.join()
        assert starter.exitcode == 0
    assert len(set(ids.values())) == 100
    for number, app_id in ids.items():
        assert ended(app_id).state is AppState.SUCCEEDED
        assert text(app_id) == f"{number}\n"
    listed = {line.app_id: line.state for line in scheduler().list()}
    assert listed == dict.fromkeys(ids.values(), AppState.SUCCEEDED)


def test_same_request_submitted_twice_at_once_starts_one_job() -> None:
    info = scheduler().submit_dryrun(AppDef("job", [sh("echo once")]), {})
    gate = threading.Barrier(4)
    refused: list[BaseException] = []

    def one() -> None:
        gate.wait()
        try:
            scheduler().schedule(info)
        except UsageError as error:
            refused.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert ended(info.request.app_id).state is AppState.SUCCEEDED
    assert text(info.request.app_id) == "once\n"
    assert paths(info.request.app_id).events.read_text().count('"e":"supervisor"') == 1


def test_a_program_that_vanishes_between_two_attempts(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nrm "$0"; exit 3\n')
    program.chmod(0o755)
    roles = [
        sh("sleep 600", 2, name="a", retries=1),
        Role("b", image="", entrypoint=str(program), max_retries=1),
    ]
    done = run(*roles)
    assert done.state is AppState.FAILED
    assert done.msg == f"b/0 could not be started: {program}: No such file or directory"
    assert done.first_failure is not None
    assert (done.first_failure.role, done.first_failure.attempt, done.first_failure.result) == ("b", 2, 127)
    assert_nothing_runs(done.app_id)


def test_a_working_directory_that_vanishes_between_two_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    done = run(sh(f"rmdir {folder}; exit 3", retries=1))
    assert done.state is AppState.FAILED
    assert done.msg == f"w/0 could not be started: {folder}: No such file or directory"


def test_words_that_no_program_can_be_given_are_refused() -> None:
    with pytest.raises(UsageError, match="zero byte in the argument"):
        submit(sh("echo a\0b"))
    for name, value in (("A=B", "x"), ("", "x"), ("A", "x\0")):
        role = sh("true")
        role.env = {name: value}
        with pytest.raises(UsageError, match="invalid environment variable"):
            submit(role)
    assert list(scheduler().list()) == []


def test_more_replicas_than_open_files_allow_are_rejected(tmp_path: Path) -> None:
    words = ["run", "-s", "local_cwd", "utils.sh", "--num_replicas", "1000", "true"]
    done = limited("-n 256", *words, home=tmp_path / "home")
    assert done.returncode == 1
    assert done.stderr == (
        "error: 1000 replicas need 2064 open files; this user may have 256\n"
        "  raise the hard limit of open files: ulimit -Hn shows it\n"
    )
    assert done.stdout == ""
    done = limited("-n 256", *words[:-2], "90", "echo hi", home=tmp_path / "home")
    assert (done.returncode, done.stderr.count("hi\n")) == (0, 90), done.stderr


def test_limit_of_processes_undoes_start_and_is_named(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs a user without other processes: run the tests as root")
    words = ["run", "-s", "local_cwd", "utils.sh", "--num_replicas", "40", "exec sleep 600"]
    done = limited("-u 25", *words, home=tmp_path / "home")
    assert done.returncode == 126, done.stderr
    assert "too many processes (ulimit -u)" in done.stderr
    left = subprocess.run(["ps", "-u", "65534", "-o", "args="], capture_output=True, text=True).stdout
    assert "sleep 600" not in left


@pytest.mark.long
def test_three_thousand_replicas_where_few_files_may_be_open() -> None:
    words = ["run", "-s", "local_cwd", "utils.sh", "--num_replicas", "3000", "echo hi"]
    # the soft limit: the supervisor raises it for itself, and the reader does with what there is
    script = ["bash", "-c", 'ulimit -S -n 200; exec "$@"', "bash", *COMMAND, *words]
    done = subprocess.run(script, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stderr.count("hi\n") == 3000


def test_a_state_home_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away: run the tests as root")
    home = tmp_path / "theirs"
    home.mkdir()
    os.chown(home, 65534, 65534)
    monkeypatch.setenv("TORCHX_HOME", str(home))
    with pytest.raises(StateError, match="belongs to another user"):
        submit(sh("echo never"))
    assert list(home.iterdir()) == []


def test_read_only_disk_can_be_read_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk]).returncode:
        pytest.skip("needs the right to mount a disk: run the tests as root")
    try:
        monkeypatch.setenv("TORCHX_HOME", str(disk / "home"))
        good = run(sh("echo ok")).app_id
        lost = submit(sh("echo here; sleep 600"))
        wait_until(lambda: text(lost) == "here\n", "it has printed")
        kill_supervision(lost)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert {line.app_id: line.state for line in scheduler().list()} == {
            good: AppState.SUCCEEDED,
            lost: AppState.FAILED,
        }
        scheduler().reconcile(lost)
        assert_nothing_runs(lost)
        assert (text(good), text(lost)) == ("ok\n", "here\n")
        scheduler().cancel(lost)
        with pytest.raises(StateError, match="Read-only file system"):
            submit(sh("echo never"))
        with pytest.raises(StateError, match="Read-only file system"):
            scheduler().delete(good)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_name_that_is_too_long_for_file_is_unknown() -> None:
    assert scheduler().describe("x" * 300) is None
    assert list(scheduler().list()) == []


@pytest.mark.parametrize("home", ["", "relative"])
def test_a_home_folder_that_is_relative_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHX_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    with pytest.raises(StateError, match=f"^HOME is `{home}`, which is not an absolute path\n"):
        list(scheduler().list())
    with pytest.raises(StateError, match=f"^HOME is `{home}`, which is not an absolute path\n"):
        TORCHX_HOME("jobs")
    assert list(tmp_path.iterdir()) == []


def test_without_a_home_folder_the_password_entry_counts(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs users of all kinds: run the tests as root")
    words = [*COMMAND, "run", "utils.echo"]
    env = {"PYTHONPATH": str(ROOT)}
    nameless = [*AS_NOBODY[:2], "61234", *AS_NOBODY[3:]]
    done = subprocess.run([*nameless, *words], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        "error: no home folder is known for this user\n  set TORCHX_HOME to a folder of your own\n",
    )
    done = subprocess.run([*AS_NOBODY, *words], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"error: the state home {pwd.getpwuid(65534).pw_dir}/.torchx cannot be used"
    )
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    done = subprocess.run(
        [*AS_NOBODY, *words], capture_output=True, text=True, env={**env, "TORCHX_HOME": str(home)}
    )
    assert done.returncode == 0, done.stderr
