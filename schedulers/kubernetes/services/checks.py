"""Checks of applications with services, or roles that start after others, at the dry-run."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.errors import RunOptionError, StateError, UsageError
from torchx.schedulers.kubernetes.options import AUTO, JOB
from torchx.schedulers.kubernetes.record import write_record
from torchx.services.rules import after_of
from torchx.settings import SERVICE
from torchx.specs.app import AppDef, RetryPolicy
from torchx.specs.run_options import RunOptions


def check_services(app: AppDef, cfg: RunOptions) -> None:
    """Checks an application with services or an order of starts.

    Raises:
        UsageError: the run options do not allow them.
    """
    if cfg.get("kind") not in (None, AUTO, JOB):
        raise RunOptionError(
            "kind",
            f"is {cfg['kind']}, which runs neither services nor roles that start after others",
            hint="torchx runs them with plain jobs: -cfg kind=job",
        )
    waiting = [role.name for role in app.roles if after_of(role)]
    if cfg.get("queue") and waiting:
        raise RunOptionError(
            "queue",
            f"does not fit {', '.join(waiting)}, which start after other roles: Kueue starts each job",
            hint="omit the queue, or start these roles immediately: specs.after(role, [])",
        )
    if write_record(app, cfg) is None:
        raise UsageError("the application is too large to be stored with its job, which services need")


def notes_of_services(app: AppDef) -> Iterator[str]:
    """Yields the differences to other engines."""
    several = [role for role in app.roles if SERVICE in role.metadata and role.num_replicas > 1]
    alone = [r.name for r in several if r.max_retries and r.retry_policy is RetryPolicy.REPLICA]
    if alone:
        yield f"if a replica of a service fails, all its replicas restart (role {', '.join(alone)})"


def reject_without_right(missing: str, namespace: str) -> None:
    """Rejects an application with services, as the caller lacks a right.

    Args:
        missing: the right.
        namespace: the namespace.

    Raises:
        StateError: always.
    """
    raise StateError(
        f"services and roles that start after others need the right `{missing}` in namespace {namespace}",
        hint=f"kubectl auth can-i {missing} -n {namespace}",
    )
