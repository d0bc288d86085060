"""How the program ends its process: nothing is lost that Python would have done at exit."""

from __future__ import annotations

import subprocess
import sys

import pytest
from program import COMMAND, environment


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_output_and_exit_code_get_through() -> None:
    done = run("from torchx_cli.__main__ import leave; print('x' * 1_000_000); leave(3)")
    assert (done.returncode, len(done.stdout), done.stderr) == (3, 1_000_001, "")


def test_what_is_registered_for_the_exit_is_done() -> None:
    done = run(
        "import atexit; from torchx_cli.__main__ import leave; atexit.register(print, 'bye'); leave(0)"
    )
    assert (done.returncode, done.stdout) == (0, "bye\n")


@pytest.mark.parametrize(("daemon", "printed"), [(False, "late\n"), (True, "")])
def test_threads_are_waited_for_as_python_does(daemon: bool, printed: str) -> None:
    done = run(
        "import threading, time; from torchx_cli.__main__ import leave\n"
        "def late(): time.sleep(0.3); print('late')\n"
        f"threading.Thread(target=late, daemon={daemon}).start(); leave(5)"
    )
    assert (done.returncode, done.stdout) == (5, printed)


def test_the_program_is_this() -> None:
    done = subprocess.run([sys.executable, "-m", "torchx_cli", "nosuch"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown command `nosuch`")


@pytest.mark.parametrize("command", [[], ["list"], ["config", "show"]])
def test_help_before_a_command(command: list[str]) -> None:
    first, last = (
        subprocess.run([*COMMAND, *line], capture_output=True, text=True, check=True)
        for line in (["help", *command], [*command, "--help"])
    )
    assert first.stdout == last.stdout


@pytest.mark.parametrize("line", ["--help", "list --help", "tracker --help", "run utils.echo --help"])
def test_help_needs_no_docstrings_in_memory(line: str) -> None:
    """PYTHONOPTIMIZE=2 removes them."""
    command = [*COMMAND, *line.split()]
    plain, optimized = (
        subprocess.run(command, capture_output=True, text=True, env=environment(env))
        for env in ({}, {"PYTHONOPTIMIZE": "2"})
    )
    assert plain.returncode == 0
    assert optimized.stdout == plain.stdout
