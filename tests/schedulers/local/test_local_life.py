"""Local jobs from start to end: results, environment, logs, retries, gang behaviour."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    describe,
    ended,
    handle,
    replicas,
    run,
    running,
    scheduler,
    sh,
    submit,
    text,
)
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.scheduling.logs import Stream
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import InvalidRunConfigException
from torchx.specs.status import NONE, AppState


def test_success_is_reported_with_times_and_exit_codes() -> None:
    done = run(sh("exit 0", 2))
    assert done.state is AppState.SUCCEEDED
    assert [r.exit_code for r in replicas(done)] == [0, 0]
    assert done.submitted_at and done.started_at and done.ended_at
    assert done.submitted_at <= done.started_at <= done.ended_at
    assert done.started_at.tzinfo is not None
    assert done.first_failure is None


def test_first_failure_is_named_and_others_are_ended() -> None:
    done = run(sh("[ ${replica_id} = 1 ] && exit 7; sleep 600", 3))
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert (done.first_failure.role, done.first_failure.replica, done.first_failure.exit_code) == ("w", 1, 7)
    states = [r.state for r in replicas(done)]
    assert states == [AppState.CANCELLED, AppState.FAILED, AppState.CANCELLED]
    assert "w/1 failed" in replicas(done)[0].attempts[-1].msg
    assert_nothing_runs(done.app_id)


def test_fail_fast_can_be_turned_off() -> None:
    done = run(sh("[ ${replica_id} = 1 ] && exit 7; sleep 0.2; echo done", 2), fail_fast=False)
    assert [r.state for r in replicas(done)] == [AppState.SUCCEEDED, AppState.FAILED]
    assert done.state is AppState.FAILED
    assert text(done.app_id) == "done\n"


def test_without_fail_fast_restart_of_others_keeps_final_failure(tmp_path: Path) -> None:
    first = sh(f"touch {tmp_path}/failed; exit 7", name="a")
    tries = f"while ! test -e {tmp_path}/failed; do sleep 0.01; done; mkdir {tmp_path}/b || exit 0; exit 1"
    done = run(first, sh(tries, name="b", retries=2), fail_fast=False)
    assert [(r.state, r.attempt) for r in replicas(done)] == [(AppState.FAILED, 1), (AppState.SUCCEEDED, 2)]
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert done.first_failure.role == "a"


def test_a_signal_is_reported_by_name() -> None:
    done = run(sh("kill -KILL $$$$"))
    assert done.first_failure is not None
    assert (done.first_failure.signal, done.first_failure.exit_code) == ("SIGKILL", None)
    assert done.first_failure.result == 137
    assert "out-of-memory" in done.first_failure.msg
    (listed,) = scheduler().list()
    assert listed.exit_code == 137


@pytest.mark.parametrize(
    ("policy", "starts"), [("REPLICA", [1, 3]), ("ROLE", [3, 3]), ("APPLICATION", [3, 3])]
)
def test_retries_under_each_policy(policy: str, starts: list[int], tmp_path: Path) -> None:
    # replica 1 fails until its third attempt; the other waits for the sign that it came so far
    script = f"""cd {tmp_path}; echo start; echo x >> n${{replica_id}}
    if [ ${{replica_id}} = 1 ]; then [ $(wc -l < n1) = 3 ] || exit 3; touch ready; exit 0; fi
    while [ ! -e ready ]; do sleep 0.02; done"""
    done = run(sh(script, 2, retries=2, policy=policy))
    assert done.state is AppState.SUCCEEDED, done
    assert [len(r.attempts) for r in replicas(done)] == starts
    assert [a.exit_code for a in replicas(done)[1].attempts] == [3, 3, 0]
    assert done.num_restarts == 2
    log_dir = Path(str(done.log_dir))
    assert (log_dir / "w/1/attempt-1/stdout.log").read_text() == "start\n"
    assert (log_dir / "w/1/attempt-2/stdout.log").read_text() == "start\n"
    assert (log_dir / "w/1/stdout.log").read_text() == "start\n"
    assert text(done.app_id, replicas={"w": frozenset([1])}) == "start\n" * 3
    assert_nothing_runs(done.app_id)


def test_retries_run_out() -> None:
    done = run(sh("exit 9", retries=1))
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert (done.first_failure.attempt, done.first_failure.exit_code) == (2, 9)


def test_environment_and_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FROM_CALLER", "caller")
    role = sh("env; echo cwd=$(pwd)", 1)
    role.env = {"FROM_ROLE": "${app_id} a=b;c", "PYTHONUNBUFFERED": "mine"}
    done = run(role)
    lines = text(done.app_id).splitlines()
    folder = f"{done.log_dir}/w/0"
    for line in (
        "FROM_CALLER=caller",
        f"FROM_ROLE={done.app_id} a=b;c",
        "PYTHONUNBUFFERED=mine",
        "TORCHX_RANK0_HOST=localhost",
        "PET_LOCAL_ADDR=localhost",
        f"TORCHX_JOB_ID={handle(done.app_id)}",
        f"TORCHELASTIC_ERROR_FILE={folder}/error.json",
        f"PET_LOG_DIR={done.log_dir}/torchelastic/w",
        f"cwd={tmp_path}",
    ):
        assert line in lines
    (path,) = (line for line in lines if line.startswith("PATH="))
    assert path.startswith(f"PATH={os.environ['PATH']}")
    assert str(tmp_path) in path.split(":")


def test_prepend_cwd_finds_programs_of_the_working_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "sh"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    assert text(run(sh("echo theirs")).app_id) == "theirs\n"
    assert text(run(sh("echo theirs"), prepend_cwd=True).app_id) == "mine\n"


def test_log_dir_holds_the_documented_tree(tmp_path: Path) -> None:
    done = run(sh("echo out; echo err >&2", 2), log_dir=str(tmp_path / "logs"))
    folder = tmp_path / "logs" / "torchx" / done.app_id
    assert done.log_dir == str(folder)
    for replica in "01":
        assert (folder / "w" / replica / "stdout.log").read_text() == "out\n"
        assert (folder / "w" / replica / "stderr.log").read_text() == "err\n"
        assert sorted((folder / "w" / replica / "combined.log").read_text().split()) == ["err", "out"]
    facts = json.loads((folder / "SUCCESS").read_text())
    assert facts["final_state"] == "SUCCEEDED"
    assert facts["roles"]["w"][1]["exitcode"] == 0
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "w/0/stdout.log").stat().st_mode & 0o777 == 0o600


def test_error_file_of_torchelastic_reaches_the_status() -> None:
    error = '{"message": {"message": "boom", "errorCode": 1, "extraInfo": {"timestamp": "1700000000"}}}'
    done = run(sh(f"echo '{error}' > $TORCHELASTIC_ERROR_FILE; exit 1"))
    assert json.loads(done.structured_error_msg)["message"]["message"] == "boom"
    assert replicas(done)[0].structured_error_msg == done.structured_error_msg


def test_error_file_that_is_pipe_blocks_no_command() -> None:
    done = run(sh("mkfifo $TORCHELASTIC_ERROR_FILE; exit 3"))
    assert (done.state, done.structured_error_msg) == (AppState.FAILED, NONE)


def test_a_missing_program_starts_nothing() -> None:
    roles = [sh("echo never", name="a"), Role("b", image="", entrypoint="no-such-program")]
    with pytest.raises(UsageError, match="role `b` cannot be started: no program `no-such-program` on PATH"):
        submit(*roles)
    assert list(scheduler().list()) == []


def test_a_start_that_fails_half_way_is_undone(tmp_path: Path) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF, but no program")
    program.chmod(0o755)
    done = run(sh("sleep 600", 3, name="a"), Role("b", image="", entrypoint=str(program)))
    assert done.state is AppState.FAILED
    assert done.msg.startswith("b/0 could not be started: ")
    assert done.first_failure is not None
    assert (done.first_failure.role, done.first_failure.result) == ("b", 126)
    assert {r.state for r in replicas(done)[:3]} == {AppState.CANCELLED}
    assert_nothing_runs(done.app_id)


def test_options_are_checked() -> None:
    with pytest.raises(InvalidRunConfigException):
        submit(sh("true"), grace_period="soon")
    with pytest.raises(UsageError, match="grace_period"):
        submit(sh("true"), grace_period=-1.0)


def test_a_request_is_submitted_once() -> None:
    info = scheduler().submit_dryrun(AppDef("job", [sh("true")]), {})
    app_id = scheduler().schedule(info)
    with pytest.raises(UsageError, match="already exists"):
        scheduler().schedule(info)
    assert ended(app_id).state is AppState.SUCCEEDED


def test_logs_that_exist_are_of_another_job_and_stay() -> None:
    info = scheduler().submit_dryrun(AppDef("job", [sh("true")]), {})
    log = Path(info.request.log_dir) / "sh" / "0" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.touch()
    with pytest.raises(UsageError, match="already exists"):
        scheduler().schedule(info)
    assert log.exists()
    assert list(scheduler().list()) == []


def test_file_in_way_of_logs_is_named() -> None:
    info = scheduler().submit_dryrun(AppDef("job", [sh("true")]), {})
    session = Path(info.request.log_dir).parent
    session.parent.mkdir(parents=True, exist_ok=True)
    session.touch()
    with pytest.raises(StateError, match=f"^the job cannot be recorded at {session}[:/]"):
        scheduler().schedule(info)
    assert list(scheduler().list()) == []


def test_dry_run_shows_what_would_run_and_touches_nothing() -> None:
    role = sh("echo ${replica_id}", 2)
    app = AppDef("job", [role])
    shown = repr(scheduler().submit_dryrun(app, {}))
    assert "sh -c 'echo 1'" in shown
    assert role.args == ["-c", "echo ${replica_id}"]
    assert not Path(os.environ["TORCHX_HOME"]).exists()


def test_describe_gives_back_what_was_submitted() -> None:
    role = sh("true", 2, retries=1, policy="ROLE")
    role.env = {"A": "b,c=d"}
    role.metadata = {"note": {"deep": [1, "x"]}}
    app = AppDef("job", [role], metadata={"k": "v"})
    app_id = scheduler().submit(app, {"fail_fast": False})
    done = ended(app_id)
    assert (done.roles, done.metadata, done.name) == (app.roles, app.metadata, "job")
    assert done.cfg["fail_fast"] is False


def test_job_is_seen_from_another_process_while_it_runs() -> None:
    app_id = submit(sh("echo here; sleep 600"))
    code = (
        "import sys; from torchx.schedulers.local.scheduler import create_cwd_scheduler as c;"
        "print(c('torchx').describe(sys.argv[1]).state.name)"
    )
    running(app_id)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, app_id], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "RUNNING\n"
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_list_is_newest_first_with_running_and_ended_jobs() -> None:
    first = run(sh("exit 4"), name="a").app_id
    second = submit(sh("sleep 600"), name="b")
    running(second)
    listed = list(scheduler().list())
    assert [(line.app_id, line.state) for line in listed] == [
        (second, AppState.RUNNING),
        (first, AppState.FAILED),
    ]
    assert [line.exit_code for line in listed] == [None, 4]
    assert [line.name for line in listed] == ["b", "a"]
    scheduler().cancel(second)
    ended(second)


def test_delete_removes_record_and_logs(tmp_path: Path) -> None:
    app_id = submit(sh("sleep 600"), log_dir=str(tmp_path))
    running(app_id)
    scheduler().delete(app_id)
    assert scheduler().describe(app_id) is None
    assert list(scheduler().list()) == []
    assert not (tmp_path / "torchx" / app_id).exists()
    assert_nothing_runs(app_id)
    scheduler().delete(app_id)  # what is gone is gone


def test_ports_of_two_jobs_differ() -> None:
    role = sh("echo $TORCHX_PORT_C10D; sleep 600", 2)
    role.port_map = {"c10d": 29500}
    one, two = submit(role), submit(role)
    texts = [wait_until(lambda a=a: len(t := text(a).split()) == 2 and t, "both ports") for a in (one, two)]  # type: ignore[misc]
    assert texts[0][0] == texts[0][1] != texts[1][0] == texts[1][1]
    for app_id in (one, two):
        scheduler().cancel(app_id)
        ended(app_id)


def test_streams_can_be_distinguished() -> None:
    app_id = run(sh("echo out; echo err >&2")).app_id
    assert text(app_id, Stream.STDOUT) == "out\n"
    assert text(app_id, Stream.STDERR) == "err\n"
    assert list(scheduler().log_iter(app_id, "w", streams=Stream.STDOUT)) == ["out\n"]


def test_unknown_jobs_are_unknown_everywhere() -> None:
    assert scheduler().describe("nope-1") is None
    assert not scheduler().exists("nope-1")
    assert list(scheduler().list()) == []
    scheduler().cancel("nope-1")
    assert not Path(os.environ["TORCHX_HOME"]).exists()


def test_a_thousand_replicas() -> None:
    done = run(sh("echo ${replica_id}", 1000))
    assert done.state is AppState.SUCCEEDED
    assert sorted(map(int, text(done.app_id).split())) == list(range(1000))


def test_children_have_default_signals_and_the_callers_file_limit() -> None:
    code = "import signal,resource;print(signal.getsignal(signal.SIGHUP)==signal.SIG_DFL,"
    code += "signal.getsignal(signal.SIGPIPE).name, resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", "import time;time.sleep(0.2);" + code])
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert text(run(role).app_id) == f"True SIG_IGN {soft}\n"  # Python itself ignores SIGPIPE
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # nothing was done to this process


def test_jobs_started_together_do_not_meet() -> None:
    ids = [submit(sh("echo ${app_id}"), name=f"n{k % 2}") for k in range(20)]
    for app_id in ids:
        assert ended(app_id).state is AppState.SUCCEEDED
        assert text(app_id) == f"{app_id}\n"
    assert {line.app_id for line in scheduler().list()} == set(ids)
    assert describe(ids[0]).app_id == ids[0]
