"""Errors under -o json and -o yaml: one object on stdout with a stable code, the exit code unchanged."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from program import COMMAND, environment, start

from torchx.errors import StateError
from torchx_cli.commands import status
from torchx_cli.main import main, requested_format
from torchx_cli.terminal import attach
from torchx_cli.terminal.error_output import failure_of

ERRORS: list[tuple[str, int, str, dict[str, Any]]] = [
    ("status --bogus -o json", 2, "unknown_flag", {"flag": "--bogus"}),
    ("status --bogus x --json", 2, "unknown_flag", {"flag": "--bogus"}),
    ("list --lins 3 --json", 2, "unknown_flag", {"flag": "--lins", "did_you_mean": "--lines"}),
    ("list --js --bogus", 2, "unknown_flag", {"flag": "--bogus"}),
    ("-o json status x", 2, "unknown_flag", {"flag": "-o"}),
    ("stauts x -o json", 2, "unknown_command", {"given": "stauts", "did_you_mean": "status"}),
    ("config shwo -ojson", 2, "unknown_command", {}),
    ("config --json", 2, "unknown_flag", {}),
    ("status -o json", 2, "missing_argument", {}),
    ("wait -o json", 2, "missing_argument", {}),
    ("status a b -o json", 2, "unexpected_argument", {}),
    ("list -n --json", 2, "missing_value", {"flag": "-n"}),
    ("list -n many -o json", 2, "invalid_value", {"flag": "-n", "given": "many"}),
    ("list --state gone --json", 2, "invalid_value", {"flag": "--state", "given": "gone"}),
    ("list -s slrum -o json", 2, "unknown_scheduler", {"scheduler": "slrum", "did_you_mean": "slurm"}),
    ("list -q -o json", 2, "conflicting_flags", {}),
    ("status -o json -o json x", 2, "repeated_flag", {"flag": "-o"}),
    ("status a/b -o json", 2, "invalid_handle", {"given": "a/b"}),
    ("status local_cwd://torchx/no -o json", 1, "unknown_application", {"handle": "local_cwd://torchx/no"}),
    ("wait --json @last", 1, "unknown_application", {"given": "@last"}),
    ("log -o json local_cwd://torchx/no", 1, "unknown_application", {}),
    ("events -o json local_cwd://torchx/no", 1, "unknown_application", {}),
    ("status nope -o json", 69, "engine_unreachable", {"scheduler": "local_docker"}),
    ("run --json utils.ehco", 2, "unknown_component", {"did_you_mean": "utils.echo"}),
    (
        "run --dryrun -o json utils.echo --mgs x",
        2,
        "unknown_flag",
        {"flag": "--mgs", "did_you_mean": "--msg"},
    ),
    ("run --json -cfg log_dri=x utils.echo", 2, "unknown_run_option", {"option": "log_dri"}),
    ("run utils.echo -o json --msg hi", 2, "unknown_flag", {"flag": "-o"}),
    ("run utils.echo --json", 2, "unknown_flag", {"flag": "--json"}),
    ("run --json --workspace nowhere utils.echo", 2, "unknown_workspace", {}),
    ("report --json nope://torchx/x", 2, "unknown_scheduler", {"scheduler": "nope"}),
    ("tracker list jobs --json", 2, "unknown_tracker", {}),
    ("doctor -o json nope", 2, "unknown_scheduler", {"scheduler": "nope"}),
    ("lint -o json missing.py", 2, "unknown_component", {}),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("line", "exit_code", "code", "facts"), ERRORS, ids=[case[0] for case in ERRORS])
def test_an_error_is_one_object(
    line: str, exit_code: int, code: str, facts: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == exit_code
    output = capsys.readouterr()
    assert output.err == "" or output.err.startswith("note: ")
    (kind, error), = json.loads(output.out).items()  # fmt: skip
    assert (kind, error["code"], error["exit_code"]) == ("error", code, exit_code)
    assert list(error)[:4] == ["code", "message", "hint", "exit_code"]
    assert error["message"]
    assert error["hint"] or error["hint"] is None
    assert facts.items() <= error.items()
    assert output.out.count("\n") == 1, "the last line of a stream is the error"


def test_yaml_has_the_same_data(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "--bogus", "-o", "json"])
    data = json.loads(capsys.readouterr().out)
    assert main(["list", "--bogus", "-o", "yaml"]) == 2
    assert yaml.safe_load(capsys.readouterr().out) == data
    for line, code in (
        ("run -o yaml utils.echo", "conflicting_flags"),
        ("status --json -o yaml x", "conflicting_flags"),
        ("log x -o yaml", "invalid_value"),
        ("events -o yaml", "invalid_value"),
    ):
        assert main(line.split()) == 2
        assert yaml.safe_load(capsys.readouterr().out)["error"]["code"] == code


@pytest.mark.parametrize("form", ["-o json", "--output=json", "--json"])
@pytest.mark.parametrize(
    "wrong", ["utils.ehco", "nofile.py:x", "utils.echo --nope", "utils.echo", "utils.sh"]
)
def test_errors_of_a_run_with_a_format_anywhere(
    form: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(f"run {wrong} {form}".split()) == 2
    output = capsys.readouterr()
    assert json.loads(output.out)["error"]["exit_code"] == 2
    assert output.err == ""


def test_text_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "status --bogus",
        "run utils.ehco -- -o json",
        "run utils.ehco -- --json",
        "exec @last cat -o json",
    ):
        assert main(line.split()) in (1, 2)
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("error: ")


@pytest.mark.parametrize(
    ("error", "exit_code", "code", "facts"),
    [
        (RuntimeError("odd"), 1, "internal", {"message": "RuntimeError: odd"}),
        (OSError(errno.ENOSPC, "No space left", "/x"), 1, "file_error", {"errno": "ENOSPC", "path": "/x"}),
        (KeyboardInterrupt(), 130, "interrupted", {}),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, "broken_pipe", {}),
        (
            StateError(
                "HF_TOKEN=hunter2-hunter2 \x1b[31mred",
                hint="torchx x\x07",
                facts={"flag": "--api_token", "given": "hunter2-hunter2"},
            ),
            1,
            "state",
            {"message": "HF_TOKEN=******** \\x1b[31mred", "hint": "torchx x\\x07", "given": "********"},
        ),
    ],
    ids=["internal", "file_error", "interrupted", "broken_pipe", "secrets"],
)  # fmt: skip
def test_any_other_end(
    error: BaseException, exit_code: int, code: str, facts: dict[str, Any],
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(status, "find", fail)
    assert main(["status", "x", "-o", "json"]) == exit_code
    output = capsys.readouterr()
    assert output.err == ""
    data = json.loads(output.out)["error"]
    assert (data["code"], data["exit_code"]) == (code, exit_code)
    assert facts.items() <= data.items()
    assert "hunter2" not in output.out


@pytest.mark.parametrize("error", [StateError("gone", facts={"path": Path("/x")}), RuntimeError("gone")])
def test_the_handle_of_a_submitted_application_is_not_lost(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: attach.Attached) -> int:
        raise error

    monkeypatch.setattr(attach.Attached, "to_the_end", fail)
    assert main(["run", "-s", "local_cwd", "--json", "utils.sh", "exit 0"]) == 1
    data = json.loads(capsys.readouterr().out)["error"]
    assert data["handle"].startswith("local_cwd://torchx/sh-")
    assert data.get("path", "/x") == "/x"


def test_debug_adds_the_traceback_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(status, "find")
    assert main(["--debug", "status", "x", "-o", "json"]) == 1
    output = capsys.readouterr()
    assert "Traceback" in output.err
    assert json.loads(output.out)["error"]["code"] == "internal"


def test_an_interrupted_stream_ends_with_the_error() -> None:
    job = subprocess.run(
        [*COMMAND, "run", "-d", "-s", "local_cwd", "utils.sh", "echo hi; sleep 300"],
        env=environment(), capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    with start("log", "-f", "-o", "json", job) as reader:
        assert reader.stdout is not None
        assert json.loads(reader.stdout.readline())["line"] == "hi"
        reader.send_signal(signal.SIGINT)
        rest, err = reader.communicate(timeout=60)
    assert reader.returncode == 130
    assert json.loads(rest)["error"]["code"] == "interrupted"
    assert "Traceback" not in err
    assert main(["delete", "--force", job]) == 0


def test_a_closed_stdout_stays_silent() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, "builtins", "-o", "json"],
            env=environment(), stdout=write, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_format_of_an_invalid_command_line() -> None:
    formats = {
        "": "text",
        "status x": "text",
        "status x -o text": "text",
        "log x --regex json": "text",
        "run utils.sh -o json": "text",
        "run -o json utils.sh": "json",
        "exec @last -- cat --json": "text",
        "plugincommand x --output=yaml": "yaml",
        "plugincommand -- -o json": "text",
        "tracker list jobs --json": "json",
        "report x -o page.json": "text",
    }
    assert {line: requested_format(line.split()) for line in formats} == formats


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_names_the_way_out(number: int) -> None:
    cause = OSError(number, os.strerror(number), "/full/job")
    wrapped = StateError(f"the job cannot be recorded at /full: {cause.strerror}")
    wrapped.__cause__ = cause
    for error in (cause, wrapped):
        failure = failure_of(error)
        assert os.strerror(number) in failure.message
        assert failure.hint == (
            "free space there, e.g. with torchx prune, or set TORCHX_HOME to a folder on another disk"
        )
