"""`torchx cp` for local jobs, and its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from copies import MAKE, cp, same
from local import ended, sh, submit
from program import on_terminal, torchx

from torchx.errors import StateError
from torchx_cli.contexts.members import Log
from torchx_cli.contexts.places import Programs

TORCHX = f"{sys.executable} -m torchx_cli"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A local job that has ended, in a working directory of its own."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    app_id = submit(sh(MAKE))
    ended(app_id)
    monkeypatch.chdir(tmp_path)
    return f"local_cwd://torchx/{app_id}"


def test_a_folder_of_a_local_job(job: str, tmp_path: Path) -> None:
    assert cp(f"{job}:out", "copy") == "copied 3 files\n"
    assert same(tmp_path / "work/out", tmp_path / "copy")
    cp(f"{job}/w/0:out", ".")
    assert same(tmp_path / "work/out", tmp_path / "out")
    cp(f"{job}:out/.", "copy")
    assert not (tmp_path / "copy/out").exists()
    cp(f"{job.rpartition('/')[2]}:out/sub/a", "copy/b")
    assert (tmp_path / "copy/b").read_text() == "hi\n"
    cp(f"{job}:{tmp_path}/work/out/big", "copy/")
    assert (tmp_path / "copy/big").read_bytes() == (tmp_path / "work/out/big").read_bytes()


def test_files_for_a_local_job(job: str, tmp_path: Path) -> None:
    cp("work/out", f"{job}:in")
    assert same(tmp_path / "work/out", tmp_path / "work/in")
    cp("work/out/sub/a", f"{job}:")
    assert (tmp_path / "work/a").read_text() == "hi\n"


def test_archives_on_the_standard_streams(job: str, tmp_path: Path) -> None:
    line = f"{TORCHX} cp {job}:out - | {TORCHX} cp - {job}:again"
    subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    assert same(tmp_path / "work/out", tmp_path / "work/again")
    listed = subprocess.check_output(["sh", "-c", f"{TORCHX} cp {job}:out - | tar t"], text=True)
    assert "out/sub/a" in listed.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b"], "one of SOURCE and TARGET is HANDLE:PATH"),
        (["JOB:a", "JOB:b"], "one of SOURCE and TARGET is HANDLE:PATH"),
        (["JOB:missing", "."], "no such file or folder"),
        (["missing", "JOB:"], "no such file or folder"),
        (["JOB:out", "work/out/big"], "is a file, the source is a folder"),
        (["JOB:out/big", "missing/x"], "cannot be written: No such file or directory"),
        (["JOB:out/big", "missing/"], "no such folder"),
        (["JOB/w/7:out", "."], "has no replica w/7"),
        (["nothing-here:out", "."], "has an application `nothing-here`"),
    ],
)
def test_errors_name_the_path(words: list[str], message: str, job: str) -> None:
    done = torchx("cp", *(word.replace("JOB", job) for word in words))
    assert done.returncode in (1, 2, 69), done.stderr
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) <= 2


def test_no_archive_on_a_terminal(job: str) -> None:
    shown, code = on_terminal("cp", f"{job}:out", "-")
    assert "an archive is not written to a terminal" in shown
    assert code == 2


def test_a_replica_without_tar(tmp_path: Path) -> None:
    def execute(command: Any, streams: Any) -> int:
        done = subprocess.run(command, env={"PATH": "/nowhere"}, executable="/bin/sh", capture_output=True)
        streams.stderr.write(done.stderr)
        return done.returncode

    (tmp_path / "a").write_text("x")
    place = Programs(execute, "w/0")
    with (
        pytest.raises(StateError, match="w/0 has no program `tar`"),
        place.read(str(tmp_path), Log()) as found,
    ):
        list(found)
