"""Recipes from reports of faults: streams, windows that change, markup in data, logs after the end."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from program import COMMAND, environment, on_terminal, torchx
from terminal import Terminal

from torchx.runner import get_runner
from torchx.specs.app import AppDef, RetryPolicy, Role

MARKUP = "[/x] [bold]b[/bold] [link=http://x.example]l[/link]"
COMPONENT = f'''
import torchx.specs as specs


def app(a: str = "{MARKUP}") -> specs.AppDef:
    """Has {MARKUP} everywhere.

    Args:
        a: an argument {MARKUP}
    """
    role = specs.Role("r[bold]", "i", entrypoint="sh", args=["-c", "echo '{MARKUP}'; exit 3", a])
    role.env, role.metadata = {{"E": "{MARKUP}"}}, {{"k": "{MARKUP}"}}
    return specs.AppDef("n[bold]", [role])
'''


def streams(command: str) -> str:
    """Runs a shell command with `torchx` as a function on a terminal, and returns all that it showed."""
    master, slave = pty.openpty()
    line = f'torchx() {{ {shlex.join(COMMAND)} "$@"; }}; {command}'
    env = environment({"TERM": "xterm-256color", "NO_COLOR": ""})
    process = subprocess.Popen(["sh", "-c", line], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 1 << 16):
            shown += data
    except OSError:  # the end of the terminal
        pass
    finally:
        os.close(master)
        process.wait(60)
    return shown.decode()


@pytest.mark.parametrize(
    ("command", "coloured", "piped"),
    [
        ("torchx run utils.sh 'exit 3' | sed s/^/piped:/", True, "piped:local_cwd://"),
        ("torchx run utils.sh 'exit 3' 2>&1 >/dev/tty | sed s/^/piped:/", False, "piped:"),
        (
            "torchx run utils.sh true >/dev/null 2>&1; torchx list -s local_cwd | sed s/^/piped:/",
            False,
            "piped:APP",
        ),
        ("torchx nothing 2>&1 | sed s/^/piped:/; torchx nothing | cat", True, "piped:error: unknown"),
    ],
)
def test_colour_depends_on_the_stream_that_is_written(command: str, coloured: bool, piped: str) -> None:
    shown = streams(command)
    assert piped in shown
    assert ("\x1b[" in shown) is coloured, shown
    for line in shown.splitlines():
        assert not (line.startswith("piped:") and "\x1b" in line), line


def attach_while_resizing(number: int, chance: random.Random) -> None:
    replicas = 1 + number % 3
    words = ("run", "utils.sh", "--num_replicas", str(replicas), f"echo first; echo last-{number}")
    with Terminal(*words) as terminal:
        while terminal.process.poll() is None:
            terminal.read(0.003)
            terminal.resize(chance.randint(5, 200), chance.randint(2, 60))
        assert terminal.end() == 0
        assert terminal.written.count(f"last-{number}") == replicas
        assert terminal.written.endswith("\r\n")


def test_an_attached_run_while_its_window_changes() -> None:
    attach_while_resizing(2, random.Random(1))


@pytest.mark.long
def test_attached_runs_while_their_window_changes() -> None:
    chance = random.Random(2)
    for number in range(40):
        attach_while_resizing(number, chance)


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(COMPONENT)
    assert torchx("run", "--note", MARKUP, "--tag", "t=[/x]", "c.py:app").returncode == 3


@pytest.mark.parametrize(
    "line",
    [
        "run c.py:app --help", "run --dryrun c.py:app", "status @last", "describe @last", "why @last",
        "log @last", "log --fold @last", "log '@last/r[bold]/0'", "diff @last @last", "events @last",
        "run 'c.py:[/x]'", "status '[/x]'", "run -cfg '[/x]=1' c.py:app", "run -s '[/x]' c.py:app", "'[/x]'",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("marked")
def test_markup_in_data_is_shown_literally(line: str) -> None:
    shown, code = on_terminal(*shlex.split(line), columns=200)
    assert code in (0, 1, 2)
    assert "a bug in torchx" not in shown
    assert "\x1b]8" not in shown  # a link
    if "diff" not in line:
        assert "[/x]" in shown or "r[bold]" in re.sub("\x1b\\[[0-9;]*m", "", shown)


LINES = "for i in 0 1 2 3 4 5 6 7 8 9; do echo line-$TORCHX_ATTEMPT-$TORCHX_RUN-$i; done"


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("kind", ["plain", "retried", "requeued", "cancelled"])
def test_the_log_of_a_replica_around_its_end(kind: str, follow: bool) -> None:
    role = Role("w", "", entrypoint="sh", args=["-c", LINES], num_replicas=4)
    cfg: dict[str, str | float] = {}
    attempts = [(1, 1)]
    if kind == "retried":
        role.args[1] += "; [ $TORCHX_ATTEMPT -ge 3 ]"
        role.max_retries, role.retry_policy = 3, RetryPolicy.REPLICA
        cfg = {"retry_backoff": 0.01}
        attempts = [(1, 1), (2, 1), (3, 1)]
    elif kind == "requeued":
        role.args[1] += "; [ $TORCHX_RUN -ge 2 ] || sleep 60"
        cfg = {"time_limit": "1s", "requeue_on": "time-limit:2", "grace_period": 0.5}
    elif kind == "cancelled":
        role.args[1] += "; sleep 60"
    with get_runner() as runner:
        handle = runner.run(AppDef("j", [role]), "local_cwd", cfg)
        if kind == "cancelled":
            lines = runner.log_lines(handle, "w", 3, should_tail=True)
            assert sum(1 for _, line in zip(range(10), lines, strict=False) if "line-" in line) == 10
            runner.cancel(handle)
        if not follow:
            runner.wait(handle)
        found = re.findall(
            r"line-(\d)-(\d)-(\d)", "\n".join(runner.log_lines(handle, "w", 3, should_tail=follow))
        )
    assert [int(number) for _, _, number in found] == [*range(10)] * (len(found) // 10)
    seen = [*dict.fromkeys((int(attempt), int(run)) for attempt, run, _ in found)]
    if kind == "requeued":
        assert [run for _, run in seen] == [1, 2]
    else:
        assert seen == attempts
    assert torchx("log", f"{handle}/w/3").stdout.count("line-") == len(found)
    assert json.loads(torchx("log", "-o", "json", f"{handle}/w/3").stdout.splitlines()[0])
