"""Files about ended jobs: SUCCESS in the log tree, and the list of ended jobs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Annotated, NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.view import ENDS, JobView, load
from torchx.json_limits import Object, compact_json
from torchx.json_shape import ExitCode, HandleText, SystemText, one_of
from torchx.machine import files
from torchx.specs.app_metadata import tags_of, valid_tags

_Tags = Annotated[dict[str, str] | None, lambda value, _: valid_tags(value) or None]


class EndedJob(NamedTuple):
    """The entry of an ended job in a listing; times are seconds since the epoch.

    An earlier version reads the record instead of an entry with the last three fields.
    """

    app_id: HandleText
    scheduler: HandleText
    session: HandleText
    name: str
    state: Annotated[str, one_of(ENDS)]
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: ExitCode = None
    msg: str = ""
    tags: _Tags = None
    engine: SystemText = ""
    run: str = ""

    @classmethod
    def of(cls, view: JobView) -> EndedJob:
        """Returns the entry for a job; by default with the message of the first failure."""
        record, failure = view.record, view.failure
        return cls(
            record.app_id,
            record.scheduler,
            record.session,
            record.name,
            view.state,
            record.submitted_at,
            view.started_at,
            view.ended_at,
            view.exit_code,
            view.msg or (failure.msg if failure is not None else ""),
            tags_of(record.app.get("metadata")) or None,
            record.engine,
        )


_FIELDS = frozenset(EndedJob._fields)

LARGEST = 1 << 28
"""Maximum bytes of the list; a larger one is ignored, and the records are read."""


def finish(view: JobView, paths: JobPaths, entry: EndedJob | None = None) -> None:
    """Completes the files of a job whose end is recorded.

    Args:
        view: the job.
        paths: its record.
        entry: its entry in the list of ended jobs (default: by its events).
    """
    with contextlib.suppress(OSError):
        paths.reserve.unlink(missing_ok=True)
    write_success(view, LogPaths(Path(view.record.log_dir)))
    remember(entry or EndedJob.of(view), paths)


def remember(entry: EndedJob, paths: JobPaths) -> None:
    """Appends a job to the list of ended jobs, which is a cache and may lack jobs."""
    data = entry._asdict()
    for name in ("tags", "engine", "run"):
        if not data[name]:
            del data[name]  # not known to earlier versions, which may read the list
    line = compact_json(data) + "\n"
    home = Home(paths.folder.parent.parent)
    with contextlib.suppress(OSError):
        descriptor = _open_to_append(home.ended)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def complete(home: Home) -> None:
    """Adds the ended jobs that the list lacks."""
    listed = lines(home)
    with contextlib.suppress(OSError):
        for name in set(os.listdir(os.fsencode(home.jobs))) - listed.keys():  # noqa: PTH208  # bytes, as in the list
            paths = JobPaths(home.jobs / os.fsdecode(name))
            with contextlib.suppress(OSError, StateError):
                view = load(paths)
                if view.has_ended and not name.startswith(b"."):
                    remember(EndedJob.of(view), paths)


def _open_to_append(path: Path) -> int:
    """Opens the list under a shared lock, which prevents its replacement; returns the descriptor.

    After 50 failed attempts it is opened without the lock, so that no process can keep a job from ending; a
    line that is lost with a replaced list is added again by the next `torchx list`.
    """
    tries = 50
    while True:
        descriptor = files.open_file(path, files.APPEND)
        tries -= 1
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if tries < 0 or os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except OSError:
            if tries < 0:
                return descriptor
            time.sleep(0.01)
        os.close(descriptor)


HEAD = b'{"app_id":"'
_SUBMITTED = b'"submitted_at":'


def lines(home: Home) -> dict[bytes, bytes]:
    """Returns the unparsed lines of the list of ended jobs by id; the last line of a job wins.

    The result is empty if the list cannot be read: it is a cache of the records.
    """
    try:
        data = files.read_file(home.ended, LARGEST)
    except OSError:
        return {}
    start = len(HEAD)
    return {
        line[start : line.find(b'"', start)]: line
        for line in data.split(b"\n")
        if line.startswith(HEAD) and line.endswith(b"}")
    }


def submitted_at(line: bytes) -> float:
    """Returns the submission time of a line without parsing the rest, or 0.0 for a damaged line."""
    at = line.find(_SUBMITTED) + len(_SUBMITTED)
    try:
        value = float(line[at : line.index(b",", at)])
    except ValueError:
        return 0.0
    # as json_shape.timestamp; called for each line
    if 0.0 <= value <= json_shape.LATEST:
        return value
    return 0.0


def parse(line: bytes) -> EndedJob | None:
    """Parses a line of the list; returns None if it is damaged."""
    try:
        data = json_shape.mapping(json.loads(line), "line")
        if not data.keys() <= _FIELDS:
            return None
        job: EndedJob = json_shape.read(EndedJob, data, "line")
        return job
    except (ValueError, TypeError, RecursionError):
        return None


def compact(home: Home) -> None:
    """Rewrites the list with one line for each recorded job, unless another process has it open.

    Something else in its place, such as a link, is removed: the next listing starts a new list.
    """
    try:
        descriptor = files.open_file(home.ended)
    except FileNotFoundError:
        return
    except OSError:
        with contextlib.suppress(OSError):
            home.ended.unlink()
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), home.ended.stat()):
            return  # just replaced by another process
        on_record = set(os.listdir(os.fsencode(home.jobs)))  # noqa: PTH208  # bytes, as in the list
        kept = [line + b"\n" for app_id, line in lines(home).items() if app_id in on_record]
        files.write_file(home.ended, b"".join(kept))
    except BlockingIOError:
        return  # left to the next call
    finally:
        os.close(descriptor)


def write_success(view: JobView, logs: LogPaths) -> None:
    """Writes SUCCESS to the log tree: final state, pids, exit codes and log paths."""
    roles: dict[str, list[Object]] = {}
    for replica in view.replicas:
        folder = logs.replica(replica.role, replica.id)
        last = None
        if replica.attempts:
            last = replica.attempts[-1]
        roles.setdefault(replica.role, []).append(
            {
                "replica_id": replica.id,
                "pid": last.process.pid if last and last.process else None,
                "exitcode": last.exit_code if last else None,
                "signal": last.signal if last else None,
                "attempts": len(replica.attempts),
                "stdout": str(folder / "stdout.log"),
                "stderr": str(folder / "stderr.log"),
                "combined": str(folder / "combined.log"),
            }
        )
    facts = {"app_id": view.record.app_id, "final_state": view.state, "roles": roles}
    if view.record.engine or not files.is_own_folder(logs.folder):
        return  # it has no logs here, was removed in the meantime, or a record with a wrong folder
    with contextlib.suppress(OSError):
        files.write_file(logs.success, (json.dumps(facts, indent=1) + "\n").encode())
