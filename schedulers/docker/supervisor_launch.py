"""Starts the supervisor of an application in containers, and finds out whether it has died."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress

from torchx.jobs.paths import Home, JobPaths, user_home
from torchx.machine import locks as lock
from torchx.machine.files import is_own_folder, make_folder
from torchx.schedulers.docker import folder
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.journal import has_ended
from torchx.schedulers.docker.labels import is_app_id
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.supervisor import process

MODULE = "torchx.schedulers.docker.supervisor"

MEASURED_AFTER = 1.0
"""Seconds until a supervisor starts that only measures."""


def supervised_in(app_id: str) -> JobPaths:
    """Returns the folder for the supervisor of an application, which may not exist.

    An application without a record of this version has one for the time of its supervisor only.
    """
    return folder.own_folder(app_id) or Home(user_home()).containers.job(app_id)


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


def lacks_supervisor(engine: Engine, containers: Sequence[Container]) -> bool:
    """Returns True if an application has lost its supervisor, and that ran on this machine.

    Args:
        engine: the engine.
        containers: its containers.
    """
    app_id = containers[0].app_id
    if damage_of(containers) or not _has_folder(app_id) or has_ended(app_id):
        return False
    job = job_of(containers)
    is_over = replay(job, containers).end is not None
    if folder.own_folder(app_id) is None:
        is_due = not is_over
    else:  # the supervisor also records the end
        is_due = is_over or job.needs_supervisor or bool(engine.address.path)
    return is_due and not lock.is_held(supervised_in(app_id).lock)


def _has_folder(app_id: str) -> bool:
    """Returns True if the supervisor of an application has a folder on this machine, owned by this user."""
    return is_app_id(app_id) and is_own_folder(supervised_in(app_id).folder)


def remove_folder(app_id: str) -> None:
    """Removes the folder of the supervisor of an application without a record, if this user owns it."""
    if folder.own_folder(app_id) is None and _has_folder(app_id):
        shutil.rmtree(supervised_in(app_id).folder, ignore_errors=True)


def provide_supervisor(app_id: str) -> None:
    """Starts a supervisor for an application unless it has one, even if its rules need none.

    Raises:
        OSError: its folder cannot be created.
        StateError: it does not start.
    """
    if is_app_id(app_id):
        make_folder(supervised_in(app_id).folder)
        start_supervisor(app_id)


def start_supervisor(app_id: str) -> None:
    """Starts a supervisor for an application that has a folder, unless it has one.

    Raises:
        StateError: it does not start.
    """
    paths = supervised_in(app_id)
    # a supervisor that has finished may remove its folder, possibly at the same time
    with suppress(FileNotFoundError):
        held = lock.acquire(paths.lock)
        if held is None:
            return
        try:
            spawn_supervisor(paths, app_id, [held])
        finally:
            os.close(held)
