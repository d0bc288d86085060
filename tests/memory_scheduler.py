"""A small scheduler that keeps its applications in memory: for the tests of what stands above schedulers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx.schedulers.api import Stream
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.run_options import CfgVal, runopts
from torchx.specs.status import AppState, ReplicaStatus, RoleStatus

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass
class Request:
    """What would be sent: the application and how often it greets."""

    app: AppDef
    cfg: dict[str, CfgVal]


@dataclass
class Job:
    """An application in memory; a test sets its state."""

    app: AppDef
    number: int
    state: AppState = AppState.RUNNING
    lines: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def end(self, state: AppState) -> None:
        self.state = state
        self.ended.set()


class MemoryScheduler(Scheduler[Request]):
    """Takes any application and does nothing with it."""

    def __init__(self, session_name: str, backend: str = "memory", **params: Any) -> None:
        super().__init__(backend, session_name)
        self.params = params
        self.jobs: dict[str, Job] = {}
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("greetings", type_=int, default=1, help="how often to greet")
        opts.add("names", type_=list[str], help="whom to greet")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[Request]:
        return AppDryRunInfo(
            Request(app, dict(cfg)), lambda request: f"greet {request.cfg['greetings']} times"
        )

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        return None

    def schedule(self, dryrun_info: AppDryRunInfo[Request]) -> str:
        app = dryrun_info.request.app
        app_id = f"{app.name}-{len(self.jobs)}"
        self.jobs[app_id] = Job(app, len(self.jobs))
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        job = self.jobs.get(app_id)
        if job is None:
            return None
        return DescribeAppResponse(
            app_id=app_id,
            state=job.state,
            num_restarts=0,
            metadata=job.app.metadata,
            roles=job.app.roles,
            roles_statuses=[
                RoleStatus(
                    role.name,
                    [ReplicaStatus(k, job.state, role.name, "here") for k in range(role.num_replicas)],
                )
                for role in job.app.roles
            ],
            name=job.app.name,
            submitted_at=START + timedelta(hours=job.number),
        )

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        return [
            ListAppResponse(
                app_id, job.state, name=job.app.name, submitted_at=START + timedelta(hours=job.number)
            )
            for app_id, job in reversed(self.jobs.items())
        ]

    def _cancel_existing(self, app_id: str) -> None:
        job = self.jobs[app_id]
        if not job.ended.is_set():
            job.end(AppState.CANCELLED)

    def _delete_existing(self, app_id: str) -> None:
        del self.jobs[app_id]

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        job = self.jobs[app_id]
        yield from job.lines.get((role_name, k), [])
        if should_tail:
            job.ended.wait()
            yield f"{role_name}/{k} has ended\n"
