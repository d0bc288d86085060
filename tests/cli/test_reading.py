"""The commands that read: status, log, list, describe; and cancel and delete."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from program import COMMAND, answer, environment, on_terminal, start, torchx
from support import wait_until

from torchx.scheduling.responses import ListAppResponse
from torchx.specs.status import AppState
from torchx_cli.commands.list import _row

COMPONENT = """
import torchx.specs as specs


def app(line: str, n: int = 1, name: str = "app", retries: int = 0) -> specs.AppDef:
    role = specs.Role("w", "", entrypoint="sh", args=["-c", line], num_replicas=n, max_retries=retries)
    return specs.AppDef(name, [role, specs.Role("x", "", entrypoint="true")])
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(COMPONENT, encoding="utf-8")


def run(line: str, *words: str, detach: bool = False, cfg: str = "retry_backoff=0.01") -> str:
    done = torchx("run", *(["-d"] if detach else []), "-cfg", cfg, "c.py:app", "--line", line, *words)
    handle = done.stdout.strip()
    assert handle, done.stderr
    return handle


def short(handle: str) -> str:
    return handle.rpartition("/")[2]


def test_status_of_what_runs_and_of_what_has_ended() -> None:
    handle = run("while ! test -e go; do sleep 0.02; done", detach=True)
    wait_until(lambda: answer("status", handle, "--json")["state"] == "RUNNING", "it runs")
    running = torchx("status", "@last").stdout.splitlines()
    assert running[0].startswith(f"{short(handle)}  RUNNING  ")
    assert running[0].endswith("  local_cwd")
    assert running[1] == "w  1 of 1 running"
    assert running[2].startswith("  0  RUNNING  ")
    assert "pid " in running[2]
    Path("go").touch()
    wait_until(lambda: answer("status", handle, "--json")["state"] == "SUCCEEDED", "it has ended")
    ended = torchx("status", short(handle)[:5]).stdout
    assert "SUCCEEDED" in ended
    assert "pid" not in ended


def test_status_of_a_failure_with_attempts() -> None:
    handle = run("echo oh; exit 7", "--retries", "1")
    done = torchx("status", handle)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "exit 7" in lines[2]
    assert "attempt 2 of 2 (attempt 1: exit 7 after " in lines[2]
    assert lines[-3].startswith("  w/0 failed first: exit 7 (attempt ")
    assert lines[-2] == "  │ oh"
    assert lines[-1] == f"  full log: torchx log {short(handle)}/w/0"


def test_the_verbose_status_is_the_description() -> None:
    handle = run("exit 0")
    assert torchx("status", "-v", handle).stdout == torchx("describe", handle).stdout != ""
    assert answer("status", "--verbose", handle, "-o", "json") == answer("status", handle, "-o", "json")
    assert torchx("status", "-v", "--ranks", handle).returncode == 2


def test_the_status_as_json_is_one_shape() -> None:
    handle = run("exit 7")
    data = answer("status", handle, "-o", "json")
    assert list(data)[:5] == ["handle", "app_id", "name", "scheduler", "session"]
    assert (data["name"], data["scheduler"], data["session"]) == ("app", "local_cwd", "torchx")
    assert data["first_failure"]["exit_code"] == 7
    assert datetime.fromisoformat(data["started_at"]).tzinfo is not None
    assert isinstance(data["duration"], float)
    assert [role["role"] for role in data["roles"]] == ["w", "x"]
    only = answer("status", handle, "--json", "--roles", "x")
    assert [role["role"] for role in only["roles"]] == ["x"]
    wrong = torchx("status", handle, "--roles", "y")
    assert (wrong.returncode, wrong.stderr) == (1, f"error: {handle} has no role `y`\n  its roles: w, x\n")


def test_number_names_a_replica_of_the_only_role() -> None:
    handle = torchx("run", "-d", "utils.sh", "--num_replicas", "2", "echo $0; sleep 600").stdout.strip()
    wait_until(lambda: answer("status", handle, "-o", "json")["state"] == "RUNNING", "it runs")
    assert torchx("exec", f"{handle}/1", "sh", "-c", "echo $TORCHX_REPLICA_ID").stdout == "1\n"
    torchx("cancel", "--yes", handle)
    assert torchx("log", f"{handle}/1").stdout.startswith("sh/1 ")
    missing = torchx("log", f"{handle}/2").stderr
    assert "has no replica sh/2" in missing
    assert "has no role `0`" in torchx("log", f"{run('exit 0')}/0").stderr, "it has two roles"


def test_of_crowd_only_unusual_are_reported_one_by_one() -> None:
    handle = run('test "${replica_id}" != 17 || exit 3', "--n", "20", cfg="fail_fast=no")
    lines = torchx("status", handle).stdout.splitlines()
    assert len([line for line in lines if line.startswith("  17  FAILED")]) == 1
    assert len(lines) < 12
    assert any("more are not shown (list them with -o json)" in line for line in lines)


def test_log_of_all_of_role_and_of_some_replicas() -> None:
    handle = run("echo out ${replica_id}; echo err ${replica_id} >&2", "--n", "3")
    every = torchx("log", handle)
    assert every.returncode == 0
    assert sorted(every.stdout.splitlines()) == sorted(
        f"w/{k} │ {word} {k}" for k in range(3) for word in ("out", "err")
    )
    assert torchx("log", f"{handle}/w").stdout == every.stdout
    two = torchx("log", f"{short(handle)}/w/0,2", "--streams", "stderr")
    assert sorted(two.stdout.splitlines()) == ["w/0 │ err 0", "w/2 │ err 2"]
    assert torchx("log", "@last/w/1-1", "--regex", "^o", "--no-prefix").stdout == "out 1\n"
    assert torchx("log", f"{handle}/x").stdout == ""
    wrong = torchx("log", f"{handle}/w/3")
    assert (wrong.returncode, wrong.stderr) == (
        1,
        f"error: {short(handle)} has no replica w/3; its replicas are 0 to 2\n",
    )


def test_log_by_number_and_time() -> None:
    handle = run("for i in 1 2 3 4 5; do echo $i; done")
    assert torchx("log", handle, "-n", "2").stdout == "w/0 │ 4\nw/0 │ 5\n"
    assert torchx("log", handle, "-n", "0").stdout == ""
    assert torchx("log", handle, "--since", "1h", "--until", "2000-01-01").stdout == ""
    assert torchx("log", handle, "--since", "2000-01-01T00:00Z", "-n1").stdout == "w/0 │ 5\n"
    stamped = torchx("log", handle, "--timestamps", "-n1").stdout.split(" ", 1)
    assert datetime.fromisoformat(stamped[0]).tzinfo is not None
    assert stamped[1] == "w/0 │ 5\n"


def test_log_as_json_lines() -> None:
    handle = run("echo a; sleep 0.1; echo 'b \"c\"'")
    lines = [json.loads(line) for line in torchx("log", handle, "-o", "json").stdout.splitlines()]
    assert [line["line"] for line in lines] == ["a", 'b "c"']
    assert {key: lines[0][key] for key in ("role", "replica", "attempt")} == {
        "role": "w",
        "replica": 0,
        "attempt": 1,
    }
    assert datetime.fromisoformat(lines[0]["time"]).tzinfo is not None


def test_following_a_log_ends_with_the_application() -> None:
    handle = run("echo up; while ! test -e go; do sleep 0.02; done; echo done", detach=True)
    process = start("log", "-t", handle)
    assert process.stdout is not None
    assert process.stdout.readline() == "w/0 │ up\n"
    Path("go").touch()
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("w/0 │ done\n", "", 0)


def test_a_reader_that_has_seen_enough() -> None:
    handle = run("i=0; while test $i -lt 20000; do echo line $i; i=$((i+1)); done")
    line = " ".join([*COMMAND, "log", handle, "|", "head", "-n", "2"])
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment(), timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("w/0 │ line 0\nw/0 │ line 1\n", "", 0)


def test_output_that_cannot_be_written() -> None:
    handle = run("true")
    for redirect, code, err in (
        ("> /dev/full", 1, "error: No space left on device\n"),
        (">&-", 0, ""),
    ):
        line = " ".join([*COMMAND, "status", handle, redirect])
        done = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment(), timeout=60)
        assert (done.returncode, done.stderr) == (code, err), redirect
    line = " ".join([*COMMAND, "status", "local_cwd://torchx/nope", "2>&-"])
    assert subprocess.run(line, shell=True, env=environment(), timeout=60).returncode == 1


def test_list_is_the_newest_first_and_can_be_cut() -> None:
    assert torchx("list", "-s", "local_cwd").stderr == "no applications\n"
    first = run("exit 3", "--name", "one")
    second = run("true", "--name", "two")
    lines = torchx("list").stdout.splitlines()
    assert lines[0].split() == ["APP", "NAME", "SCHEDULER", "STATE", "STARTED", "TIME", "EXIT"]
    assert lines[1].split()[:4] == [short(second), "two", "local_cwd", "SUCCEEDED"]
    assert lines[2].split()[:4] == [short(first), "one", "local_cwd", "FAILED"]
    assert torchx("list", "-q").stdout == f"{second}\n{first}\n"
    assert torchx("list", "-q", "--state", "running").stdout == ""
    assert [app["handle"] for app in answer("list", "-o", "json", "-n", "1")] == [second]
    data = answer("list", "--json", "-s", "local_cwd")
    assert [(app["name"], app["state"], app["exit_code"]) for app in data] == [
        ("two", "SUCCEEDED", 0),
        ("one", "FAILED", 3),
    ]


def test_the_scheduler_of_list_from_the_configuration() -> None:
    Path(".torchxconfig").write_text("[cli:list]\nscheduler = nowhere\n", encoding="utf-8")
    listed = torchx("list")
    assert listed.stderr.startswith(
        "note: .torchxconfig line 2 [cli:list]: the scheduler `nowhere` is not installed"
    )
    assert listed.returncode == 0


def test_describe() -> None:
    handle = run("echo 'a b'", "--n", "2", "--retries", "1")
    output = torchx("describe", handle).stdout
    assert output.startswith(f"{short(handle)}  SUCCEEDED  local_cwd\nhandle        {handle}\n")
    assert "\nw  2 replicas\n  command  " in output
    assert """sh -c 'echo '"'"'a b'"'"''\n""" in output
    data = answer("describe", handle, "-o", "json")
    assert data["app"]["roles"][0]["args"] == ["-c", "echo 'a b'"]
    assert data["cfg"]["retry_backoff"] == 0.01
    assert torchx("describe", handle, "-o", "yaml").stdout.startswith(f"handle: {handle}\n")


def test_cancel() -> None:
    handle = run("exec sleep 60", detach=True)
    other = run("trap 'sleep 1; exit' TERM; touch up; while :; do sleep 0.05; done", detach=True)
    wait_until(Path("up").exists, "both run")
    done = torchx("cancel", handle, other)
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"{short(handle)} CANCELLED after ")
    assert lines[1] == f"{short(other)} is being cancelled, waiting for it to clean up"
    assert lines[2].startswith(f"{short(other)} CANCELLED after ")
    assert answer("status", handle, "--json")["state"] == "CANCELLED"
    again = torchx("cancel", handle)
    assert (again.returncode, again.stderr) == (0, f"{short(handle)} has already ended: CANCELLED\n")


def test_known_ones_are_cancelled_beside_an_unknown_one() -> None:
    handle = run("exec sleep 60", detach=True)
    done = torchx("cancel", "local_cwd://torchx/nope", handle)
    assert (done.returncode, "no application" in done.stderr) == (1, True), done.stderr
    assert answer("status", handle, "--json")["state"] == "CANCELLED"


def test_delete_refuses_what_runs_unless_it_is_forced() -> None:
    handle = run("exec sleep 60", detach=True)
    refused = torchx("delete", handle)
    assert refused.returncode == 1
    assert "has not ended" in refused.stderr
    assert f"torchx delete --force {short(handle)}" in refused.stderr
    assert torchx("delete", "--force", handle).returncode == 0
    assert torchx("status", handle).returncode == 1
    assert answer("list", "-o", "json") == []


@pytest.mark.parametrize("command", [["status"], ["list"], ["describe"], ["runopts"], ["builtins"], ["log"]])
def test_nothing_is_wider_than_the_window(command: list[str]) -> None:
    handle = run("echo; exit 3", "--name", "a-rather-long-name-of-an-application")
    words = [*command, handle] if command[0] in ("status", "describe", "log") else command
    shown, code = on_terminal(*words, columns=70, env={"NO_COLOR": "1"})
    assert code == 0
    assert "\x1b" not in shown
    if command[0] in ("status", "list", "builtins"):  # the others show texts that are to be copied whole
        assert max(len(line) for line in shown.splitlines() if " " in line.strip()) <= 70


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour(env: dict[str, str], coloured: bool) -> None:
    handle = run("true")
    shown, _ = on_terminal("status", handle, env=env)
    assert ("\x1b[32mSUCCEEDED\x1b[0m" in shown) is coloured
    assert "\x1b" not in torchx("status", handle, env={**env, "TERM": "xterm"}).stdout


def test_a_short_command_imports_little() -> None:
    handle = run("true")
    heavy = [
        "pydantic",
        "rich",
        "yaml",
        "docker",
        "fsspec",
        "docstring_parser",
        "asyncio",
        "logging",
        "configparser",
    ]
    code = (
        "import sys; from torchx_cli.main import main; code = main(sys.argv[1:]);"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    about_one = [[command, handle] for command in ("status", "log", "describe", "cancel", "attach", "wait")]
    others = (["list", "-s", "local_cwd"], ["prune", "--dryrun", "-s", "local_cwd"], ["context", "list"])
    for words in (*about_one, *others):
        done = subprocess.run(
            [COMMAND[0], "-c", code, *words], capture_output=True, text=True, env=environment(), timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == "[]", words


def test_a_message_that_repeats_the_state_takes_no_column() -> None:
    cancelled = ListAppResponse("a", AppState.CANCELLED, "memory://s/a", msg="cancelled")
    assert _row(cancelled)[-1][0] == ""
    assert _row(replace(cancelled, msg="by b"))[-1][0] == "by b"
