"""Remove ended jobs, unused images and the leftovers of interrupted commands."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs import ended
from torchx.jobs.catalog import paths_of
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.reconcile import is_supervised
from torchx.jobs.record import LARGEST, JobRecord
from torchx.jobs.recovery import describe_survivors, end_unreadable
from torchx.jobs.removal import cannot_be_removed, remove, remove_logs
from torchx.jobs.view import load
from torchx.machine import files, trees
from torchx.machine import locks as lock
from torchx.scheduling.query import Pruned

STALE_AFTER = 3600.0
"""Seconds without a change after which a partial file or folder counts as a leftover."""

FREE_WITHIN = 10.0
"""Maximum seconds to wait until an ended supervisor releases the lock of its job."""


def prune(home: Home, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
    """Removes ended jobs, then leftovers of interrupted commands and unused images.

    Skips jobs that are running or still have a supervisor.

    Args:
        home: the state home.
        app_ids: the jobs.
        dryrun: yield the same items, but remove nothing.

    Raises:
        StateError: something cannot be removed; raised after everything else was removed.
    """
    removed: set[str] = set()
    errors: list[StateError] = []
    for app_id in app_ids:
        paths = paths_of(home, app_id)
        try:
            freed = _remove_ended(home, paths, dryrun)
        except StateError as error:
            errors.append(error)
            continue
        if freed is not None:
            removed.add(paths.folder.name)
            yield Pruned(str(paths.folder), freed, app_id)
    for path in list(_leftovers(home)):
        freed = size(path)
        try:
            if not dryrun:
                remove(path)
        except StateError as error:
            errors.append(error)
            continue
        yield Pruned(str(path), freed)
    for path in list(_unused_images(home, removed)):
        freed = size(path)
        if dryrun or _remove_image(path):
            yield Pruned(str(path), freed)
    if not dryrun:
        ended.compact(home)
    if errors:
        raise errors[0]


def _remove_ended(home: Home, paths: JobPaths, dryrun: bool) -> int | None:
    """Removes a job and returns the freed bytes, or None if it is running or does not exist."""
    try:
        view = load(paths)
        held = None
        if view.has_ended or not lock.is_held(paths.lock):
            held = lock.acquire(paths.lock)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(paths.folder):
            return _remove_unreadable(home, paths, dryrun)
        return None
    except (StateError, OSError):
        return _remove_unreadable(home, paths, dryrun)
    if held is None:
        return None
    if not view.has_ended:  # its supervisor was killed: the next query finalizes it
        os.close(held)
        return None
    try:
        freed = size(paths.folder)
        logs = Path(view.record.log_dir)
        if why_not_removable(logs):
            freed += 0
        else:
            freed += size(logs)
        if not dryrun:
            remove_job(paths, logs)
        return freed
    except FileNotFoundError:
        return None
    finally:
        os.close(held)


def _remove_unreadable(home: Home, paths: JobPaths, dryrun: bool) -> int | None:
    if is_supervised(paths):
        return None
    freed = size(paths.folder) + sum(size(logs) for logs in _default_logs(home, paths))
    if not dryrun:
        remove_unreadable(home, paths)
    return freed


def remove_job(paths: JobPaths, logs: Path) -> None:
    """Removes the record and the logs of a job that has no supervisor.

    Raises:
        FileNotFoundError: they do not exist.
        StateError: something cannot be removed, or the log folder was not made by torchx.
    """
    # renamed first: other commands see the whole job or none
    hidden = paths.folder.with_name(f".{paths.folder.name}")
    try:
        paths.folder.rename(hidden)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise cannot_be_removed(error, paths.folder) from error
    why = why_not_removable(logs)
    if not why:
        remove_logs(logs, Home(paths.folder.parent.parent).logs)
    remove(hidden)  # last: it names the logs
    if why:
        raise StateError(
            f"the record of {paths.folder.name} is removed, but not its logs: {logs} {why}",
            hint="check that folder, and remove it by hand if it is not needed",
        )


def remove_unreadable(home: Home, paths: JobPaths) -> None:
    """Removes a job whose record cannot be read, with its logs in the state home.

    Raises:
        StateError: something cannot be removed, or a process cannot be ended.
    """
    left = end_unreadable(paths)
    if left:
        raise StateError(f"{paths.folder.name} is not removed: {describe_survivors(left)}")
    if is_supervised(paths, FREE_WITHIN):
        raise StateError(f"{paths.folder.name} is not removed: its supervisor runs with an unknown pid")
    for logs in _default_logs(home, paths):
        remove(logs)
    remove(paths.folder)


def _default_logs(home: Home, paths: JobPaths) -> list[Path]:
    """Returns the log folders of a job in the state home, in any session."""
    folders = [session / paths.folder.name for session in _entries(home.logs) if files.is_own_folder(session)]
    return [logs for logs in folders if logs.is_dir() and not why_not_removable(logs)]


def why_not_removable(logs: Path) -> str:
    """Returns the reason why the log folder of a record may not be removed, or an empty string.

    A record may be old, copied or damaged: a folder that it names is removed only if it belongs to this user
    and looks like a log tree.
    """
    try:
        status = logs.lstat()
    except OSError:
        return ""  # does not exist, or cannot be accessed
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if _is_log_tree(logs):
        return ""
    return "has no file of a job"


def _is_log_tree(folder: Path) -> bool:
    """Returns True for a log tree or an empty folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  # names
    except OSError:
        return False
    if not names or _OF_LOGS.intersection(names):
        return True
    return any(replica.isdigit() for role in names for replica in _names(folder / role))


_OF_LOGS = frozenset(("log.index", "SUCCESS", "torchelastic", "stacks.txt"))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder) if not folder.is_symlink() else []  # noqa: PTH208  # names
    except OSError:
        return []


def size(path: Path) -> int:
    """Returns the disk usage of a file or a folder in bytes, or 0 if it does not exist."""
    return sum(status.st_blocks * 512 for status in trees.statuses(path))


def _leftovers(home: Home) -> Iterator[Path]:
    """Yields leftovers of killed commands: partially written or removed jobs, and logs without a job."""
    yield from _unfinished_jobs(home)
    yield from _orphaned_logs(home)
    yield from filter(_is_stale, [*home.path.glob("*.partial"), *home.images.glob(".unpacking-*")])
    for path in _entries(home.restored):
        is_tree = not path.name.startswith(home.owner_of("").name)
        if is_tree and not os.path.lexists(home.owner_of(path.name)) and _is_stale(path):
            yield path


def _unfinished_jobs(home: Home) -> Iterator[Path]:
    """Yields partially written or removed jobs, each after its logs."""
    for folder in _entries(home.jobs):
        if not folder.name.startswith(".") or not _is_stale(folder):
            continue
        if folder.is_symlink() or not is_supervised(JobPaths(folder)):
            logs = _logs_of(JobPaths(folder))
            if logs is not None and not home.job(logs.name).folder.exists() and _is_stale(logs):
                yield logs
            yield folder


def _orphaned_logs(home: Home) -> Iterator[Path]:
    """Yields logs without a job."""
    for session in _entries(home.logs):
        for logs in _entries(session) if files.is_own_folder(session) else ():
            folder = home.job(logs.name).folder
            hidden = folder.with_name(f".{folder.name}")
            orphaned = not os.path.lexists(folder) and not os.path.lexists(hidden)
            if orphaned and _is_stale(logs) and not why_not_removable(logs):
                yield logs


def _logs_of(paths: JobPaths) -> Path | None:
    """Returns the log folder of a partially removed job, or None if it may not be removed."""
    try:
        logs = Path(JobRecord.load(paths.record).log_dir)
    except (OSError, StateError):
        return None
    if logs.is_dir() and not why_not_removable(logs):
        return logs
    return None


def _unused_images(home: Home, removed: set[str]) -> Iterator[Path]:
    """Yields the unpacked images that no recorded job uses, except the given removed jobs."""
    images = {path for path in _entries(home.images) if not path.name.startswith(".")}
    if not images:
        return
    for job in _entries(home.jobs):
        if job.name in removed:
            continue
        paths = JobPaths(job)
        try:
            record = files.read_file(paths.record, LARGEST)
        except OSError:
            if is_supervised(paths):
                return  # it runs in an unknown image
            continue
        images = {path for path in images if path.name.encode() not in record}
    yield from (path for path in sorted(images) if not _was_just_used(path))


def _was_just_used(image: Path) -> bool:
    """Returns True if a submission may be about to use an image; it sets the image's time first."""
    try:
        return time.time() - image.stat().st_mtime < STALE_AFTER
    except OSError:
        return True  # removed, or not accessible


def _remove_image(path: Path) -> bool:
    """Removes an image unless it was just used; returns True if it was removed."""
    hidden = path.with_name(f".unpacking-{path.name}")
    try:
        path.rename(hidden)
        if _was_just_used(hidden):
            hidden.rename(path)
            return False
    except OSError:
        return False
    remove(hidden)
    return True


def _is_stale(path: Path) -> bool:
    """Returns True if nothing in a file or folder has changed recently."""
    changes = (status.st_mtime for status in trees.statuses(path))
    return time.time() - max(changes, default=0.0) > STALE_AFTER


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
