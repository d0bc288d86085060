"""What is written when a job has ended: SUCCESS in its log tree, and its line in the list of ended jobs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from torchx.jobs import shape
from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.view import ENDS, JobView
from torchx.machine import files


class EndedJob(NamedTuple):
    """The line of an ended job in a listing; times are seconds since the epoch."""

    app_id: str
    scheduler: str
    session: str
    name: str
    state: str
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    msg: str = ""

    @classmethod
    def of(cls, view: JobView) -> EndedJob:
        """Returns the line for a job."""
        record = view.record
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
            view.msg,
        )


_FIELDS = frozenset(EndedJob._fields)

LARGEST = 1 << 28
"""Bytes of the list; with more it is passed over, and the records are read."""


def remember(view: JobView, paths: JobPaths) -> None:
    """Appends a job to the list of ended jobs; the list is a shortcut and may lack some."""
    line = json.dumps(EndedJob.of(view)._asdict(), separators=(",", ":")) + "\n"
    home = Home(paths.folder.parent.parent)
    with contextlib.suppress(OSError):
        descriptor = _open_to_append(home.ended)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def _open_to_append(path: Path) -> int:
    """Opens the list under a shared lock, which keeps it from being replaced; returns the descriptor.

    Who cannot get the lock for a while appends all the same: nobody may keep a job from ending, and a
    line that is lost with a list that was just replaced is written again by the next listing.
    """
    tries = 50
    while True:
        descriptor = files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
    """Returns the list of ended jobs as it is written, by id; of several lines of a job the last.

    A list that cannot be read is none: it is a shortcut, and the records tell the same.
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
    """Returns when the job of a line was submitted, without reading the rest; 0.0 for a damaged line."""
    at = line.find(_SUBMITTED) + len(_SUBMITTED)
    try:
        return shape.moment(float(line[at : line.index(b",", at)]), "submitted_at")
    except ValueError:
        return 0.0


def parse(line: bytes) -> EndedJob | None:
    """Reads a line of the list; None when it is damaged."""
    try:
        data = shape.mapping(json.loads(line), "line")
        if not data.keys() <= _FIELDS:
            return None
        job = EndedJob(**data)
        started, ended = job.started_at, job.ended_at
        return job._replace(
            app_id=shape.word(job.app_id, "app_id"),
            scheduler=shape.word(job.scheduler, "scheduler"),
            session=shape.word(job.session, "session"),
            name=shape.text(job.name, "name"),
            state=ENDS[ENDS.index(job.state)],
            submitted_at=shape.moment(job.submitted_at, "submitted_at"),
            started_at=None if started is None else shape.moment(started, "started_at"),
            ended_at=None if ended is None else shape.moment(ended, "ended_at"),
            exit_code=shape.exit_code(job.exit_code, "exit_code"),
            msg=shape.text(job.msg, "msg"),
        )
    except (ValueError, TypeError, RecursionError):
        return None


def compact(home: Home) -> None:
    """Writes the list anew, with one line for each job that is on record; nothing when someone appends.

    What is no list, such as a link in its place, is removed: the next listing begins another.
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
            return  # someone else has just done it
        on_record = set(os.listdir(os.fsencode(home.jobs)))  # noqa: PTH208  # bytes, as in the list
        kept = [line + b"\n" for app_id, line in lines(home).items() if app_id in on_record]
        files.write_file(home.ended, b"".join(kept))
    except BlockingIOError:
        return  # the next one does it
    finally:
        os.close(descriptor)


def write_success(view: JobView, logs: LogPaths) -> None:
    """Writes SUCCESS beside the logs: final state, pids, exit codes and the paths of the files."""
    roles: dict[str, list[dict[str, Any]]] = {}
    for replica in view.replicas:
        folder = logs.replica(replica.role, replica.id)
        last = replica.attempts[-1] if replica.attempts else None
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
    if not files.is_own_folder(logs.folder):
        return  # removed meanwhile, or a record led elsewhere
    with contextlib.suppress(OSError):
        files.write_file(logs.success, (json.dumps(facts, indent=1) + "\n").encode())
