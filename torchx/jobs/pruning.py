"""Removes what is kept of ended jobs, and what commands that were killed half-way have left behind."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs import ended
from torchx.jobs.catalog import paths_of
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import LARGEST, JobRecord
from torchx.jobs.recovery import end_unreadable, what_could_not_be_ended
from torchx.jobs.removal import cannot_be_removed, remove
from torchx.jobs.settled import is_supervised
from torchx.jobs.view import load
from torchx.machine import files
from torchx.machine import locks as lock
from torchx.scheduling.query import Pruned

SETTLED = 3600.0
"""Seconds after which nobody is at work any more on what looks like a leftover."""

FREE_WITHIN = 10.0
"""Seconds within which a supervisor that was ended lets go of the lock of its job."""


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
    gone: set[str] = set()
    failed: list[StateError] = []  # what cannot be removed is in the way of nothing else
    for app_id in app_ids:
        paths = paths_of(home, app_id)
        try:
            room = _remove_ended(home, paths, dryrun)
        except StateError as error:
            failed.append(error)
            continue
        if room is not None:
            gone.add(paths.folder.name)
            yield Pruned(str(paths.folder), room, app_id)
    for path in list(_broken_off(home)):
        room = size(path)
        try:
            if not dryrun:
                remove(path)
        except StateError as error:
            failed.append(error)
            continue
        yield Pruned(str(path), room)
    for path in list(_unused_images(home, gone)):
        room = size(path)
        if dryrun or _remove_image(path):
            yield Pruned(str(path), room)
    if not dryrun:
        ended.compact(home)
    if failed:
        raise failed[0]


def _remove_ended(home: Home, paths: JobPaths, dryrun: bool) -> int | None:
    """Removes one job and returns the room it took; None when it has not ended or is gone already."""
    try:
        view = load(paths)
        held = lock.acquire(paths.lock) if view.has_ended or not lock.is_held(paths.lock) else None
    except (FileNotFoundError, NotADirectoryError):
        return _remove_unreadable(home, paths, dryrun) if os.path.lexists(paths.folder) else None
    except (StateError, OSError):
        return _remove_unreadable(home, paths, dryrun)
    if held is None:
        return None
    if not view.has_ended:  # its supervisor was killed: who looks at it next finds its end
        os.close(held)
        return None
    try:
        room = size(paths.folder)
        logs = Path(view.record.log_dir)
        room += 0 if why_not_removable(logs) else size(logs)
        if not dryrun:
            remove_job(paths, logs)
        return room
    except FileNotFoundError:
        return None
    finally:
        os.close(held)


def _remove_unreadable(home: Home, paths: JobPaths, dryrun: bool) -> int | None:
    if is_supervised(paths):
        return None
    room = size(paths.folder) + sum(size(logs) for logs in _default_logs(home, paths))
    if not dryrun:
        remove_unreadable(home, paths)
    return room


def remove_job(paths: JobPaths, logs: Path) -> None:
    """Removes the record and the logs of a job that nobody supervises.

    Raises:
        FileNotFoundError: they are gone already.
        StateError: something cannot be removed, or the logs are none that torchx has made.
    """
    # under another name at once: whoever looks now sees the job whole or not at all
    going = paths.folder.with_name(f".{paths.folder.name}")
    try:
        paths.folder.rename(going)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise cannot_be_removed(error, paths.folder) from error
    why = why_not_removable(logs)
    if not why:
        remove(logs)
    remove(going)  # last: it names the logs
    if why:
        raise StateError(
            f"the record of {paths.folder.name} is removed, but not its logs: {logs} {why}",
            hint="look at that folder, and remove it yourself where it is not needed",
        )


def remove_unreadable(home: Home, paths: JobPaths) -> None:
    """Removes a job whose record cannot be read; of its logs those in the state home.

    Raises:
        StateError: something cannot be removed, or still runs.
    """
    left = end_unreadable(paths)
    if left:
        raise StateError(f"{paths.folder.name} is not removed: {what_could_not_be_ended(left)}")
    end = time.monotonic() + FREE_WITHIN
    while is_supervised(paths):
        if time.monotonic() > end:
            raise StateError(f"{paths.folder.name} is not removed: its supervisor runs, and no pid is known")
        time.sleep(0.02)
    for logs in _default_logs(home, paths):
        remove(logs)
    remove(paths.folder)


def _default_logs(home: Home, paths: JobPaths) -> list[Path]:
    """Returns the log folders that have the name of a job, of all sessions."""
    found = [session / paths.folder.name for session in _entries(home.logs) if files.is_own_folder(session)]
    return [logs for logs in found if logs.is_dir() and not why_not_removable(logs)]


def why_not_removable(logs: Path) -> str:
    """Returns what keeps the log folder of a record from being removed; empty when nothing does.

    A record may be old, copied or damaged: only a folder that is this user's and looks like one that a
    supervisor has written is removed on its word.
    """
    try:
        status = logs.lstat()
    except OSError:
        return ""  # not there, or out of reach
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    return "" if _is_log_tree(logs) else "holds none of the files of a job"


def _is_log_tree(folder: Path) -> bool:
    """Returns True for a folder of logs, and for one that is empty."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  # names
    except OSError:
        return False
    if not names or _OF_LOGS.intersection(names):
        return True
    return any(name.isdigit() for each in names for name in _names(folder / each))


_OF_LOGS = frozenset(("log.index", "SUCCESS", "torchelastic"))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder) if not folder.is_symlink() else []  # noqa: PTH208  # names
    except OSError:
        return []


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
        if not folder.name.startswith(".") or not _is_settled(folder):
            continue
        if folder.is_symlink() or not is_supervised(JobPaths(folder)):
            logs = _logs_of(JobPaths(folder))
            if logs is not None and not home.job(logs.name).folder.exists() and _is_settled(logs):
                yield logs
            yield folder
    for session in _entries(home.logs):
        for logs in _entries(session) if files.is_own_folder(session) else ():
            folder = home.job(logs.name).folder
            half = folder.with_name(f".{folder.name}")
            gone = not os.path.lexists(folder) and not os.path.lexists(half)
            if gone and _is_settled(logs) and not why_not_removable(logs):
                yield logs
    for path in [*home.path.glob("*.partial"), *home.images.glob(".unpacking-*")]:
        if _is_settled(path):
            yield path


def _logs_of(paths: JobPaths) -> Path | None:
    """Returns the logs that a half-removed job names; None unless they are its own."""
    try:
        logs = Path(JobRecord.load(paths.record).log_dir)
    except (OSError, StateError):
        return None
    return logs if logs.is_dir() and not why_not_removable(logs) else None


def _unused_images(home: Home, gone: set[str]) -> Iterator[Path]:
    """Yields the unpacked images that no job on record has, other than those that are gone."""
    images = {path for path in _entries(home.images) if not path.name.startswith(".")}
    if not images:
        return
    for job in _entries(home.jobs):
        if job.name in gone:
            continue
        paths = JobPaths(job)
        try:
            record = files.read_file(paths.record, LARGEST)
        except OSError:
            if is_supervised(paths):
                return  # it runs in an image that is not known
            continue
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
    except OSError:
        return []
