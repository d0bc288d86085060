"""Manifests of Indexed Jobs: a Job for each role, its rules of retries, and services that name the pods."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.manifests.attempt_number import field_of
from torchx.schedulers.kubernetes.manifests.hosts import is_stable
from torchx.schedulers.kubernetes.manifests.pod import AppContext, pod_template
from torchx.schedulers.kubernetes.names import APP_ID, AWAITS, CONTAINER, JOB_COMPLETION_INDEX, ROLE_INDEX
from torchx.scheduling.failure_causes import BEFORE_PROGRAM
from torchx.scheduling.retry_rules import RetryRules, exit_codes_of
from torchx.services.rules import after_of
from torchx.settings import SERVICE
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.checks import has_services
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.schedulers.kubernetes import limits


def job_rules(cfg: RunOptions) -> list[Object]:
    """Returns the rules of a Job that ends a replica without another attempt, from exit codes and signals."""
    rules = RetryRules.of(cfg)
    never = [code for rule in rules.never for code in exit_codes_of([rule]) or ()]
    for code, (cause, _) in BEFORE_PROGRAM.items():
        if cfg.get(cause) and any(rule.replace("-", "_") == cause for rule in rules.never):
            never.append(code)
    only = exit_codes_of(rules.on)
    found = []
    for operator, codes in (("In", never), ("NotIn", only)):
        if codes:
            on = {"containerName": CONTAINER, "operator": operator, "values": sorted(set(codes))}
            found.append({"action": "FailIndex", "onExitCodes": on})
    return found


def needs_lines(cfg: RunOptions) -> bool:
    """Returns True if run options have rules that a Job cannot apply itself."""
    rules = RetryRules.of(cfg)
    never = rules.never if cfg.get("no_retry_on") is not None else ()
    return exit_codes_of(rules.on) is None or exit_codes_of(never) is None


QUEUE = "kueue.x-k8s.io/queue-name"
"""Label with the Kueue queue of an object."""
MANY = 2**31 - 1


def manifests(context: AppContext, names: list[str]) -> Iterator[Object]:
    """Yields the services, then the jobs.

    Args:
        context: the application.
        names: the names of its roles, see ``names.role_names``.
    """
    yield service(context, context.app_id, {APP_ID: context.app_id})
    yield rank0_service(context, f"{context.app_id}-{names[0]}-0")
    yield from _stable_services(context, names)
    for number, name in enumerate(names):
        role = context.app.roles[number]
        if context.gang and restarts_by_torchx(context.app, role, context.cfg):
            retries_at = ""
        else:
            retries_at = field_of(role)
        labels = {**context.role_labels(number), **queue_labels(context)}
        waits = after_of(role)
        metadata = context.metadata(f"{context.app_id}-{name}", labels)
        if waits:
            metadata.setdefault("annotations", {})[AWAITS] = ", ".join(waits)
        yield {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                **job_spec(context, number),
                **lifetime(context),
                **({"suspend": True} if waits else {}),
                "template": pod_template(context, number, retries_at=retries_at),
            },
        }


def job_spec(context: AppContext, number: int) -> Object:
    """Returns the specification of a role's Indexed Job: number of pods, and handling of failures."""
    role = context.app.roles[number]
    spec: Object = {
        "completionMode": "Indexed",
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
    }
    fail_fast = bool(context.cfg.get("fail_fast", True))
    if context.gang and restarts_by_torchx(context.app, role, context.cfg):
        # one attempt, which deletes no pod with its log when a replica fails
        return spec | {**retries(role, fail_fast=False), "backoffLimitPerIndex": 0}
    limits = retries(role, fail_fast=fail_fast)
    if role.max_retries:
        limits["podFailurePolicy"]["rules"] += job_rules(context.cfg)
    return spec | limits


DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
"""The condition of a disrupted pod: an eviction, a drain, a lost node."""


def retries(role: Role, fail_fast: bool) -> Object:
    """Returns how often a Job restarts a failed pod, and whether it then ends the others.

    The limit applies to each index: a Job with a single limit deletes the other pods, with their logs, at
    the first requested end. An eviction or a lost node uses up no retry.
    """
    return {
        # never reached before the limit of an index; used by clusters without such limits
        "backoffLimit": min((role.max_retries + 1) * role.num_replicas, MANY),
        "backoffLimitPerIndex": role.max_retries,
        **({"maxFailedIndexes": 0} if fail_fast else {}),
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [dict(DISRUPTED)]}]},
    }


def restarts_as_a_whole(role: Role) -> bool:
    """Returns True if the failure of a replica restarts others too."""
    return role.max_retries > 0 and role.retry_policy is not RetryPolicy.REPLICA


def restarts_by_torchx(app: AppDef, role: Role, cfg: RunOptions) -> bool:
    """Returns True if a Job cannot restart a role: others restart too, the cause decides, or a run ends.

    Args:
        app: the application.
        role: the role.
        cfg: run options.
    """
    if SERVICE in role.metadata:
        return True  # an end with exit code 0 is a failure, too
    is_single = role.num_replicas == 1 and role.max_retries
    if limits.by_torchx(cfg) or (is_single and needs_lines(cfg)):
        return True
    alone = len(app.roles) == 1
    if role.num_replicas == 1:  # a Job would count its retries from 0 after a restart of all roles
        restarts_all = [r for r in app.roles if r.max_retries and r.retry_policy is RetryPolicy.APPLICATION]
        return role.max_retries > 0 and not alone and bool(restarts_all)
    return restarts_as_a_whole(role)


def is_gang(app: AppDef, cfg: RunOptions) -> bool:
    """Returns True if an application has roles that torchx restarts as a whole, or an order of starts."""
    return has_services(app) or any(restarts_by_torchx(app, role, cfg) for role in app.roles)


def lifetime(context: AppContext) -> Object:
    """Returns the fields for the start of a job in a queue and for its removal."""
    ttl = context.cfg.get("ttl")
    return {
        **({"suspend": True} if context.cfg.get("queue") else {}),
        **({"ttlSecondsAfterFinished": ttl} if ttl is not None else {}),
    }


def queue_labels(context: AppContext) -> dict[str, str]:
    """Returns the label for Kueue."""
    queue = context.cfg.get("queue")
    if queue:
        return {QUEUE: str(queue)}
    return {}


def service(context: AppContext, name: str, selector: dict[str, str]) -> Object:
    """Returns a headless service, which names pods as soon as they have an address."""
    return headless(context.metadata(name, context.labels), selector)


def headless(metadata: Object, selector: dict[str, str]) -> Object:
    """Returns a service without an address of its own.

    Args:
        metadata: its metadata.
        selector: the labels of its pods.
    """
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _stable_services(context: AppContext, names: list[str]) -> Iterator[Object]:
    """Yields services for replicas that others reach in all attempts; replica 0 of the first role has one."""
    for number, (role, name) in enumerate(zip(context.app.roles, names, strict=True)):
        if is_stable(context.app, role, gang=context.gang):
            for replica in range(0 if number else 1, role.num_replicas):
                only = {ROLE_INDEX: str(number), JOB_COMPLETION_INDEX: str(replica)}
                host = f"{context.app_id}-{name}-{replica}"
                yield service(context, host, {APP_ID: context.app_id, **only})


def rank0_service(context: AppContext, host: str) -> Object:
    """Returns the service that makes rank 0 reachable under its own host name.

    torchrun on rank 0 opens the port only if the given host equals its own host name.
    """
    first = {APP_ID: context.app_id, ROLE_INDEX: "0", JOB_COMPLETION_INDEX: "0"}
    return service(context, host, first)
