"""What the shells offer on a half-typed line: asked of the real shells that are installed here."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from program import ROOT, environment, torchx

from torchx_cli.commands.tools.completion import SCRIPTS
from torchx_cli.completion.complete import split


def installed(shell: str) -> Any:
    """Returns a parameter of tests that need a shell."""
    lacks = shutil.which(shell) is None
    return pytest.param(
        shell, marks=pytest.mark.skipif(lacks, reason=f"{shell} is not installed: .ci/packages installs it")
    )


SHELLS = ["bash", installed("fish")]
"""Those that can be asked without a terminal."""

COMPONENTS = '''
from typing import Literal

import torchx.specs as specs

raise SystemExit("completion runs nothing of a file")


def trainer(lr: float, optimizer: Literal["adam", "sgd"] = "adam", resume: bool = False) -> specs.AppDef:
    """Trains.

    Args:
        lr: learning rate
    """
    return specs.AppDef("a")
'''


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the program as people call it."""
    program = tmp_path / "bin" / "torchx"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m torchx_cli "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(COMPONENTS, encoding="utf-8")
    return folder


def bash(line: str) -> list[str]:
    """What bash's function offers for a line, put behind what is typed of the word already."""
    words = re.findall(r"[:=]+|[^\s:=]+", line) + ([""] if line.endswith((" ", "=", ":")) else [])
    script = (
        f"{SCRIPTS['bash']}\nCOMP_LINE=$1 COMP_POINT=${{#1}} COMP_CWORD={len(words) - 1}\n"
        'shift; COMP_WORDS=("$@"); _torchx; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", line, *words], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    start = re.split(r"[:=]", split(line)[-1])[-1]
    before = split(line)[-1].removesuffix(start)
    return [before + word for word in done.stdout.splitlines() if word]


def fish(line: str) -> list[str]:
    """What fish offers for a line."""
    script = f"{SCRIPTS['fish']}\ncomplete -C $argv[1]"
    done = subprocess.run(
        ["fish", "-N", "-c", script, line], capture_output=True, text=True, env=environment(), check=True
    )
    return [found.partition("\t")[0] for found in done.stdout.splitlines()]


def offered(shell: str, line: str) -> list[str]:
    return {"bash": bash, "fish": fish}[shell](line)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchx sta", ["status", "stacks"]),
        ("torchx --profile p conf", ["configure", "config"]),
        ("torchx config ", ["show", "trust"]),
        ("torchx schema de", ["describe", "delete"]),
        ("torchx schema tracker l", ["lineage", "list"]),
        ("torchx run --sch", ["--scheduler"]),
        ("torchx run -s local_d", ["local_dir", "local_docker"]),
        ("torchx runopts local_c", ["local_cwd"]),
        ("torchx run -s local_dir -cfg gr", ["grace_period="]),
        (
            "torchx run -cfg log_dir=/x,fail_fast=",
            ["log_dir=/x,fail_fast=true", "log_dir=/x,fail_fast=false"],
        ),
        ("torchx run -cfg fail_fast=false,fail", []),
        ("torchx run utils.ec", ["utils.echo"]),
        ("torchx run tr", ["train.py:"]),
        ("torchx run train.py:", ["train.py:trainer"]),
        ("torchx run train.py:trainer --re", ["--resume"]),
        ("torchx run train.py:trainer --no", ["--no-resume"]),
        ("torchx run train.py:trainer --optimizer ", ["adam", "sgd"]),
        ("torchx run train.py:trainer --lr 0.1 -- tr", ["train.py"]),
        ("torchx status ", []),
        ("torchx status -o ", ["json", "yaml"]),
        ("torchx list --state failed,run", ["failed,running"]),
        ("torchx queue ", ["first", "hold", "release"]),
        ("torchx queue hold ", []),
        ("torchx completion z", ["zsh"]),
        ("torchx nonsense ", []),
        ("torchx run 'half a", []),
    ],
)
def test_what_is_offered(shell: str, line: str, expected: list[str]) -> None:
    assert offered(shell, line) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_applications_roles_and_replicas(shell: str) -> None:
    done = torchx("run", "-d", "utils.sh", "--num_replicas", "3", "until test -e go; do sleep 0.2; done")
    live = done.stdout.strip()
    app_id = live.rpartition("/")[2]
    ended = torchx("run", "utils.echo").stdout.strip()
    assert offered(shell, "torchx cancel ") == [app_id, "@last"]
    assert offered(shell, "torchx status ") == [app_id, ended.rpartition("/")[2], "@last"]
    assert offered(shell, f"torchx log {app_id[:4]}") == [app_id]
    assert offered(shell, f"torchx log {app_id}/") == [f"{app_id}/sh"]
    assert offered(shell, f"torchx log {app_id}/sh/0,") == [f"{app_id}/sh/0,{k}" for k in range(3)]
    assert offered(shell, "torchx attach local_cwd://") == [live]
    assert offered(shell, f"torchx log {live}/s") == [f"{live}/sh"]
    assert offered(shell, f"torchx status {app_id} --roles ") == ["sh"]
    Path("go").touch()
    assert torchx("wait", live).returncode == 0
    assert offered(shell, "torchx cancel ") == []


@pytest.mark.parametrize("shell", [installed("zsh")])
def test_a_shell_completes_on_a_terminal(shell: str, tmp_path: Path) -> None:
    places = tmp_path / "functions"
    places.mkdir()
    (places / "_torchx").write_text(torchx("completion", shell).stdout)
    setup = (
        f"PS1='> '; fpath=({places} $fpath); autoload -U compinit; compinit -u -d {tmp_path}/dump; echo ready"
    )
    with Terminal([shell, "-f", "-i"]) as terminal:
        terminal.send(setup + "\n")
        terminal.read_until("\nready")
        for typed, expected in (
            ("torchx stat\t", "us "),
            ("torchx run train.py:\t", "trainer "),
            ("torchx run train.py:trainer --opt\t", "imizer "),
            ("torchx run -cfg grace\t", "_period="),
        ):
            terminal.send(typed)
            terminal.read_until(expected)
            terminal.send("\x15")  # clears the line


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            os.execvpe(command[0], command, environment({"TERM": "dumb", "PROMPT_EOL_MARK": ""}))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._master)

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read_until(self, text: str) -> str:
        shown = ""
        end = time.monotonic() + 30
        while text not in shown:
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"not shown: {text!r}, but {shown!r}"
            shown += os.read(self._master, 65536).decode(errors="replace").replace("\r", "")
        return shown


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_scripts_are_printed_and_valid(shell: str) -> None:
    done = torchx("completion", shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, SCRIPTS[shell], "")
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=done.stdout, text=True, check=True)


def test_an_unknown_shell() -> None:
    done = torchx("completion", "fsh")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no completion for `fsh`\n  did you mean `fish`?")


def test_completion_imports_little() -> None:
    code = (
        "import sys; from torchx_cli.main import main; code = main(sys.argv[1:]);"
        "heavy = ['pydantic', 'rich', 'yaml', 'docker', 'fsspec', 'docstring_parser', 'asyncio', 'logging'];"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    for line in ("torchx status ", "torchx run ", "torchx run -cfg ", "torchx log @last/"):
        done = subprocess.run(
            [sys.executable, "-c", code, "__complete", "bash", line],
            capture_output=True, text=True, env=environment(), timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "[]\n"), line
