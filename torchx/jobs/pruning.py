"""Removes what is kept of ended jobs, and what commands that were killed half-way have left behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs import ended, lock
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.removal import cannot_be_removed, remove
from torchx.jobs.view import load
from torchx.selection import Pruned

SETTLED = 3600.0
"""Seconds after which nobody is at work any more on what looks like a leftover."""


def prune(home: Home, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
    """Removes jobs that have ended, then what is left over of broken-off commands.

    A job that runs, or whose supervisor still lives, is passed over.

    Args:
        home: the state home.
        app_ids: the jobs.
        dryrun: yield all the same, and remove nothing.

    Raises:
        StateError: something cannot be removed.
    """
    gone = set()
    for app_id in app_ids:
        paths = home.job(app_id)
        room = _remove_ended(paths, dryrun)
        if room is not None:
            gone.add(paths.folder.name)
            yield Pruned(str(paths.folder), room, app_id)
    for path in list(_broken_off(home)):
        room = size(path)
        if not dryrun:
            remove(path)
        yield Pruned(str(path), room)
    for path in list(_unused_images(home, gone)):
        room = size(path)
        if dryrun or _remove_image(path):
            yield Pruned(str(path), room)
    if not dryrun:
        ended.compact(home)


def _remove_ended(paths: JobPaths, dryrun: bool) -> int | None:
    """Removes one job and returns the room it took; None when it has not ended or is gone already."""
    try:
        view = load(paths)
        held = lock.acquire(paths.lock) if view.has_ended else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    if held is None:
        return None
    try:
        logs = Path(view.record.log_dir)
        room = size(paths.folder) + size(logs)
        if not dryrun:
            remove_job(paths, logs)
        return room
    except FileNotFoundError:
        return None
    finally:
        os.close(held)


def remove_job(paths: JobPaths, logs: Path) -> None:
    """Removes the record and the logs of a job that nobody supervises.

    Raises:
        FileNotFoundError: they are gone already.
        StateError: something cannot be removed.
    """
    # under another name at once: whoever looks now sees the job whole or not at all
    going = paths.folder.with_name(f".{paths.folder.name}")
    try:
        paths.folder.rename(going)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise cannot_be_removed(error, paths.folder) from error
    remove(logs)
    remove(going)  # last: it names the logs


def size(path: Path) -> int:
    """Returns the bytes that a file or a folder takes on the disk; 0 when it is not there."""
    total = 0
    with contextlib.suppress(OSError):
        total = path.lstat().st_blocks * 512
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += size(Path(entry.path))
            else:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _broken_off(home: Home) -> Iterator[Path]:
    """Yields what commands that were killed have left: half-made and half-removed jobs, logs of no job."""
    for folder in _entries(home.jobs):
        if folder.name.startswith(".") and _is_settled(folder) and not lock.is_held(folder / "lock"):
            logs = _logs_of(JobPaths(folder))
            if logs is not None and not home.job(logs.name).folder.exists() and _is_settled(logs):
                yield logs
            yield folder
    for session in _entries(home.logs):
        for logs in _entries(session):
            folder = home.job(logs.name).folder
            half = folder.with_name(f".{folder.name}")
            if not folder.exists() and not half.exists() and _is_settled(logs):
                yield logs
    for path in [*home.path.glob("*.partial"), *home.images.glob(".unpacking-*")]:
        if _is_settled(path):
            yield path


def _logs_of(paths: JobPaths) -> Path | None:
    try:
        logs = Path(JobRecord.load(paths.record).log_dir)
    except (OSError, StateError):
        return None
    # a record that was tampered with does not lead anywhere else
    return logs if f".{logs.name}" == paths.folder.name and logs.is_dir() else None


def _unused_images(home: Home, gone: set[str]) -> Iterator[Path]:
    """Yields the unpacked images that no job on record has, other than those that are gone."""
    images = {path for path in _entries(home.images) if not path.name.startswith(".")}
    if not images:
        return
    for job in _entries(home.jobs):
        if job.name in gone:
            continue
        with contextlib.suppress(OSError):
            record = JobPaths(job).record.read_bytes()
            images = {path for path in images if path.name.encode() not in record}
    yield from (path for path in sorted(images) if not _is_wanted(path))


def _is_wanted(image: Path) -> bool:
    """Tells whether a submit may be about to use an image: it marks it with the present time before."""
    try:
        return time.time() - image.stat().st_mtime < SETTLED
    except OSError:
        return True  # gone, or not ours to judge


def _remove_image(path: Path) -> bool:
    """Removes an image, unless someone has just come to want it."""
    going = path.with_name(f".unpacking-{path.name}")
    try:
        path.rename(going)
        if _is_wanted(going):
            going.rename(path)
            return False
    except OSError:
        return False
    remove(going)
    return True


def _is_settled(path: Path) -> bool:
    """Tells whether nothing in a file or folder has changed for a good while."""
    return time.time() - _last_change(path) > SETTLED


def _last_change(path: Path) -> float:
    latest = 0.0
    with contextlib.suppress(OSError):
        latest = path.lstat().st_mtime
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            latest = max(latest, _last_change(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else 0)
            with contextlib.suppress(OSError):
                latest = max(latest, entry.stat(follow_symlinks=False).st_mtime)
    return latest


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
