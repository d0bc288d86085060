"""Helpers of the tests of what the state home holds: jobs on record that have ended, and changes of them."""

from __future__ import annotations

import json
import time

from torchx.jobs import ended
from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import load
from torchx.schedulers.local.status import LocalJobs
from torchx.scheduling.query import AppQuery
from torchx.specs.status import AppState


def job(home: Home, app_id: str) -> JobPaths:
    """Puts an ended job on record, with logs."""
    paths, now = home.job(app_id), time.time()
    logs = LogPaths(home.logs / "torchx" / app_id)
    paths.folder.mkdir(parents=True)
    logs.replica("w", 0).mkdir(parents=True)
    (logs.replica("w", 0) / "combined.log").write_bytes(b"line\n")
    role = RoleRecord("w", [ReplicaRecord(["true"], {})], {})
    record = JobRecord(app_id, "local_cwd", "torchx", "job", now, str(logs.folder), [role], {}, {})
    record.save(paths.record)
    paths.lock.touch()
    end = {"t": now + 1, "e": "end", "state": "SUCCEEDED", "msg": "", "first": None}
    paths.events.write_text(json.dumps(end) + "\n", encoding="utf-8")
    ended.remember(ended.EndedJob.of(load(paths)), paths)
    return paths


def change(paths: JobPaths, **values: object) -> None:
    """Changes fields of a record, and makes the next listing read it."""
    paths.record.write_text(json.dumps({**json.loads(paths.record.read_text()), **values}))
    (paths.folder.parent.parent / "ended.jsonl").unlink(missing_ok=True)


def jobs(home: Home) -> LocalJobs:
    return LocalJobs(home, "local_cwd")


def states(home: Home) -> dict[str, AppState]:
    return {line.app_id: line.state for line in jobs(home).select(AppQuery())}
