"""Helpers of the tests of local jobs: applications of shell lines, and what runs of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from support import wait_until

from torchx import settings
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.view import load
from torchx.machine import locks as lock
from torchx.machine import marks as process_marks
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.schedulers.local.scheduler import LocalScheduler, create_cwd_scheduler
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.logs import LogQuery, Stream
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState, ReplicaStatus


def sh(
    script: str, replicas: int = 1, *, name: str = "w", retries: int = 0, policy: str = "APPLICATION"
) -> Role:
    """A role whose replicas run a shell script."""
    return Role(
        name,
        image="",
        entrypoint="sh",
        args=["-c", script],
        num_replicas=replicas,
        max_retries=retries,
        retry_policy=RetryPolicy(policy),
    )


def scheduler() -> LocalScheduler:
    """The scheduler local_cwd, as another process would see it: nothing is kept from one to the next."""
    return create_cwd_scheduler("torchx")


def submit(*roles: Role, name: str = "job", **cfg: CfgVal) -> str:
    """Submits an application and returns its id."""
    options: Mapping[str, CfgVal] = {"grace_period": 5.0, "retry_backoff": 0.01, **cfg}
    return scheduler().submit(AppDef(name, list(roles)), options)


def describe(app_id: str) -> DescribeAppResponse:
    """What is known of a job that is on record."""
    found = scheduler().describe(app_id)
    assert found is not None
    return found


def ended(app_id: str, timeout: float = 120.0) -> DescribeAppResponse:
    """Waits for the end of a job and returns what is known of it."""
    assert scheduler().wait(app_id, timeout), f"{app_id} still runs"
    scheduler().reconcile(app_id)  # as a runner does
    return describe(app_id)


def run(*roles: Role, **cfg: CfgVal) -> DescribeAppResponse:
    """Runs an application to its end."""
    return ended(submit(*roles, **cfg))


def replicas(described: DescribeAppResponse) -> list[ReplicaStatus]:
    """All replicas of all roles."""
    return [replica for role in described.roles_statuses for replica in role.replicas]


def text(app_id: str, stream: Stream = Stream.COMBINED, **query: object) -> str:
    """The log of a job."""
    chunks = scheduler().log_chunks(app_id, LogQuery(stream=stream, **query))  # type: ignore[arg-type]
    return b"".join(chunk.data for chunk in chunks).decode()


def paths(app_id: str) -> JobPaths:
    """The record of a job."""
    return Home(Path(os.environ[settings.TORCHX_HOME])).job(app_id)


def handle(app_id: str) -> str:
    """The handle of a job."""
    return f"local_cwd://torchx/{app_id}"


def processes_of(app_id: str) -> list[Process]:
    """All that runs of a job, its supervisor left out."""
    return process_marks.marked(settings.TORCHX_JOB_ID, handle(app_id))


def supervision_of(app_id: str) -> tuple[Process, Process]:
    """The supervisor of a job, and the guard that stands behind it."""
    view = load(paths(app_id))
    assert view.supervisor is not None
    assert view.guard is not None
    return view.supervisor, view.guard


def kill_supervision(app_id: str) -> None:
    """Kills the supervisor of a job and its guard, so that no process supervises it."""
    supervisor, guard = supervision_of(app_id)
    processes.send(guard, signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(guard), "the guard has ended")
    processes.send(supervisor, signal.SIGKILL)
    assert lock.wait_free(paths(app_id).lock, 120)


NAMELESS = """
import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open("{file}", "w").write(str(os.getpid()))
os.rename("{file}", "{file}.done")
os.execve("/bin/sleep", ["sleep", "600"], dict())
"""
"""A daemon in a session of its own, with another parent and an empty environment."""


def with_daemon(tmp_path: Path, script: str = "sleep 600") -> tuple[str, Process]:
    """A job with a process that has left everything that shows its origin."""
    file = tmp_path / "pid"
    daemon = tmp_path / "daemon.py"
    daemon.write_text(NAMELESS.format(file=file))
    app_id = submit(sh(f"{sys.executable} {daemon}; echo ready; {script}"), grace_period=0.3)
    wait_until(lambda: Path(f"{file}.done").exists() and text(app_id) == "ready\n", "the daemon runs")
    entry = processes.look_up(int(Path(f"{file}.done").read_text()))
    assert entry is not None
    return app_id, entry.process


def running(app_id: str, count: int = 1) -> DescribeAppResponse:
    """Waits until so many replicas run."""

    def look() -> DescribeAppResponse | None:
        described = describe(app_id)
        states = [replica.state for replica in replicas(described)]
        return described if states.count(AppState.RUNNING) >= count else None

    return wait_until(look, f"{count} replicas of {app_id} run")


def assert_nothing_runs(app_id: str) -> None:
    """Fails when anything of a job is left running."""
    assert processes_of(app_id) == []
