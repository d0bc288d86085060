"""Starts the supervisor of an application in containers, and replaces one that has died."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torchx.jobs.paths import Home, JobPaths, file_name, user_home
from torchx.machine import locks as lock
from torchx.machine.files import make_folder
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.labels import is_app_id
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.rules.removed import LONGEST_NAME
from torchx.supervisor import process

MODULE = "torchx.schedulers.docker.supervisor"

MEASURED_AFTER = 1.0
"""Seconds until a supervisor starts that only measures."""


def docker_home() -> Home:
    """Returns the folder with the locks of supervisors, which may not exist."""
    return Home(user_home()).containers


def usage_path(app_id: str) -> Path:
    """Returns the file with the measurements of an application, which may not exist."""
    return docker_home().path / "usage" / file_name(app_id)[-LONGEST_NAME:]


def spawn_supervisor(paths: JobPaths, app_id: str, held: Sequence[int], *, urgent: bool = True) -> None:
    """Starts the process of a supervisor.

    Args:
        paths: the paths in its folder.
        app_id: the application.
        held: the descriptors of its lock and its leases, which the supervisor inherits.
        urgent: wait until it is ready. Otherwise it only measures: it starts after :data:`MEASURED_AFTER`
            and delays nothing.

    Raises:
        StateError: it does not start.
    """
    delay = 0.0 if urgent else MEASURED_AFTER
    process.start(MODULE, [str(paths.folder), app_id], paths.supervisor_log, held, delay=delay)


def lacks_supervisor(containers: Sequence[Container]) -> bool:
    """Returns True if an application has lost its supervisor, and that ran on this machine.

    Args:
        containers: its containers.
    """
    app_id = containers[0].app_id
    if damage_of(containers) or not has_folder(app_id):
        return False
    if replay(job_of(containers), containers).end is not None:
        return False
    return not lock.is_held(docker_home().job(app_id).lock)


def reconcile(engine: Engine, app_id: str) -> None:
    """Starts a supervisor for an application that has lost its own on this machine."""
    if containers := containers_of(engine, app_id):
        ensure_supervisor(containers)


def ensure_supervisor(containers: Sequence[Container]) -> None:
    """Starts a supervisor for an application that has lost its own, if that ran on this machine."""
    if lacks_supervisor(containers):
        app_id = containers[0].app_id
        _start_unless_held(docker_home().job(app_id), app_id)


def has_folder(app_id: str) -> bool:
    """Returns True if the supervisor of an application has a folder on this machine, owned by this user."""
    if not is_app_id(app_id):
        return False
    try:
        status = docker_home().job(app_id).folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def remove_folder(app_id: str) -> None:
    """Removes the folder of an application's supervisor, if it exists and is owned by this user."""
    if has_folder(app_id):
        shutil.rmtree(docker_home().job(app_id).folder, ignore_errors=True)


def start_supervisor(app_id: str) -> None:
    """Starts a supervisor for an application that is being cancelled, even if its rules need none.

    Raises:
        OSError: its folder cannot be created.
        StateError: it does not start.
    """
    if not is_app_id(app_id):
        return
    paths = docker_home().job(app_id)
    make_folder(paths.folder)
    _start_unless_held(paths, app_id)


def _start_unless_held(paths: JobPaths, app_id: str) -> None:
    # a supervisor that has finished removes its folder, possibly at the same time
    with suppress(FileNotFoundError):
        held = lock.acquire(paths.lock)
        if held is None:
            return
        try:
            spawn_supervisor(paths, app_id, [held])
        finally:
            os.close(held)
