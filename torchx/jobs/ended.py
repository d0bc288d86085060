"""What is written when a job has ended: SUCCESS in its log tree, and its line in the list of ended jobs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.view import JobView


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
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
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
    """Returns the list of ended jobs as it is written, by id; of several lines of a job the last."""
    try:
        data = home.ended.read_bytes()
    except FileNotFoundError:
        return {}
    start = len(HEAD)
    return {line[start : line.find(b'"', start)]: line for line in data.split(b"\n") if line.startswith(HEAD)}


def submitted_at(line: bytes) -> float:
    """Returns when the job of a line was submitted, without reading the rest; 0.0 for a damaged line."""
    at = line.find(_SUBMITTED) + len(_SUBMITTED)
    try:
        return float(line[at : line.index(b",", at)])
    except ValueError:
        return 0.0


def parse(line: bytes) -> EndedJob | None:
    """Reads a line of the list; None when it is damaged."""
    try:
        return EndedJob(**json.loads(line))
    except (ValueError, TypeError):
        return None


def compact(home: Home) -> None:
    """Writes the list anew, with one line for each job that is on record; nothing when someone appends."""
    try:
        descriptor = os.open(home.ended, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), home.ended.stat()):
            return  # someone else has just done it
        on_record = set(os.listdir(os.fsencode(home.jobs)))  # noqa: PTH208  # bytes, as in the list
        kept = [line + b"\n" for app_id, line in lines(home).items() if app_id in on_record]
        partial = home.ended.with_name("ended.jsonl.partial")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as new:
            new.writelines(kept)
        partial.replace(home.ended)
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
    partial = logs.success.with_name("SUCCESS.partial")
    with contextlib.suppress(OSError):
        partial.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        partial.rename(logs.success)
