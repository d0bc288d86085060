"""The commands that failure reports and `why` print: each can be pasted into a shell, and works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from program import environment, on_terminal, torchx
from support import wait_until

SECRET = "a-value-that-stays-hidden"
COMMAND = re.compile(r"^(?:  (?:full log|again): +|  )(torchx (?:.*\\\n)*.*)$", re.M)
ODD = '''
import torchx.specs as specs

def app() -> specs.AppDef:
    """A role whose name a shell would split."""
    return specs.AppDef("odd", [specs.Role("it's a; role", "", entrypoint="sh", args=["-c", "exit 3"])])
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", SECRET)
    (tmp_path / "odd.py").write_text(ODD)
    (tmp_path / "torchx").write_text(f'#!/bin/sh\nexec {sys.executable} -m torchx_cli "$@"\n')
    (tmp_path / "torchx").chmod(0o755)
    return tmp_path


def check(shown: str, *expected: str) -> None:
    """Runs the commands in a text, which begin as expected; those that submit again end as before."""
    assert SECRET not in shown and "****" not in "".join(COMMAND.findall(shown)), shown
    commands = [command.strip() for command in COMMAND.findall(shown.replace("\r", ""))]
    assert [" ".join(command.split()[:2]) for command in commands] == [f"torchx {name}" for name in expected]
    for command in commands:
        env = environment({"PATH": f".:{Path('/usr/bin')}:/bin"})
        done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=120)
        assert "error: " not in done.stderr, f"{command}: {done.stderr}"
        again = command.split()[1] in ("run", "rerun") and "--dryrun" not in command
        assert done.returncode == (3 if again else 0), f"{command}: {done.stderr}"


FAILURES = (
    "utils.sh 'echo no; exit 3'",
    "--secret TOKEN utils.sh 'exit 3'",
    "--env API_KEY=some-long-value utils.sh -- sh -c 'exit 3' --password some-long-value",
    "--secret TOKEN --env API_KEY=some-long-value utils.sh -- sh -c 'exit 3' --token a b c",
    "odd.py:app",
    "--tag 'a=it is' utils.sh 'echo \"a  b\"; exit 3'",
)


@pytest.mark.parametrize(
    "line", [FAILURES[0], *(pytest.param(x, marks=pytest.mark.long) for x in FAILURES[1:])]
)
def test_commands_of_a_failed_run_work(line: str) -> None:
    words = ["run", *shlex.split(line)]
    done = torchx(*words)
    assert done.returncode == 3, done.stderr
    check(done.stderr, "log", "run" if "--env" not in line else "rerun")
    check(torchx("why", "@last").stdout, "log", "rerun")
    check(torchx("status", "@last").stdout, "log")
    if line != FAILURES[0]:
        return
    shown, _ = on_terminal(*words, columns=60)
    check(re.sub(r"\x1b\[[0-9;]*m", "", shown), "log", "run")


def test_commands_of_a_piped_run_work(folder: Path) -> None:
    torchx("run", "utils.sh", "exit 3")
    described = torchx("describe", "-o", "json", "@last").stdout
    check(torchx("run", "--stdin", stdin=described).stderr, "log", "rerun")


def test_commands_about_a_sweep_work() -> None:
    done = torchx("run", "--each", "code=0,3", "utils.sh", "exit {code}")
    assert done.returncode == 3
    check(done.stderr, "log", "rerun")
    check(torchx("why", "@last/2").stdout, "log", "rerun")
    check(torchx("why", "@last").stdout, "log", "rerun")


def test_commands_about_a_running_application_work() -> None:
    torchx("run", "-d", "utils.sh", "echo up; until [ -e go ]; do sleep 0.1; done")
    wait_until(lambda: torchx("log", "@last").stdout, "it runs")
    shown = torchx("why", "@last").stdout
    assert "torchx wait\n" not in shown
    (log,) = (command for command in COMMAND.findall(shown) if " log " in command)
    check(f"  {log}\n", "log")
    Path("go").touch()
    check(shown, "wait", "log", "cancel")
    torchx("run", "-d", "utils.sh", "sleep 600; exit 3")
    torchx("cancel", "@last")
    check(
        torchx("why", "@last").stdout.replace("torchx rerun", "torchx rerun --dryrun"),
        "log",
        "events",
        "rerun",
    )
