"""Reports of failures: quick and short whatever was printed, on a terminal and in a pipe."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import IMAGE
from hypothesis import given
from hypothesis import strategies as st
from program import on_terminal, torchx

from torchx.excerpts import last_lines, last_lines_of
from torchx.runner import Runner
from torchx.runner.first_failure import NOT_COPIED
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.status import AppState, AppStatus, FirstFailure
from torchx_cli.terminal import output
from torchx_cli.terminal.ending import failure_lines
from torchx_cli.terminal.output import columns, fit

MB = 1 << 20


def chunk(data: bytes, stream: Stream = Stream.STDOUT) -> LogChunk:
    return LogChunk("w", 0, 1, stream, 0.0, data)


@pytest.mark.parametrize("width", [None, 80])
@pytest.mark.parametrize(
    "piece",
    ["x", "日", "e\u0301", "\u0301", "\x1b[31m", "\r", "\t", "\x00", "\n", "\x1b]0;", "\U0001f642", "\ud800"],
)
def test_fitting_a_text_takes_time_by_the_width(piece: str, width: int | None) -> None:
    text = piece * (10 * MB)
    began = time.process_time()
    line = fit(text, width)
    assert time.process_time() - began < 0.5
    assert columns(line) <= (width or output.LONGEST)
    assert len(line) <= (width or output.LONGEST) * 16 + 3
    assert "\n" not in line


@pytest.mark.parametrize(
    "piece",
    [
        b"x",
        "日".encode(),
        "e\u0301".encode(),
        b"\r",
        b"10%\r",
        b"\x1b[31m",
        b"\xff",
        b"\n",
        b"x\n",
        b"\x1b]0;",
        b" ",
    ],
)
def test_the_last_lines_are_short_and_come_soon(piece: bytes) -> None:
    whole = piece * (30 * MB // len(piece))
    chunks = [chunk(whole[at : at + MB]) for at in range(0, len(whole), MB)]
    began = time.process_time()
    lines = last_lines(chunks, 10)
    assert time.process_time() - began < 0.5
    assert len(lines) <= 10
    assert all(len(line) <= 4096 + 2 for line in lines)


@given(
    st.lists(st.text("ab\n\ré日", max_size=30).map(str.encode), max_size=6),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_last_lines_do_not_depend_on_pieces(pieces: list[bytes], count: int, size: int) -> None:
    whole = b"".join(pieces)
    parts = [chunk(whole[at : at + size]) for at in range(0, len(whole), size)]
    expected = [
        line.rstrip("\r").rpartition("\r")[2] for line in whole.decode().removesuffix("\n").split("\n")
    ]
    assert last_lines(parts, count) == (expected[-count:] if whole else [])
    assert last_lines_of(whole.decode(), count) == (expected[-count:] if whole else [])


def test_long_line_is_marked_and_no_character_is_cut() -> None:
    (line,) = last_lines([chunk("é".encode() * 5000), chunk(b"\n")], 10)
    assert line == "é" * 2048 + ".."
    (line,) = last_lines([chunk(b"x" + "é".encode() * 5000)], 10)
    assert line == "x" + "é" * 2047 + ".."


def test_lines_of_both_streams_stay_apart() -> None:
    parts = [chunk(b"out "), chunk(b"err\n", Stream.STDERR), chunk(b"put\n")]
    assert last_lines(parts, 10) == ["out put", "err"]
    assert last_lines(parts, 10, names=True) == ["w/0 │ out put", "w/0 │ err"]


class OneLog(Runner):
    """A runner whose one replica has written this."""

    def __init__(self, data: bytes) -> None:
        super().__init__("s", {})
        self._data = data

    def log_chunks(self, app_handle: str, query: LogQuery) -> Iterator[LogChunk]:
        return iter([chunk(self._data)])


def test_what_an_engine_says_at_length_is_cut() -> None:
    failure = FirstFailure("w", 0, 1, 1, None, "why " * MB)
    status = AppStatus(AppState.FAILED, first_failure=failure, msg="because " * MB)
    with OneLog(b"PGPASSWORD=canary\n") as runner:
        lines = failure_lines(runner, "local_cwd://s/a", status, io.StringIO(), name="a")
    assert max(map(len, lines)) < 2 * output.LONGEST
    assert "canary" not in "".join(lines)
    assert (
        len(failure_lines(runner, "h", AppStatus(AppState.FAILED, msg="b " * MB), io.StringIO(), "a")[0])
        < 3000
    )


COMPONENT = """
import torchx.specs as specs


def app(line: str) -> specs.AppDef:
    return specs.AppDef("app", [specs.Role("app", "", entrypoint="python3", args=["-c", line])])
"""

PRINTED = {
    "no line end": "b'x' * (8 << 20)",
    "no text": "b'10%\\r' + bytes(range(128, 256)) * (8 << 13) + 'e\u0301'.encode() * (1 << 20)",
}


@pytest.mark.parametrize("printed", list(PRINTED))
def test_the_status_of_a_failed_job_is_short(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(COMPONENT, encoding="utf-8")
    code = f"import sys; sys.stdout.buffer.write({PRINTED[printed]}); sys.exit(3)"
    handle = torchx("run", "-s", "local_cwd", "-d", "c.py:app", "--line", code).stdout.strip()
    assert torchx("wait", handle).returncode == 3
    piped = torchx("status", handle)
    assert "exit 3" in piped.stdout
    assert len(piped.stdout) < 10_000
    shown, _ = on_terminal("status", handle)
    assert all(columns(line) <= 80 for line in shown.split("\n") if "│" in line)
    assert "full log" in shown


@pytest.mark.docker
def test_script_that_is_not_in_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)\n")
    run = ["run", "-s", "local_docker", "utils.python", "--image", IMAGE, "--script", "train.py"]
    done = torchx(*run)
    assert (done.returncode, NOT_COPIED in done.stderr) == (2, True), done.stderr
    handle = done.stdout.strip()
    assert f"\n             {NOT_COPIED}\n" in torchx("why", handle).stdout
    torchx("delete", "--yes", handle)
    local = torchx("run", "utils.sh", "python no.py")
    assert (local.returncode, NOT_COPIED in local.stderr) == (2, False)
