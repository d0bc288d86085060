"""What local jobs survive of their files: damage, loss, full disks, homes that cannot be used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from local import describe, paths, run, scheduler, sh, submit, text
from program import answer, torchx

from torchx.errors import StateError
from torchx.runner import get_runner
from torchx.specs.status import AppState


def test_a_damaged_event_is_passed_over() -> None:
    done = run(sh("exit 3"))
    with paths(done.app_id).events.open("a") as file:
        file.write('{"t":1,"e":"exit","r":99,"a":1}\n{"half')
    assert describe(done.app_id).state is AppState.FAILED


def test_damaged_record_is_reported_and_does_not_hide_others() -> None:
    bad, good = run(sh("true")).app_id, run(sh("true")).app_id
    paths(bad).record.write_text('{"schema": 1, "app_')
    with pytest.raises(StateError, match="is damaged"):
        scheduler().describe(bad)
    Path(os.environ["TORCHX_HOME"], "ended.jsonl").unlink()
    listed = {line.app_id: line for line in scheduler().list()}
    assert listed[good].state is AppState.SUCCEEDED
    assert listed[bad].state is AppState.UNKNOWN
    assert "damaged" in listed[bad].msg


def test_record_of_newer_version_says_what_to_do() -> None:
    app_id = run(sh("true")).app_id
    record = paths(app_id).record
    record.write_text(record.read_text().replace('"schema":1', '"schema":999'))
    with pytest.raises(StateError, match="newer version") as caught:
        scheduler().describe(app_id)
    assert caught.value.hint == "upgrade torchx to read it"


def test_lost_list_of_ended_jobs_is_made_again() -> None:
    ids = {run(sh("true")).app_id for _ in range(3)}
    lost = Path(os.environ["TORCHX_HOME"], "ended.jsonl")
    lost.write_bytes(b"not json\n")
    assert {line.app_id for line in scheduler().list()} == ids
    assert lost.read_bytes() == b"not json\n", "a listing changes nothing"
    with get_runner() as runner:
        assert {line.app_id for line in runner.list("local_cwd")} == ids
    assert lost.read_text().count("\n") == 4


def test_a_state_home_that_cannot_be_written_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("TORCHX_HOME", str(file / "below"))
    with pytest.raises(StateError, match="cannot be used") as caught:
        submit(sh("echo never"))
    assert "TORCHX_HOME" in str(caught.value.hint)


def test_a_state_home_with_spaces_and_unicode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "ein Ordner ü" / ("long" * 40)))
    assert text(run(sh("echo ok")).app_id) == "ok\n"


def test_the_state_home_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "open"
    home.mkdir(mode=0o755)
    monkeypatch.setenv("TORCHX_HOME", str(home))
    app_id = run(sh("true")).app_id
    assert home.stat().st_mode & 0o777 == 0o700
    for file in paths(app_id).folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_supervisor_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(StateError, match="/no/such/python"):
        submit(sh("echo never"))
    assert list(scheduler().list()) == []
    home = Path(os.environ["TORCHX_HOME"])
    assert [p for p in home.rglob("*") if p.is_file()] == []


def test_a_full_disk_loses_output_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", small]).returncode:
        pytest.skip("needs the right to mount a small disk: run the tests as root")
    try:
        monkeypatch.setenv("TORCHX_HOME", str(small / "home"))
        done = run(sh("i=0; while [ $i -lt 20000 ]; do echo line $i of many; i=$((i+1)); done; exit 5", 4))
        assert done.state is AppState.FAILED
        assert done.first_failure is not None
        assert "bytes of output were lost: No space left on device" in done.first_failure.msg
        assert text(done.app_id).startswith("line 0 of many\n")
        assert re.fullmatch(r"\d+ bytes of output were lost: No space left on device", done.msg)
        shown = torchx("status", done.app_id).stdout
        assert f"  {done.msg}\n" in shown
        with pytest.raises(StateError, match="No space left on device"):
            submit(sh("echo never"))
        scheduler().delete(done.app_id)
        assert text(run(sh("echo again")).app_id) == "again\n"
        # each command that shows the end reports the loss, for a success too
        quick = torchx("run", "utils.sh", "head -c 900000 /dev/zero | tr '\\0' x")
        assert quick.returncode == 0
        assert "bytes of output were lost: No space left on device\n" in quick.stderr
        assert "bytes of output were lost" in torchx("list").stdout
        (waited,) = answer("wait", "@last", "-o", "json")
        assert "bytes of output were lost" in waited["msg"]
    finally:
        subprocess.run(["umount", small], check=True)
