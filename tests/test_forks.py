"""A forked command finds the state that a new process would find."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from program import COMMAND, environment, on_terminal, torchx

COMPONENT = """
import json, os, signal, sys, threading
import torchx.specs as specs


def app() -> specs.AppDef:
    state = {
        "argv": sys.argv[1:],
        "main": os.path.basename(sys.modules["__main__"].__file__),
        "cwd": os.getcwd(),
        "path": sys.path,
        "environ": dict(os.environ),
        "umask": os.umask(0),
        "open": [fd for fd in range(1000) if os.path.exists(f"/proc/self/fd/{fd}")],
        "signals": {str(n): str(signal.getsignal(n)).split(" at ")[0] for n in signal.valid_signals()},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": threading.active_count(),
        "flags": str(sys.flags),
        "warnings": sys.warnoptions,
        "group": os.getpgid(0) == os.getpid(),
        "streams": [
            [s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.fileno(), s.mode]
            for s in [sys.__stdin__, sys.__stdout__, sys.__stderr__]
        ],
    }
    with open(os.environ["STATE"], "w") as file:
        json.dump(state, file)
    sys.stdout.write("out\\n")
    sys.stderr.write("err\\n")
    raise SystemExit(7)
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "c.py").write_text(COMPONENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    return ["run", "-s", "local_cwd", "--dryrun", "c.py:app"]


def state() -> object:
    file = Path(os.environ["STATE"])
    found = json.loads(file.read_text())
    file.unlink()
    return found


def test_a_command(words: list[str]) -> None:
    done = torchx(*words)
    forked = state()
    new = subprocess.run(
        [*COMMAND, *words], stdin=subprocess.PIPE, capture_output=True, text=True, env=environment()
    )
    assert forked == state()
    assert (done.stdout, done.stderr, done.returncode) == (new.stdout, new.stderr, new.returncode)


def test_a_command_on_a_terminal(words: list[str]) -> None:
    shown, code = on_terminal(*words)
    forked = state()
    new = on_terminal(*words, env={"PYTHONHASHSEED": "0"})  # which only a new process can have
    there = state()
    assert isinstance(there, dict)
    assert isinstance(forked, dict)
    assert there["environ"].pop("PYTHONHASHSEED") == "0"
    assert there.pop("flags").replace("hash_randomization=0", "hash_randomization=1") == forked.pop("flags")
    assert forked == there
    assert (shown, code) == new
