"""Starts the supervisor of an application in containers, and another where one has died."""

from __future__ import annotations

import os
import select
import shutil
import stat
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths, user_home
from torchx.machine import locks as lock
from torchx.machine import processes
from torchx.machine.files import make_folder
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.labels import is_app_id
from torchx.schedulers.docker.replay import job_of, tell

READY_WITHIN = 30.0
"""Seconds that a supervisor may take to say that it is there."""

# as the supervisor of a local job: without the caller's Python settings and site packages
BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from torchx.schedulers.docker.supervisor import main; main(sys.argv[1:])"
)


def docker_home() -> Home:
    """Returns where the locks of supervisors lie; it need not be there."""
    return Home(user_home() / "docker")


def start_supervisor(paths: JobPaths, app_id: str, held: int) -> None:
    """Starts the supervisor of an application.

    Args:
        paths: its folder.
        app_id: the application.
        held: the descriptor of its lock, which the supervisor holds from now on.

    Raises:
        StateError: it does not come up.
    """
    import torchx

    root = str(Path(torchx.__file__).resolve().parent.parent)
    complaints = os.open(paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    ready, says_ready = os.pipe()  # children do not inherit it
    words = [str(paths.folder), app_id, str(says_ready)]
    try:
        args = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, root, *words]
        child = processes.spawn(args, stderr=complaints, pass_fds=[says_ready, held])
    except OSError as error:
        os.close(ready)
        raise StateError(f"the supervisor cannot be started: {error.strerror}") from error
    finally:
        os.close(says_ready)
        os.close(complaints)
    # a process that lives on, such as a notebook, shall not keep a dead child of it
    threading.Thread(target=os.waitpid, args=(child.pid, 0), daemon=True).start()
    try:
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        if not poll.poll(READY_WITHIN * 1000) or os.read(ready, 16) != b"ready":
            complaint = paths.supervisor_log.read_text(errors="replace").strip().splitlines()
            raise StateError(f"the supervisor did not start: {complaint[-1] if complaint else 'no answer'}")
    finally:
        os.close(ready)


def see_to(containers: Sequence[Container]) -> None:
    """Starts a supervisor for an application that needs one and was left without; on its own machine alone.

    Args:
        containers: its containers.
    """
    app_id = containers[0].app_id
    if damage_of(containers) or not has_folder(app_id):
        return
    paths = docker_home().job(app_id)
    if tell(job_of(containers), containers).end is not None or lock.is_held(paths.lock):
        return
    _start_unless_held(paths, app_id)


def has_folder(app_id: str) -> bool:
    """Returns True when the supervisor of an application has a folder here, which belongs to this user."""
    if not is_app_id(app_id):
        return False
    try:
        status = docker_home().job(app_id).folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def remove_folder(app_id: str) -> None:
    """Removes the folder of an application's supervisor, where it has one that belongs to this user."""
    if has_folder(app_id):
        shutil.rmtree(docker_home().job(app_id).folder, ignore_errors=True)


def look_after(app_id: str) -> None:
    """Starts a supervisor for an application that has none here, whatever its rules: it is being ended.

    Raises:
        OSError: there is no place for its folder.
        StateError: it does not come up.
    """
    if not is_app_id(app_id):
        return
    paths = docker_home().job(app_id)
    make_folder(paths.folder)
    _start_unless_held(paths, app_id)


def _start_unless_held(paths: JobPaths, app_id: str) -> None:
    # a supervisor that has done its work takes the folder along, maybe at this very moment
    with suppress(FileNotFoundError):
        held = lock.acquire(paths.lock)
        if held is None:
            return
        try:
            start_supervisor(paths, app_id, held)
        finally:
            os.close(held)
