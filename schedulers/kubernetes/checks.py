"""Checks an application at the dry-run, and finds the features that the cluster does not support."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchx.errors import RunOptionError, StateError, UsageError
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.manifests import volumes
from torchx.schedulers.kubernetes.manifests.job import (
    is_gang,
    needs_lines,
    restarts_as_a_whole,
    restarts_by_torchx,
)
from torchx.schedulers.kubernetes.manifests.overlays import unused
from torchx.schedulers.kubernetes.manifests.pod import is_shared_by_others
from torchx.schedulers.kubernetes.names import ROLE_INDEX
from torchx.schedulers.kubernetes.options import AUTO, JOB, JOBSET, VOLCANO
from torchx.schedulers.kubernetes.record import write_record
from torchx.scheduling.checks import require_images
from torchx.services.rules import after_of
from torchx.settings import SERVICE
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.checks import require_roles
from torchx.specs.run_options import RunOptions

ONLY_FAILED = "after a failure only the failed replica is restarted, not its peers"
"""A note on an application that torchx cannot restart as a whole."""


def check(app: AppDef) -> None:
    """Checks an application; resources are optional.

    Raises:
        UsageError: it has no roles, or a role without image.
    """
    require_roles(app)
    require_images(app, "kubernetes")


def notes_of(app: AppDef, cfg: RunOptions, kind: str) -> list[str]:
    """Returns the features of an application that the cluster does not support, one line each.

    Args:
        app: the application.
        cfg: run options.
        kind: job, jobset or volcano.
    """
    by_kind = {JOB: _job_notes, JOBSET: _jobset_notes, VOLCANO: _volcano_notes}
    return [*_notes(app, cfg, kind), *by_kind[kind](app, cfg)]


def _notes(app: AppDef, cfg: RunOptions, kind: str) -> Iterator[str]:
    unknown = {name for role in app.roles for name in role.resource.devices if "/" not in name}
    if unknown:
        names = ", ".join(sorted(unknown))
        yield f"devices without a domain in their names are not requested: {names}"
    for role in app.roles:
        yield from volumes.notes_of(role)
    for overlay, name in unused(app, kind):
        yield f"the overlay {overlay} of `{name}` is ignored with kind={kind}"
    fewer = [role for role in app.roles if role.min_replicas not in (None, role.num_replicas)]
    if fewer and kind != VOLCANO:
        yield f"a Job ignores min_replicas: it starts each replica that fits ({_roles(fewer)})"
    if write_record(app, cfg) is None:
        yield "the application is too large to be stored with its job: `describe` will show only its pods"


def process_notes(app: AppDef, templates: Iterable[Data]) -> list[str]:
    """Returns a note on the roles whose programs are process 1 of their container.

    Args:
        app: the application.
        templates: the pod templates of its manifests.
    """
    numbers = {
        int(template["metadata"]["labels"][ROLE_INDEX])
        for template in templates
        if is_shared_by_others(template["spec"]) and not template["spec"].get("shareProcessNamespace")
    }
    if not numbers:
        return []
    roles = _roles([app.roles[number] for number in sorted(numbers)])
    return [
        "with further containers, the program is process 1 and ends on TERM only if it handles TERM; to "
        f"share processes: shareProcessNamespace in the overlay V1Pod ({roles})"
    ]


def _single_retries_notes(app: AppDef, cfg: RunOptions) -> Iterator[str]:
    """Yields the notes on the roles whose replicas a Job restarts."""
    retried = [role for role in app.roles if role.max_retries]
    single = [role for role in retried if not restarts_by_torchx(app, role, cfg)]
    if single and needs_lines(cfg):
        yield f"a Job retries by exit code and signal only, not by other causes ({_roles(single)})"
    elif single and cfg.get("no_retry_on") is None:
        yield (
            "a Job also retries usage, import and syntax errors and full disks, unless an attached run, "
            f"`torchx wait` or `torchx log -f` ends it first ({_roles(single)})"
        )
    whole = [role for role in retried if role.retry_policy is RetryPolicy.APPLICATION and role not in single]
    if single and whole:
        yield f"after a restart of all roles, the retries of single replicas count from 0 ({_roles(single)})"


def _job_notes(app: AppDef, cfg: RunOptions) -> Iterator[str]:
    several = len(app.roles) > 1
    # the kind is decided at submission
    unless = "unless the cluster has JobSets: "
    if cfg.get("kind") == JOB:
        unless = ""
    gang = is_gang(app, cfg)
    yield from _single_retries_notes(app, cfg)
    if gang and write_record(app, cfg) is None:
        yield f"{unless}{ONLY_FAILED}, as the application is too large to be stored with its job"
    if several and cfg.get("fail_fast", True) and not gang:
        yield (
            f"{unless}each role is a separate Job: if one fails, the others run until an attached run, "
            "`torchx wait` or `torchx log -f` ends them; with kind=jobset or kind=volcano the cluster does"
        )
    if several and cfg.get("queue"):
        yield f"{unless}Kueue admits each role separately; with kind=jobset it admits them together"


def _jobset_notes(app: AppDef, cfg: RunOptions) -> Iterator[str]:
    several = len(app.roles) > 1
    whole = [role for role in app.roles if restarts_as_a_whole(role)]
    by_role = [role for role in whole if role.retry_policy is RetryPolicy.ROLE]
    if several and by_role:
        yield f"a JobSet restarts all roles, not a single one ({_roles(by_role)})"
    if len({role.max_retries for role in whole}) > 1:
        most = max(role.max_retries for role in whole)
        yield f"a JobSet counts the restarts of all roles together: {most} in total ({_roles(whole)})"
    if several and not cfg.get("fail_fast", True):
        yield "a JobSet ends the other roles if one has failed, even with fail_fast=false"


def _volcano_notes(app: AppDef, cfg: RunOptions) -> Iterator[str]:
    retried = [role for role in app.roles if role.max_retries]
    single = [role for role in retried if role.retry_policy is RetryPolicy.REPLICA]
    by_role = [role for role in retried if role.retry_policy is RetryPolicy.ROLE]
    if single:
        yield f"older versions of Volcano cannot restart a single replica ({_roles(single)})"
    if by_role and len(app.roles) > 1:
        yield f"Volcano restarts all roles, not a single one ({_roles(by_role)})"
    if len({role.max_retries for role in retried}) > 1:
        least = min(role.max_retries for role in retried)
        yield f"Volcano counts the restarts of all roles together: {least} in total ({_roles(retried)})"


def _roles(roles: list[Role]) -> str:
    return f"role {', '.join(role.name for role in roles)}"


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
