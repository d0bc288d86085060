"""Set-ups of local jobs: one for all replicas, their failure, their cancellation, and installed programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from local import describe, ended, handle, processes_of, replicas, run, scheduler, sh, submit, text
from support import wait_until

from torchx.runner.api import Runner
from torchx.scheduling.causes import classify
from torchx.scheduling.setup_once import program
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState
from torchx_cli.main import main


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(program.HOME, str(tmp_path / "setup"))


def test_eight_replicas_and_two_jobs_share_a_set_up(tmp_path: Path) -> None:
    command = f"echo run >> {tmp_path}/count; sleep 0.5; touch $TORCHX_SETUP_DIR/made"
    roles = sh("test -e $TORCHX_SETUP_DIR/made && echo ready", 4), sh("true", 4, name="v")
    jobs = [submit(*roles, setup_once=command) for _ in range(2)]
    assert [ended(job).state for job in jobs] == [AppState.SUCCEEDED] * 2
    assert (tmp_path / "count").read_text() == "run\n"
    assert sum(text(job).count("ready\n") for job in jobs) == 8


def test_a_failure_ends_the_job_before_the_program(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = f"echo run >> {tmp_path}/count; echo 'no wheel for x'; exit 3"
    failed = run(sh("echo program", 4, retries=3), setup_once=command)
    assert failed.state is AppState.FAILED
    assert "program\n" not in text(failed.app_id)
    assert (tmp_path / "count").read_text() == "run\n", "not retried, and not repeated by other replicas"
    with Runner("test") as runner:
        status = runner.status(handle(failed.app_id))
        assert status is not None
        lines = text(failed.app_id).splitlines()
        cause = classify(status.state, status.msg, status.first_failure, lines)
        assert (cause.name, cause.source) == ("setup_once", "output")
    assert main(["why", failed.app_id]) == 0
    assert "cause        setup_once: exit code 93" in capfd.readouterr().out
    assert main(["status", failed.app_id]) == 0
    assert "not retried: setup-once (torchx setup failed on " in capfd.readouterr().out


def test_a_policy_may_retry_a_set_up(tmp_path: Path) -> None:
    command = f"echo run >> {tmp_path}/count; test $(wc -l < {tmp_path}/count) = 2"
    job = run(sh("true", 2, retries=2), setup_once=command, no_retry_on=["none"])
    assert job.state is AppState.SUCCEEDED
    assert (tmp_path / "count").read_text() == "run\n" * 2


@pytest.mark.parametrize("way", ["cancel", "time limit"])
def test_the_end_of_a_job_ends_its_set_up(tmp_path: Path, way: str) -> None:
    limit = {"time_limit": "2"} if way == "time limit" else {}
    job = submit(sh("true", 2), setup_once=f"touch {tmp_path}/began; sleep 600", **limit)
    wait_until((tmp_path / "began").exists, "the set-up runs")
    if way == "cancel":
        scheduler().cancel(job)
    assert ended(job).state is (AppState.CANCELLED if way == "cancel" else AppState.FAILED)
    assert not processes_of(job)
    again = run(sh("echo program"), setup_once=f"touch {tmp_path}/began; sleep 600 & kill $!")
    assert again.state is AppState.SUCCEEDED


def test_a_program_that_the_set_up_installs(capfd: pytest.CaptureFixture[str]) -> None:
    install = 'mkdir $TORCHX_SETUP_DIR/bin; cp "$(command -v env)" $TORCHX_SETUP_DIR/bin/trains'
    role = Role("w", "", entrypoint="trains", args=["true"])
    role.metadata["requires"] = {"trains": "make it"}
    job = run(role, setup_once=install)
    assert (job.state, job.roles[0].entrypoint) == (AppState.SUCCEEDED, "trains")
    assert replicas(describe(job.app_id))[0].exit_code == 0
    info = scheduler().submit_dryrun(AppDef("x", [role]), {"setup_once": install})
    assert "trains true\n  after its checks and set-up; " in str(info)
    missing = run(Role("w", "", entrypoint="trains"), setup_once="true")
    assert replicas(missing)[0].exit_code == 127
    assert text(missing.app_id).endswith("trains: No such file or directory\n")


def test_checks_come_first(tmp_path: Path) -> None:
    command = f"touch {tmp_path}/made"
    failed = run(sh("true"), setup_once=command, preflight=["cmd:false"])
    assert replicas(failed)[0].exit_code == 94
    assert not (tmp_path / "made").exists()
    assert run(sh("true"), setup_once=command, preflight=["cmd:true"]).state is AppState.SUCCEEDED
    assert (tmp_path / "made").exists()


def test_the_record_stays_small() -> None:
    request = scheduler().submit_dryrun(AppDef("x", [sh("true", 100)]), {"setup_once": "make"}).request
    assert len(json.dumps([param.args for param in request.role_params["w"]])) < 100 * 1000
