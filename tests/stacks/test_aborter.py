"""The program that makes Python programs print their stacks as it ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from torchx.machine import aborter

JOB = f"local_cwd://torchx/aborted-{os.getpid()}"  # other processes of pytest run this test too
HANGS = """
import resource, threading
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
print("ready", flush=True)
threading.Event().wait()
"""


def test_only_python_programs_with_a_handler_are_aborted(tmp_path: Path) -> None:
    python, handler = [sys.executable, "-c", HANGS], {"PYTHONFAULTHANDLER": "1"}
    started = {}
    for name, command, env in (
        ("a stopped program", python, {**handler, "RANK": "0"}),
        ("without a handler", python, {"RANK": "1"}),
        ("a launcher", python, handler),
        ("no Python", ["sh", "-c", "trap : ABRT; echo ready; read line"], {"RANK": "2"}),
        ("another replica", python, {**handler, "TORCHX_REPLICA": "w/1"}),
    ):
        marks = {"TORCHX_JOB_ID": JOB, "TORCHX_REPLICA": "w/0", **env}
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONFAULTHANDLER"} | marks
        started[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, cwd=tmp_path,
        )  # fmt: skip
    try:
        for process in started.values():
            assert process.stdout is not None
            assert process.stdout.readline()
        stopped = started["a stopped program"]
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
        aborter.abort(JOB, ["w/0"])
        _, status = os.waitpid(stopped.pid, 0)
        stopped.returncode = -os.WTERMSIG(status)
        assert (os.WTERMSIG(status), os.WCOREDUMP(status)) == (signal.SIGABRT, False)
        assert stopped.stderr is not None
        assert b"Fatal Python error: Aborted" in stopped.stderr.read()
        assert [name for name, process in started.items() if process.poll() is None] == [*started][1:]
    finally:
        for process in started.values():
            process.kill()
            process.communicate()
