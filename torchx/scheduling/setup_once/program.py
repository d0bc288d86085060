"""The program that runs a set-up command once per node, and then becomes the program of the replica.

It runs where the replica runs, on the node or in the container, with Python 3.8 or newer, and imports the
standard library only. Its source follows that of handover.py, see preflight.py.

Each key has a folder with the results and a file with the state. A process holds a lock on this file while it
prepares the results, and the kernel releases it when the process ends in any way. The state is in the same
file, since NFS reads a file again after locking it, but may remember that another one did not exist.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from torchx.scheduling.handover import become, fail, note, own_environment

FAILED = 93
"""The exit code of a replica whose program was not started, as the set-up failed."""
MARK = "torchx setup failed on "
"""The beginning of the line about a failed set-up."""
PREFIX = "torchx setup | "
"""The beginning of the lines about a set-up, and of those that its command prints."""
HOME = "TORCHX_SETUP_HOME"
"""The variable with the folder for the results of all keys."""
RESULTS = "TORCHX_SETUP_DIR"
"""The variable with the folder for the results of this command."""
PERIOD = 20 * 86400
"""Seconds after which the default folder is not used again: systems clean it file by file after 30 days."""
LOCK_FILES = (
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pixi.lock", "pylock*.toml", "conda-lock*.yml"),
    *("environment*.yml", "environment*.yaml", "requirements*.txt", "pyproject.toml", ".python-version"),
)
"""The files of the working folder whose content is a part of the key."""
FORMAT = 1
"""The version of the folders, a part of the key."""
LAST_LINES, LONGEST_LINE = 10, 1000
"""The lines of a failed set-up that other replicas print, and the most bytes of a line."""


def main(arguments: list[str]) -> NoReturn:
    """Prepares the node unless that has been done, then becomes the program of the replica.

    Args:
        arguments: the command, `--`, and the program with its arguments.
    """
    # raises in the middle of any wait; a process with pid 1 in a container would ignore TERM
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    host, environment = socket.gethostname(), own_environment()
    folder = Path(os.environ.get(HOME, ""))
    try:
        folder = home() / key_of(arguments[0], host)
        line = prepare(arguments[0], folder, environment)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOLCK, errno.EOPNOTSUPP):
            error.strerror = f"{error.strerror}; {HOME} names another folder"
        line = f"{error.filename or folder}: {error.strerror}"
    if line:
        fail(f"{MARK}{host}: {line}", FAILED)
    become(arguments[2:], with_results(environment, folder / "results"))


def home() -> Path:
    """Returns the folder for the results of all keys, which exists.

    Raises:
        OSError: it cannot be created, or others might change the default one.
    """
    given = os.environ.get(HOME)
    folder = Path(given or f"/var/tmp/torchx-setup-{os.geteuid()}").absolute()  # noqa: S108 - checked below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not given:
        require_own(folder)
    return folder


def key_of(command: str, host: str) -> str:
    """Returns the key: the same results are valid for all replicas with the same key.

    It has the command, the lock files, the Python, the system and the user. It has the working folder too, in
    which the command may write, unless the command names the folder for its results. In the default folder it
    has the period, and the host, as the folder may be shared.
    """
    here = Path.cwd()
    parts: list[Any] = [
        FORMAT,
        command,
        os.geteuid(),
        platform.machine(),
        sys.version,
        os.path.realpath(sys.executable),
    ]
    if RESULTS not in command:
        parts.append(str(here))
    if not os.environ.get(HOME):
        parts += [host, time.time() // PERIOD]
    for path in sorted({path for pattern in LOCK_FILES for path in here.glob(pattern) if path.is_file()}):
        parts += [path.name, hashlib.sha256(path.read_bytes()).hexdigest()]
    with contextlib.suppress(OSError):
        parts.append(Path("/etc/os-release").read_text("utf-8", "replace"))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def prepare(command: str, folder: Path, environment: Mapping[bytes, bytes]) -> str:
    """Makes the results in a folder, unless they are complete; returns why it failed, or an empty string.

    Raises:
        OSError: the folder cannot be used.
    """
    results, path = folder / "results", folder / "state"
    if folder.is_dir():
        require_own(folder)
        if is_reused(path, results):
            return ""
    folder.mkdir(mode=0o700, exist_ok=True)
    require_own(folder)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(f"{PREFIX}waiting for another process on this node")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if is_reused(path, results):
        os.close(descriptor)
        return ""
    failed = state_of(path, "failed")
    if failed.get("by") == attempt():  # of another replica, a moment ago
        for line in failed["lines"]:
            note(PREFIX + line)
        return str(failed["line"])
    lines: deque[str] = deque(maxlen=LAST_LINES)
    began = time.monotonic()
    line = run(command, results, environment, lines, descriptor)
    state: dict[str, Any] = {"done": {"by": attempt(), "at": int(time.time())}}
    if line:
        state = {"failed": {"by": attempt(), "line": line, "lines": list(lines)}}
    else:
        note(f"{PREFIX}done in {time.monotonic() - began:.1f} s: {results}")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(state).encode(), 0)
    os.fsync(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # also if a process in the background has inherited it
    os.close(descriptor)
    return line


def require_own(folder: Path) -> None:
    """Makes a folder private.

    Raises:
        OSError: it is a link, or belongs to another user.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "is not a folder of this user", str(folder))
    if found.st_mode & 0o077:
        folder.chmod(0o700)


def state_of(path: Path, name: str) -> dict[str, Any]:
    """Returns the state with a name; an empty one if it is another, or was not written to its end."""
    try:
        found = json.loads(path.read_bytes())[name]
        return {"by": str(found["by"]), **found}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def is_reused(path: Path, results: Path) -> bool:
    """Returns True if the results are complete, and reports their origin."""
    by = state_of(path, "done").get("by")
    if not by or not results.is_dir():
        return False
    if by != attempt():
        note(f"{PREFIX}reused from {by.partition(' ')[0]}: {results}")
    return True


def attempt() -> str:
    """Returns the application with its run and attempt: its replicas share the failure of a set-up."""
    names = ("TORCHX_JOB_ID", "TORCHX_RUN", "TORCHX_ATTEMPT")
    return " ".join(os.environ.get(name, "-") for name in names)


def run(command: str, results: Path, environment: Mapping[bytes, bytes], lines: deque[str], lock: int) -> str:
    """Runs the command, whose output becomes a part of the log; returns why it failed, or an empty string.

    The remains of an interrupted process are removed first. The command inherits the lock, so that no
    other one starts beside it if this process is killed.

    Raises:
        OSError: the folder for the results cannot be created.
    """
    if results.exists():
        shutil.rmtree(results)
    results.mkdir(mode=0o700)
    shown = " ".join(command.split())[:LONGEST_LINE]
    note(PREFIX + shown)
    shell = shutil.which("bash") or "sh"
    child = subprocess.Popen(
        [shell, "-ec", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=with_results(environment, results),
        pass_fds=[lock],
    )
    try:
        relay(child, lines)
        code = child.wait()
    finally:
        end(child)
    if not code:
        return ""
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"`{shown}` ended with {how}" + (f": {last}" if last else "")


def relay(child: subprocess.Popen[bytes], lines: deque[str]) -> None:
    """Prints the output of the command line by line until it ends, and keeps the last lines."""
    assert child.stdout is not None
    pending = b""
    waiting = select.poll()  # `select.select` rejects large descriptors
    waiting.register(child.stdout, select.POLLIN)
    while True:
        if waiting.poll(500):
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                break
            *complete, pending = (pending + data).split(b"\n")
            for line in complete:
                show(line, lines)
            if len(pending) > LONGEST_LINE:
                show(pending, lines)
                pending = b""
        elif child.poll() is not None:
            break  # a process in the background keeps the output open
    if pending:
        show(pending, lines)


def show(line: bytes, lines: deque[str]) -> None:
    """Prints a line of the command."""
    text = line[:LONGEST_LINE].decode("utf-8", "replace").rstrip()
    lines.append(text)
    note(PREFIX + text)


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends the command if it runs: this process was cancelled."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()


def with_results(environment: Mapping[bytes, bytes], results: Path) -> dict[bytes, bytes]:
    """Returns the environment of the command and of the program: they find the results, and uv its own."""
    folder = os.fsencode(results)
    made = {b"UV_PROJECT_ENVIRONMENT": folder + b"/venv", **environment, RESULTS.encode(): folder}
    programs = [results / "venv" / "bin", results / "bin"]
    found = [os.fsencode(path) for path in programs if path.is_dir()]
    made[b"PATH"] = b":".join([*found, made.get(b"PATH", os.defpath.encode())])
    if (results / "venv" / "pyvenv.cfg").is_file():
        made[b"VIRTUAL_ENV"] = folder + b"/venv"
    return made


if __name__ == "__main__":
    main(sys.argv[1:])
