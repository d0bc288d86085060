"""What is written when a job has ended: SUCCESS in its log tree, and its line in the list of ended jobs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.view import JobView


@dataclass(frozen=True)
class EndedJob:
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
    line = json.dumps(asdict(EndedJob.of(view)), separators=(",", ":")) + "\n"
    home = Home(paths.folder.parent.parent)
    with contextlib.suppress(OSError):
        descriptor = os.open(home.ended, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def read(home: Home) -> Iterator[EndedJob]:
    """Yields the list of ended jobs, oldest first; a damaged line is passed over."""
    try:
        data = home.ended.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, TypeError):
            yield EndedJob(**json.loads(line))


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
