"""A state home of another user, or one that others may write to; and items in it that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from program import answer, torchx

NOBODY = 65534


@pytest.fixture
def home() -> Path:
    home = Path(os.environ["TORCHX_HOME"])
    (home / "jobs" / "x-1").mkdir(parents=True)
    (home / "jobs" / "x-1" / "job.json").write_text("{")
    return home


@pytest.mark.skipif(bool(os.geteuid()), reason="gives files to another user: run the tests as root")
@pytest.mark.parametrize(
    "line",
    [
        "list",
        "list -s slurm",
        "status x-1",
        "describe x-1",
        "log x-1",
        "wait x-1",
        "cancel x-1",
        "delete x-1",
        "prune",
        "attach @last",
        "run utils.echo",
        "run --dryrun utils.echo",
    ],
)
def test_every_command_refuses_a_home_of_another_user(home: Path, line: str) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    done = torchx(*line.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: the state home {home} belongs to another user\n  set TORCHX_HOME to a folder of your own\n"
    )
    assert sorted(path.name for path in home.rglob("*")) == ["job.json", "jobs", "x-1"]


@pytest.mark.skipif(bool(os.geteuid()), reason="gives files to another user: run the tests as root")
def test_doctor_finds_a_home_of_another_user(home: Path) -> None:
    os.chown(home, NOBODY, NOBODY)
    found = {each["what"]: each for each in answer_of_doctor()}
    assert found["state home"]["verdict"] == "wrong"
    assert found["state home"]["detail"].endswith("belongs to another user")


def answer_of_doctor() -> list[dict[str, str]]:
    import json

    done = torchx("doctor", "local_cwd", "-o", "json")
    assert done.returncode == 1
    found: list[dict[str, str]] = json.loads(done.stdout)["local_cwd"]
    return found


def test_home_that_others_may_write_to_is_made_private(home: Path) -> None:
    home.chmod(0o777)
    assert answer("list", "-s", "local_cwd", "-o", "json")[0]["state"] == "UNKNOWN"
    assert home.stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_read_is_listed_deleted_and_pruned(home: Path) -> None:
    (home / "jobs" / "y-1").mkdir()
    os.mkfifo(home / "jobs" / "y-1" / "job.json")
    listed = torchx("list", "-s", "local_cwd")
    assert listed.returncode == 0
    assert listed.stdout.count("UNKNOWN") == 2
    assert "y-1/job.json is damaged: it is a pipe, not a regular file" in listed.stdout
    done = torchx("status", "y-1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "remove it: torchx delete y-1" in done.stderr
    done = torchx("delete", "y-1")
    assert (done.returncode, done.stderr) == (0, "y-1 is deleted\n")
    assert torchx("prune", "--yes", "--older-than", "0").stdout.startswith("removed 1 application: ")
    assert list((home / "jobs").iterdir()) == []


def test_damaged_record_of_ended_job_keeps_its_listed_end(home: Path) -> None:
    name = torchx("run", "-s", "local_cwd", "utils.sh", "exit 3").stdout.strip().rpartition("/")[2]
    (home / "jobs" / name / "job.json").write_text("{")
    row = next(row for row in answer("list", "-s", "local_cwd", "-o", "json") if row["app_id"] == name)
    assert (row["state"], row["exit_code"]) == ("FAILED", 3)
    done = torchx("status", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{name}/job.json is damaged" in done.stderr
    assert f"torchx delete {name}" in done.stderr
    assert torchx("delete", name).returncode == 0


def test_a_last_that_is_no_file_holds_nothing_up(home: Path) -> None:
    os.mkfifo(home / "last")
    done = torchx("status", "@last")
    assert done.returncode == 1
    assert "is known for @last" in done.stderr or "x-1" in done.stderr
    assert torchx("run", "-s", "local_cwd", "utils.echo", "--msg", "hi").returncode == 0
    assert "SUCCEEDED" in torchx("status", "@last").stdout
