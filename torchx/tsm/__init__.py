"""Sessions: fluent definitions of applications, run and managed under one name.

::

    import torchx.tsm as tsm

    trainer = tsm.ElasticRole("trainer", nproc_per_node=2).runs("train.py", "--epochs", "50")
    trainer = trainer.on(tsm.Container(image="/home/me/trainer")).replicas(4)
    app = tsm.Application("train").of(trainer)

    session = tsm.session(name="mine")
    handle = session.run(app, scheduler="local")
    session.wait(handle)
"""

from __future__ import annotations

from typing import Any

from torchx.lazy import lazy_imports
from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.specs import (
    ALL,
    MISSING,
    NULL_RESOURCE,
    AppDryRunInfo,
    AppHandle,
    AppState,
    AppStatus,
    ReplicaState,
    ReplicaStatus,
    Resource,
    RetryPolicy,
    RoleStatus,
    is_terminal,
    macros,
    make_app_handle,
    parse_app_handle,
    runopt,
    runopts,
)
from torchx.specs.handles import UnknownAppException
from torchx.tsm.application import Application, Container, Role, SchedulerBackend
from torchx.tsm.elastic import ElasticRole
from torchx.tsm.errors import (
    AppNotReRunnable,
    AppNotReRunnableException,
    SessionMismatch,
    SessionMismatchException,
    UnknownApp,
)
from torchx.tsm.sessions import RunConfig, Session

with lazy_imports:
    from torchx import runner as _runner  # a program that only describes applications submits none
    from torchx.tsm import standalone as _standalone

__all__ = [
    "ALL",
    "MISSING",
    "NULL_RESOURCE",
    "AppDryRunInfo",
    "AppHandle",
    "AppNotReRunnable",
    "AppNotReRunnableException",
    "AppState",
    "AppStatus",
    "Application",
    "Container",
    "DescribeAppResponse",
    "ElasticRole",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "RunConfig",
    "Scheduler",
    "SchedulerBackend",
    "Session",
    "SessionMismatch",
    "SessionMismatchException",
    "UnknownApp",
    "UnknownAppException",
    "is_terminal",
    "macros",
    "make_app_handle",
    "parse_app_handle",
    "runopt",
    "runopts",
    "session",
]


def session(name: str = "torchx", **scheduler_params: Any) -> Session:
    """Returns a session on all schedulers that are installed.

    The scheduler ``default``, also called ``local``, is this machine: ``local_dir`` where an image is a
    folder or an archive, else ``local_cwd``.

    Args:
        name: the session part of the handles it gives.
        scheduler_params: keyword arguments for the factories of the schedulers.
    """
    return _standalone.StandaloneSession(name, _runner.get_runner(name, **scheduler_params))
