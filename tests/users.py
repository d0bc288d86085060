"""Several users of this machine in tests: a process of each, which submits jobs to a state home of its user.

Without root, they are state homes of one user. The processes may read all files, as the interpreter may be
in the home of root, but write only those of their users.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from local import scheduler, sh

from torchx.errors import TorchxError
from torchx.jobs.paths import Home
from torchx.jobs.view import load
from torchx.leases.gpus import CUDA_VISIBLE_DEVICES
from torchx.machine import processes
from torchx.specs.app import AppDef
from torchx.specs.resources import Resource

UIDS = (0, 65533, 65534) if os.geteuid() == 0 else (os.geteuid(),) * 3
"""The users of the tests."""


class User:
    """A process of a user, which submits and watches jobs.

    Args:
        uid: the user.
        home: the state home, in a folder that all users may enter.
        within: the beginning of a command that runs the process, for instance with other files.
    """

    def __init__(self, uid: int, home: Path, within: Sequence[str] = ()) -> None:
        self.uid, self.home = uid, Home(home)
        self.home.path.mkdir(mode=0o700)
        os.chown(self.home.path, uid, uid)
        words = [sys.executable, "-c", "import users; users.serve()"]
        own = {
            "TORCHX_HOME": str(self.home.path),
            "HOME": str(self.home.path),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self._process = subprocess.Popen(
            [*within, *as_user(uid), *words], env={**os.environ, **own}, cwd=home.parent, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> User:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        with self._process:  # closes its streams and waits
            pass
        if kind is not None:  # the test has failed: end its jobs
            for module, number in (("queue.keeper", signal.SIGKILL), ("supervisor", signal.SIGTERM)):
                for pid in self.processes(module):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)

    def submit(self, script: str, gpus: int, **cfg: Any) -> str:
        """Submits a job and returns its id.

        Args:
            script: its script.
            gpus: the GPUs that it needs.
            cfg: run options, and ``visible``: the indexes of the GPUs that it may use.
        """
        return str(self._request("submit", script, gpus, cfg))

    def submit_and_kill(self, script: str, gpus: int, after: float, **cfg: Any) -> None:
        """Submits a job in a process that is killed after some seconds, unless it has ended."""
        self._request("submit_and_kill", script, gpus, cfg, after)

    def unfinished(self) -> list[str]:
        """Brings all jobs to their due state; returns those that have not ended."""
        return list(self._request("unfinished"))

    def message(self, app_id: str) -> str:
        """Returns the state and the message of a job."""
        return str(self._request("message", app_id))

    def _request(self, kind: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["value"]

    # --- what root sees of it --------------------------------------------------------------------

    def jobs(self) -> list[str]:
        """Returns the ids of all jobs on record."""
        if not self.home.jobs.exists():
            return []
        return [folder.name for folder in self.home.jobs.iterdir() if not folder.name.startswith(".")]

    def events(self, app_id: str) -> list[dict[str, Any]]:
        """Returns the events of a job."""
        with contextlib.suppress(FileNotFoundError):
            lines = self.home.job(app_id).events.read_text().splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.endswith("\n")]
        return []

    def processes(self, module: str = "") -> list[int]:
        """Returns the pids of the keeper, the supervisors and their guards, in the order of their start.

        Args:
            module: only those that run a module, such as ``queue.keeper``.
        """
        found = []
        for entry in processes.table():
            with contextlib.suppress(OSError):
                words = processes.read_proc(f"/proc/{entry.process.pid}/cmdline").split(b"\0")
                is_own = any(word.startswith(os.fsencode(self.home.path)) for word in words)
                if is_own and module.encode() in b" ".join(words):
                    found.append((entry.process.start, entry.process.pid))
        return [pid for _, pid in sorted(found)]


def as_user(uid: int) -> Sequence[str]:
    """Returns the beginning of a command that runs as a user."""
    if uid == os.geteuid():
        return ()
    ids = ("--reuid", str(uid), "--regid", str(uid), "--clear-groups")
    return ("setpriv", *ids, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Yields a folder that all users may enter; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-users-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


# --- in the process of a user ----------------------------------------------------------------------


def serve() -> None:
    """Answers the requests of :class:`User`."""
    functions = (_submit, _submit_and_kill, _unfinished, _message)
    requests = {function.__name__.lstrip("_"): function for function in functions}
    for line in sys.stdin:
        kind, *arguments = json.loads(line)
        try:
            answer = {"value": requests[kind](*arguments)}
        except Exception as error:
            answer = {"error": f"{kind}: {type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _submit(script: str, gpus: int, cfg: dict[str, Any]) -> str:
    role = sh(script)
    role.resource = Resource(1, gpus, 64)
    os.environ.pop(CUDA_VISIBLE_DEVICES, None)
    if visible := cfg.pop("visible", ""):
        os.environ[CUDA_VISIBLE_DEVICES] = visible
    return scheduler().submit(AppDef("job", [role]), {"grace_period": 5.0, **cfg})


def _submit_and_kill(script: str, gpus: int, cfg: dict[str, Any], after: float) -> None:
    pid = os.fork()
    if not pid:
        try:
            _submit(script, gpus, cfg)
        finally:
            os._exit(0)
    entry = processes.look_up(pid)
    assert entry is not None
    processes.wait_end(entry.process, after)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _unfinished() -> list[str]:
    home = Home(Path(os.environ["TORCHX_HOME"]))
    left = []
    for folder in home.jobs.iterdir() if home.jobs.exists() else ():
        if not folder.name.startswith("."):
            with contextlib.suppress(FileNotFoundError):  # the record of a submission that was killed
                if not load(home.job(folder.name)).has_ended:
                    scheduler().reconcile(folder.name)
                    left.append(folder.name)
    return left


def _message(app_id: str) -> str:
    try:
        described = scheduler().glance(app_id)
    except TorchxError as error:
        return error.message
    return "" if described is None else f"{described.state.name} {described.msg}"
