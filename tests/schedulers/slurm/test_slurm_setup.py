"""The run option `setup`: commands that each replica runs before its program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from canary import canary
from program import torchx
from slurms import output, role, slurm
from slurmscripts import made, run_script, run_task

from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.specs import AppDef, AppState, Role


def outcome(tmp_path: Path, setup: str, *args: str, **env: str) -> tuple[str, int, str]:
    """Runs a replica with a setup; returns its stdout, its exit code and its error."""
    program = Role("r", "", entrypoint="sh", args=["-c", 'echo "$$X $$@"', "sh", *args], env=env)
    attempt = run_task(AppDef("a", [program]), tmp_path, cfg={"setup": setup})
    error = attempt.parent / "error.json"
    message = json.loads(error.read_text())["message"]["message"] if error.exists() else ""
    return (
        (attempt / "stdout.log").read_text(),
        json.loads((attempt / "end.json").read_text())["exit_code"],
        message,
    )


def test_the_program_has_the_shell_of_the_setup(tmp_path: Path) -> None:
    (tmp_path / "activate").write_text('false\ntrue\nexport X="$X and more"\n')
    setup = f"(exit 3) | cat; false || true; source {tmp_path}/activate; cd /"
    assert outcome(tmp_path / "f", setup, "a b", "'\"", X="mine") == ("mine and more a b '\"\n", 0, "")


@pytest.mark.parametrize(
    ("setup", "code", "command"),
    [
        ('load() { return 5; }; load cuda "\\ é"; echo not', 5, 'load cuda "\\ é"'),
        ("load() { return 6; }; true && load cuda && echo not", 6, "load cuda"),
        ("source /nonexistent/activate; echo not", 1, "source /nonexistent/activate"),
        ("no-such-program; echo not", 127, "no-such-program"),
    ],
)
def test_the_command_that_fails_is_named(tmp_path: Path, setup: str, code: int, command: str) -> None:
    message = f"setup failed with exit code {code}: {command}"
    assert outcome(tmp_path, setup) == ("", code, message)
    (log,) = tmp_path.glob("*/0/attempt-1/stderr.log")
    assert log.read_text().endswith(f"torchx: {message}\n")


def test_a_setup_that_exits_ends_the_replica(tmp_path: Path) -> None:
    assert outcome(tmp_path / "4", "exit 4") == ("", 4, "setup failed with exit code 4: exit 4")
    (tmp_path / "activate").write_text("(exit 3) && true; exit\n")
    expected = ("", 3, "setup failed with exit code 3: exit 3")
    assert outcome(tmp_path / "file", f"source {tmp_path}/activate") == expected


def test_a_setup_that_exits_with_0_is_a_failure(tmp_path: Path) -> None:
    """The replica would succeed without its program."""
    message = "setup failed with exit code 1: exit 0, before the program"
    assert outcome(tmp_path, "exit 0") == ("", 1, message)


def test_a_role_runs_in_its_image_with_apptainer(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "apptainer"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/called\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n'
    )
    program.chmod(0o755)
    script = made(
        AppDef("a", [Role("r", "py:3", entrypoint="echo", args=["ran"])]),
        str(tmp_path / "f"),
        containers="apptainer",
    )
    assert run_script(script, tmp_path / "f", tmp_path / "bin").returncode == 0
    assert (tmp_path / "f" / "r" / "0" / "attempt-1" / "stdout.log").read_text() == "ran\n"
    folder = tmp_path / "f"
    assert (
        tmp_path / "called"
    ).read_text() == f"exec --bind {folder} docker://py:3 sh {folder}/role-0.sh r\n"


@pytest.mark.slurm
def test_a_failure_is_reported_and_the_setup_stays_private(scheduler: SlurmScheduler) -> None:
    secret = canary()
    setup = f"export X={secret}; test ! -d /nonexistent; module_of() {{ return 9; }}; module_of cuda"
    app_id = scheduler.submit(AppDef("setup", [role("echo ran")]), {"setup": setup})
    assert secret not in slurm("scontrol", "write", "batch_script", app_id, "-")
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.first_failure is not None
    assert (described.state, described.first_failure.exit_code) == (AppState.FAILED, 9)
    assert "setup failed with exit code 9: module_of cuda" in torchx("status", app_id).stdout
    assert output(scheduler, app_id) == b"torchx: setup failed with exit code 9: module_of cuda\n"
    (record,) = Records("slurm").all()
    assert (record.paths.folder / ".node" / "setup.sh").stat().st_mode & 0o077 == 0


@pytest.mark.slurm
def test_apptainer_that_is_absent_is_named() -> None:
    done = torchx("run", "-s", "slurm", "-cfg", "containers=apptainer", "utils.echo")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: run option `containers` is apptainer, which is not on PATH",
    )
