"""Output on the disk of a node, in a `job_dir` that the nodes do not share, until it is gathered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from slurmscripts import run_task

from torchx.schedulers.shared.batch.node import gather
from torchx.specs import AppDef, Role


def run(tmp_path: Path, disk: str, program: str) -> Path:
    """Runs a replica with logs on a disk of its node; returns the folder of its attempt."""
    script = Role("r", "", entrypoint="sh", args=["-c", program.replace("$", "$$")])
    return run_task(AppDef("a", [script]), tmp_path / "job", disk=disk)


def test_output_is_gathered_during_and_after_a_replica(tmp_path: Path) -> None:
    program = f"""
        echo first; echo second >&2
        until grep -qs first {tmp_path}/job/r/0/attempt-1/combined.log; do sleep 0.05; done
        stat -c %a {tmp_path}/disk-0/torchx-*
        cat {tmp_path}/disk-0/torchx-*/stdout.log
        seq 20000
    """
    attempt = run(tmp_path, f"{tmp_path}/disk-0", program)
    expected = ["first", "700", "first", "700"]  # the copy of stdout is read before its own output arrives
    lines = (attempt / "stdout.log").read_text().splitlines()
    assert lines[:2] == expected[:2]
    assert lines[-20000:] == [str(number + 1) for number in range(20000)]
    assert (attempt / "stderr.log").read_text() == "second\n"
    assert sorted((attempt / "combined.log").read_text().splitlines()) == sorted([*lines, "second"])
    assert {path.stat().st_mode & 0o777 for path in attempt.glob("*.log")} == {0o600}
    assert list((tmp_path / "disk-0").iterdir()) == []


def test_a_folder_that_cannot_be_used_loses_no_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    attempt = run(tmp_path, str(tmp_path / "file"), "echo here")
    assert (attempt / "stdout.log").read_text() == "here\n"
    assert f"torchx: cannot write logs to {tmp_path}/file: File exists" in capfd.readouterr().err


def test_output_that_cannot_be_gathered_stays_on_the_node(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job" / "r" / "0" / "attempt-1"
    attempt = run(tmp_path, str(tmp_path / "disk"), f"echo kept; mkdir {folder}/combined.log")
    assert (attempt / "end.json").exists()
    (left,) = (tmp_path / "disk").iterdir()
    assert (left / "combined.log").read_text() == "kept\n"
    assert "torchx: cannot gather the logs: Is a directory" in capfd.readouterr().err


def test_file_of_others_in_folder_does_not_hide_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = run(tmp_path, str(tmp_path / "disk"), f"echo here; cd {tmp_path}/disk/torchx-*; touch mine")
    assert (attempt / "stdout.log").read_text() == "here\n"
    assert (attempt / "end.json").exists()
    assert "Directory not empty" in capfd.readouterr().err


def test_a_program_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    missing = Role("r", "", entrypoint="/nonexistent/program")
    attempt = run_task(AppDef("a", [missing]), tmp_path / "job", disk=str(tmp_path / "disk"))
    assert "cannot be started" in (attempt / "stderr.log").read_text()
    assert list((tmp_path / "disk").iterdir()) == []


def test_output_of_an_agent_that_was_killed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The script runs the same file at the end of the job; output of other jobs stays."""
    job, disk = tmp_path / "job", tmp_path / "disk"
    folders = {}
    for name in ("job", "job-2"):
        attempt = tmp_path / name / "r" / "0" / "attempt-1"
        attempt.mkdir(parents=True)
        logs = gather.on_node(str(disk), str(attempt))
        folders[name] = Path(logs.folder)
        for file in gather.Gathered.FILES:
            (folders[name] / file).write_bytes(b"first\n")
        assert logs.copy()
        (folders[name] / "combined.log").write_bytes(b"first\nlast\n")
    assert folders["job"].stat().st_mode & 0o777 == 0o700
    (disk / "torchx-link").symlink_to(folders["job-2"])
    subprocess.run([sys.executable, "-I", "-S", gather.__file__, job, disk], check=True)
    assert (job / "r" / "0" / "attempt-1" / "combined.log").read_text() == "first\nlast\n"
    assert [folder.exists() for folder in folders.values()] == [False, True]
    assert capfd.readouterr().err == ""


def test_output_is_copied_soon_after_a_signal() -> None:
    logs = gather.Gathered("/disk", "/job")
    assert [logs.is_due(logs.at + 1, ending) for ending in (False, True)] == [False, True]
