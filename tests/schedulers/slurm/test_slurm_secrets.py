"""No other user sees the arguments and the environment of a role: in processes, in Slurm, in files."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from canary import Watched, canary, files_for_others, in_outputs, open_files
from hidden import check_no_view_of_a_sweep_shows_secrets, check_no_view_shows_secrets
from program import answer, torchx
from slurms import output, role, slurm, state
from support import wait_until

from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.specs import AppDef, AppState

pytestmark = pytest.mark.slurm


@pytest.fixture
def umask() -> Iterator[None]:
    """The process of somebody who shares everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_others_see_no_values_and_arguments_of_a_role(
    scheduler: SlurmScheduler, tmp_path: Path, umask: None, caplog: pytest.LogCaptureFixture
) -> None:
    argument, value, gate = canary(), canary(), tmp_path / "gate"
    caplog.set_level(logging.DEBUG)
    script = f"umask; until test -e {gate}; do sleep 0.1; done; test ${{#HF_TOKEN}} = {len(value)} || exit 9"
    secret = role(script.replace("$", "$$"), env={"HF_TOKEN": value, "PLAIN": value}, max_retries=1)
    secret.args.append(argument)
    program = ["sh", "-c", script, argument]

    def is_program(argv: list[bytes]) -> bool:
        return [word.decode() for word in argv] == program

    with Watched(argument, value, may=is_program) as watched:
        app_id = scheduler.submit(AppDef("secret", [secret, role("true", "other")]), {"requeue": False})
        wait_until(lambda: output(scheduler, app_id) == b"0000\n", "it runs, with the umask of its owner")
        shown = in_outputs(
            [
                ["ps", "-eo", "args"] if os.geteuid() else ["true"],
                ["scontrol", "--details", "--details", "show", "job", app_id],
                ["scontrol", "show", "step", app_id],
                ["scontrol", "write", "batch_script", app_id, "-"],
                ["squeue", "--noheader", f"--jobs={app_id}", "--format=%all"],
            ],
            argument,
            value,
        )
        begun = watched.looks
        wait_until(lambda: watched.looks > begun + 3, "the processes were searched while it runs")
        gate.touch()
        assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.SUCCEEDED
    assert watched.seen == []
    assert shown == []
    if "slurmdbd" in slurm("scontrol", "show", "config"):
        lines = slurm("sacct", f"--jobs={app_id}", "--format=ALL", "--parsable2")
        assert "role-0.sh" in lines, "it keeps the arguments of srun"
        assert argument not in lines
        assert value not in lines
        assert in_outputs([["sacct", f"--jobs={app_id}", "--batch-script"]], argument, value) == []
    home = Path(os.environ["TORCHX_HOME"])
    assert files_for_others(home, argument, value) == []
    (record,) = Records("slurm").all()
    assert open_files(record.paths.folder) == []
    assert value in (record.paths.folder / "role-0.sh").read_text(), "the search would find it"
    assert argument not in caplog.text
    assert value not in caplog.text


def test_program_has_umask_of_owner_and_private_script(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        app_id = scheduler.submit(AppDef("mask", [role("umask")]), {"job_dir": str(tmp_path / "a" / "b")})
    finally:
        os.umask(before)
    assert scheduler.wait(app_id, 60)
    assert output(scheduler, app_id) == b"0027\n"
    assert open_files(tmp_path / "a") == []


def test_a_script_by_hand_keeps_its_files_private(scheduler: SlurmScheduler, umask: None) -> None:
    value = canary()
    info = scheduler.submit_dryrun(AppDef("hand", [role("echo ran", env={"A": value})]), {})
    assert value in repr(info), "it is whole: what a caller prints is for the caller's eyes"
    app_id = slurm("sbatch", "--parsable", text=repr(info)).strip()
    assert scheduler.wait(app_id, 60)
    assert output(scheduler, app_id) == b"ran\n"
    assert open_files(Path(info.request.folder)) == []


def test_what_slurm_keeps_of_script_goes_to_sbatch_again(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    """The roles are read from the folder of the first job."""
    first = scheduler.submit(AppDef("again", [role("echo $$A", env={"A": "kept"})]), {"hold": True})
    slurm("scontrol", "write", "batch_script", first, str(tmp_path / "kept.sh"))
    second = slurm("sbatch", "--parsable", str(tmp_path / "kept.sh")).strip()
    slurm("scontrol", "release", second)
    assert scheduler.wait(second, 60)
    assert output(scheduler, second) == b"kept\n"


def test_a_suspension_is_no_end(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"until test -e {gate}; do sleep 0.1; done; echo went on; exit 3"
    app_id = scheduler.submit(AppDef("pause", [role(script), role("exec sleep 600", "other")]), {})
    wait_until(lambda: state(scheduler, app_id) is AppState.RUNNING, "it runs")
    (record,) = Records("slurm").all()
    wait_until(lambda: len(list(record.paths.folder.glob("*/0/attempt-1/start.json"))) == 2, "all of it runs")
    for _ in range(2):
        slurm("scontrol", "suspend", app_id)
        wait_until(lambda: _stopped(app_id) >= 4, "the script and its steps are stopped")
        reported = scheduler.glance(app_id)
        assert reported is not None
        assert (reported.state, reported.msg) == (AppState.RUNNING, "suspended")
        slurm("scontrol", "resume", app_id)
        wait_until(lambda: _stopped(app_id) == 0, "all of it goes on")
        assert state(scheduler, app_id) is AppState.RUNNING
    gate.touch()
    assert scheduler.wait(app_id, 60)
    reported = scheduler.describe(app_id)
    assert reported is not None
    assert reported.first_failure is not None
    assert (reported.state, reported.first_failure.role, reported.first_failure.exit_code) == (
        AppState.FAILED,
        "r",
        3,
    )
    assert output(scheduler, app_id) == b"went on\n"


def _stopped(app_id: str) -> int:
    """Returns how many processes of a job are stopped."""
    number = 0
    for entry in os.scandir("/proc"):
        try:
            folder = Path(entry.path)
            stopped = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            number += stopped and f"SLURM_JOB_ID={app_id}".encode() in (
                folder / "environ"
            ).read_bytes().split(b"\0")
        except OSError:
            continue
    return number


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A job of another user whose comment names a folder of the caller."""
    if os.geteuid() != 0 or shutil.which("runuser") is None:
        pytest.skip("only root can be two users")
    folder = tmp_path / "jobs" / "x-b1c2"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "precious").write_text("mine")
    argv = ["runuser", "-u", "nobody", "--", "sbatch", "--parsable", "--hold", "--output=/dev/null"]
    argv += ["--chdir=/", "--job-name=line\nbreak", f"--comment=torchx:b1c2:{folder}", "--wrap=true"]
    job = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    (folder / "id").write_text(f"{job}\n")
    yield job, folder
    subprocess.run(["scancel", job], check=True, timeout=60)


def test_job_of_another_user_is_shown_and_never_touched(
    scheduler: SlurmScheduler, stranger: tuple[str, Path]
) -> None:
    job, folder = stranger
    own = scheduler.submit(AppDef("own", [role("true")]), {"hold": True})
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    assert job not in [app.app_id for app in scheduler.list()]
    listed = {app.app_id: (app.is_own, app.state, app.msg) for app in scheduler.list({"all_users": True})}
    assert listed[job] == (
        False,
        AppState.PENDING,
        "JobHeldUser: held by its user: scontrol release; owned by nobody",
    )
    assert listed[own][0], "the line break in the name of the other hides nothing"
    reported = scheduler.describe(job)
    assert reported is not None
    assert (reported.state, reported.log_dir, reported.roles_statuses) == (AppState.PENDING, None, [])
    for words, verb in (
        (["cancel", job], "cancelled"),
        (["delete", "--force", job], "deleted"),
        (["log", job], "read"),
    ):
        done = torchx(*words)
        assert (done.returncode, done.stdout) == (77, ""), words
        assert done.stderr.startswith(
            f"error: job {job} was not {verb}: it was submitted by the user nobody"
        ), words
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == before
    assert slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip() == "PENDING"


def test_a_comment_that_names_another_folder_is_not_believed(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    home = tmp_path / "jobs" / "home"
    home.mkdir(parents=True)
    (home / "job.json").write_text("{}")
    argv = ["sbatch", "--parsable", "--hold", "--output=/dev/null", f"--comment=torchx:b1c2:{home}"]
    job = slurm(*argv, "--wrap=true").strip()
    (line,) = (app for app in scheduler.list() if app.app_id == job)
    assert "the folder in its comment is not trusted: it is not named like" in line.msg
    scheduler.delete(job)
    assert [path.name for path in home.iterdir()] == ["job.json"]
    assert job not in [app.app_id for app in scheduler.list()]


@pytest.mark.parametrize("end", ["+1", ".0", ".batch"])
def test_the_id_of_a_part_is_named_as_such(end: str) -> None:
    for words in (["status", f"slurm://torchx/157{end}"], ["status", f"157{end}"], ["cancel", f"157{end}"]):
        done = torchx(*words)
        assert done.returncode == 2, words
        assert done.stderr.startswith(f"error: `157{end}` is a"), words
        assert done.stderr.splitlines()[1:] == ["  use the id of the job: slurm://torchx/157"], words


def test_a_query_writes_nothing(scheduler: SlurmScheduler) -> None:
    app_id = scheduler.submit(AppDef("ended", [role("exit 3")]), {})
    assert scheduler.wait(app_id, 60)
    (record,) = Records("slurm").all()
    home = Path(os.environ["TORCHX_HOME"])

    def files() -> dict[Path, int]:
        found = {path: path.lstat() for path in (home / "slurm").rglob("*")}
        return {
            path: status.st_mtime_ns for path, status in found.items() if not stat.S_ISDIR(status.st_mode)
        }

    wait_until(
        lambda: slurm("squeue", "--noheader", f"--jobs={app_id}", "--format=%T").strip() in ("", "FAILED"),
        "end",
    )
    record.paths.outcome.unlink(missing_ok=True)
    before = files()
    answer("list", "--json", "-s", "slurm")
    for words in (["status", app_id], ["describe", app_id], ["log", app_id]):
        torchx(*words)
    assert files() == before


def test_no_view_shows_a_printed_secret(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    check_no_view_shows_secrets(tmp_path, "-s", "slurm")


def test_no_view_of_a_sweep_shows_a_printed_secret(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    check_no_view_of_a_sweep_shows_secrets(tmp_path, "-s", "slurm")
