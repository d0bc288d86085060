"""Coming back to what was left running: attach, wait, and watching."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import COMMAND, answer, delete_all, environment, on_terminal, start, torchx
from support import wait_until


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    delete_all()


def leave(line: str, *words: str) -> str:
    """Starts an application and leaves it running; returns its app id."""
    done = torchx("run", "-d", "utils.sh", *words, line)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("/")[2]


UNTIL_GO = "while ! test -e go; do sleep 0.02; done"


def test_attach_shows_earlier_and_new_lines_and_the_result() -> None:
    app_id = leave(f"seq 30; {UNTIL_GO}; echo done; exit 7")
    wait_until(lambda: torchx("log", app_id).stdout.endswith(" 30\n"), "it has written")
    process = start("attach", app_id, "-n", "2")
    assert process.stderr is not None
    assert [process.stderr.readline() for _ in range(2)] == ["sh/0 │ 29\n", "sh/0 │ 30\n"]
    Path("go").touch()
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 7)
    lines = err.splitlines()
    assert lines[0] == "sh/0 │ done"
    assert lines[1].startswith(f"{app_id} FAILED after ")
    assert lines[2] == "  sh/0 failed first: exit 7 (attempt 1 of 1)"
    assert torchx("attach", f"{app_id}/sh/1").returncode == 1
    again = torchx("attach", "@last")
    assert (again.stdout, again.returncode) == ("", 7)
    assert len([line for line in again.stderr.splitlines() if line.startswith("sh/0 │ ")]) == 20


def test_ctrl_c_leaves_an_attached_application_running() -> None:
    app_id = leave(f"echo up; {UNTIL_GO}")
    process = start("attach", app_id)
    assert process.stderr is not None
    assert process.stderr.readline() == "sh/0 │ up\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (
        err == f"{app_id} keeps running   cancel: torchx cancel {app_id}   attach: torchx attach {app_id}\n"
    )
    assert answer("status", app_id, "-o", "json")["state"] == "RUNNING"
    Path("go").touch()
    assert torchx("attach", app_id).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["run", "attach", "sweep"])
def test_signal_leaves_the_application_running(command: str, number: signal.Signals) -> None:
    line, words = f"echo up; {UNTIL_GO}", ["run", "utils.sh"]
    if command == "attach":
        words, line = ["attach"], leave(line)
    elif command == "sweep":
        words = ["run", "--log", "--each", "a=1,2", "utils.sh"]
        line = f": {{a}}; {line}"
    process = start(*words, line)
    assert process.stderr is not None
    while not (read := process.stderr.readline()).endswith("│ up\n"):
        assert read
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -number
    app_id = err.split()[0]
    assert (
        err == f"{app_id} keeps running   cancel: torchx cancel {app_id}   attach: torchx attach {app_id}\n"
    )
    assert answer("status", app_id, "-o", "json")["state"] == "RUNNING"
    Path("go").touch()
    assert torchx("attach", app_id).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize(
    ("words", "ready"),
    [
        (["wait", "-o", "json", "@last"], "waiting for"),
        (["log", "-f", "--json", "@last"], "up"),
        (["events", "-f", "-o", "json", "@last"], "started"),
    ],
)
def test_a_signal_ends_json_with_an_error(number: signal.Signals, words: list[str], ready: str) -> None:
    leave(f"echo up; {UNTIL_GO}")
    process = start(*words)
    stream = process.stderr if words[0] == "wait" else process.stdout
    assert stream is not None
    while ready not in (read := stream.readline()):
        assert read
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    error = json.loads(out.splitlines()[-1])["error"]
    assert (error["code"], error["exit_code"], process.returncode) == (
        "interrupted",
        128 + number,
        128 + number,
    )
    Path("go").touch()
    assert torchx("wait", "@last").returncode == 0


def test_json_in_an_argument_leaves_the_default_action() -> None:
    process = start("run", "utils.sh", f"echo json up; {UNTIL_GO}")
    assert process.stderr is not None
    assert process.stderr.readline() == "sh/0 │ json up\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "keeps running" in err) == (-signal.SIGTERM, True)
    Path("go").touch()
    assert torchx("wait", "@last").returncode == 0


def test_again_of_a_named_submission_runs_it() -> None:
    first = torchx("run", "--once", "nightly", "utils.sh", "exit 3")
    app_id = first.stdout.strip().rpartition("/")[2]
    assert f"again:    torchx rerun {app_id}\n" in first.stderr
    again = torchx("rerun", app_id)
    assert again.stdout.strip().rpartition("/")[2] != app_id
    assert again.returncode == 3


def test_wait_ends_with_the_result() -> None:
    failed = leave(f"{UNTIL_GO}; echo oh; kill -SEGV $$$$")
    process = start("wait", failed)
    assert process.stderr is not None
    assert process.stderr.readline() == f"waiting for {failed}, which is RUNNING\n"
    Path("go").touch()
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 139)
    lines = err.splitlines()
    assert lines[0].startswith(f"{failed} FAILED after ")
    assert lines[1] == "  sh/0 failed first: killed by SIGSEGV (attempt 1 of 1)"
    assert lines[2] == "  invalid memory access, usually a bug in native code"
    assert lines[3] == "  │ oh"
    assert torchx("wait", leave("true")).returncode == 0


def test_of_several_the_one_that_failed_first_counts() -> None:
    late = leave(f"{UNTIL_GO}; exit 4")
    early = leave("exit 3")
    fine = leave("true")
    assert torchx("wait", early).returncode == 3
    Path("go").touch()
    done = torchx("wait", late, early, fine, late, "-o", "json")
    assert done.returncode == 3
    data = json.loads(done.stdout)
    assert [(app["app_id"], app["exit_code"]) for app in data] == [(late, 4), (early, 3), (fine, 0)]
    assert data[0]["first_failure"]["exit_code"] == 4


def test_time_limit_has_its_own_code_and_ends_nothing() -> None:
    app_id = leave(UNTIL_GO)
    done = torchx("wait", app_id, "--timeout", "0.1")
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr.splitlines()[-1] == f"{app_id} is still RUNNING: timed out"
    data = json.loads(torchx("wait", app_id, "--timeout", "0", "--json").stdout)
    assert (data[0]["state"], data[0]["exit_code"]) == ("RUNNING", None)
    Path("go").touch()
    assert torchx("wait", app_id, "--timeout", "1m").returncode == 0
    wrong = torchx("wait", app_id, "--timeout", "soon")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: --timeout takes seconds or a duration such as")


def test_wait_for_what_is_not_there() -> None:
    done = torchx("wait", "local_cwd://torchx/nope")
    missing = "error: there is no application `local_cwd://torchx/nope`"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, missing)


def test_ctrl_c_ends_a_wait_and_nothing_else() -> None:
    app_id = leave(UNTIL_GO)
    process = start("wait", app_id)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert answer("status", app_id, "-o", "json")["state"] == "RUNNING"


@pytest.mark.parametrize("command", ["status", "describe"])
def test_watching_prints_each_change_on_a_line(command: str) -> None:
    app_id = leave(f"{UNTIL_GO}; exit 3", "--num_replicas", "2")
    process = start(command, "-w", app_id)
    assert process.stdout is not None
    seen = ""
    while f"{app_id}  RUNNING\n" not in seen or "sh/1  RUNNING\n" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    Path("go").touch()
    out, err = process.communicate(timeout=60)
    assert (err, process.returncode) == ("", 0)
    assert re.search(rf"^\d\d:\d\d:\d\d  {app_id}  FAILED  after ", out, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  sh/\d  FAILED  exit 3$", out, re.MULTILINE)
    assert "failed first: exit 3" in out
    assert "\x1b" not in seen + out
    assert torchx(command, "-w", app_id, "-o", "json").returncode == 2


def test_watching_on_a_terminal_draws_what_changed() -> None:
    app_id = leave("sleep 1.2; exit 3")
    shown, code = on_terminal("status", "-w", app_id, env={"NO_COLOR": "1"})
    assert code == 0
    assert f"{app_id}  FAILED" in shown
    assert re.search(r"\x1b\[\d+A", shown)
    assert shown.rstrip().endswith(f"full log: torchx log {app_id}/sh/0")


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        *(
            pytest.param(env, marks=pytest.mark.long)
            for env in ({"LANG": "POSIX"}, {"PYTHONIOENCODING": "ascii"})
        ),
    ],
)
def test_a_language_without_bars(env: dict[str, str]) -> None:
    plain = {"PYTHONUTF8": "0", "LC_ALL": "", "LANG": "", **env}
    done = subprocess.run(
        [*COMMAND, "run", "utils.sh", "printf 'h\\303\\251\\n'; exit 3"],
        capture_output=True, env=environment(plain), timeout=60,
    )  # fmt: skip
    assert done.returncode == 3
    assert b"sh/0 | h\xc3\xa9\n" in done.stderr  # what an application writes comes as it is
    for words in (["status", "@last"], ["log", "@last"], ["describe", "@last"], ["list"], ["wait", "@last"]):
        done = subprocess.run([*COMMAND, *words], capture_output=True, env=environment(plain), timeout=60)
        assert b"Traceback" not in done.stderr
        assert "│".encode() not in done.stdout + done.stderr, words
    shown = torchx("run", "utils.sh", "--help", env=plain).stdout
    assert shown.isascii()


def test_the_error_file_is_shown() -> None:
    line = """echo '{"message": {"message": "no such data set"}}' > $$TORCHELASTIC_ERROR_FILE; exit 1"""
    ran = torchx("run", "utils.sh", line)
    assert ran.returncode == 1
    for result in (ran.stderr, torchx("wait", "@last").stderr, torchx("status", "@last").stdout):
        assert "  │ no such data set\n" in result


def test_a_full_pipe_keeps_nothing_from_ending() -> None:
    """A reader that has stopped reading holds up the command, and not the application."""
    app_id = leave("seq 200000; exit 3")
    reader, writer = os.pipe()
    process = subprocess.Popen([*COMMAND, "log", app_id], stdout=writer, env=environment())
    os.close(writer)
    assert torchx("wait", app_id).returncode == 3
    assert process.poll() is None
    with open(reader, "rb") as rest:
        assert rest.read().endswith(b" 200000\n")
    assert process.wait(60) == 0
