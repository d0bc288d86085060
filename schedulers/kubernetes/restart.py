"""Carries out a restart of a gang: ends the replaced attempts, and creates the jobs of the next ones.

Every step can be repeated, by any process: the jobs of an attempt have fixed names, so a second process finds
them, and a process that continues after a killed one does the rest. The new jobs are suspended until their
creator has checked that nothing was cancelled or deleted meanwhile; a cancellation or a deletion lists the
jobs again afterwards, so it wins against a restart.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence

from torchx import settings
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError, if_allowed
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    count_of,
    deleted,
    owns,
    parts_of,
    text_at,
    value_at,
)
from torchx.schedulers.kubernetes.cancel import close, end_jobs, has_running, now
from torchx.schedulers.kubernetes.facts import (
    BATCH,
    Facts,
    attempt_of,
    main_path,
    name_of,
    originals,
    owner_of,
    role_index,
    selector,
)
from torchx.schedulers.kubernetes.manifests.attempt_number import EARLIER, earlier_attempts
from torchx.schedulers.kubernetes.manifests.attempt_number import RETRIES as RETRY_NUMBER
from torchx.schedulers.kubernetes.manifests.job import MANY, QUEUE, headless
from torchx.schedulers.kubernetes.names import (
    APP_ID,
    ATTEMPT,
    AWAITS,
    CANCELLED,
    CLOSED,
    DEADLINE,
    DISRUPTED,
    HELD,
    JOB_COMPLETION_INDEX,
    OUTCOME,
    PREFIX,
    RESTARTED,
    RETRIES,
    ROLE_INDEX,
    STOPPED,
)
from torchx.schedulers.kubernetes.objects import gather
from torchx.schedulers.kubernetes.state.attempts import FAILURE_COUNT, is_over
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.restarts import Restart, due_restart, restart_from, run_of
from torchx.schedulers.kubernetes.state.services import awaits, before_of
from torchx.schedulers.kubernetes.submit import path_to
from torchx.specs.status import is_terminal

_JOB_FIELDS = (
    "completionMode",
    "completions",
    "parallelism",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "podFailurePolicy",
    "podReplacementPolicy",
    "activeDeadlineSeconds",
    "template",
)
"""The fields of a job that the next one has, too; the cluster sets the others."""
_OF_CLUSTER = ("batch.kubernetes.io/", "kubectl.kubernetes.io/")
_NOT_COPIED = (CANCELLED, STOPPED, HELD, RESTARTED, RETRIES, AWAITS, DEADLINE, OUTCOME)


def next_job(
    job: Object,
    restart: str,
    held_at: str,
    spec: Data,
    hosts: Mapping[str, str],
    run: int = 1,
    awaits: str = "",
    failures: int = 0,
) -> Object:
    """Returns the manifest of the job of the next attempt, which is suspended.

    Args:
        job: the job of the attempt before.
        restart: the annotation about the restart.
        held_at: the time for the annotation that it is incomplete.
        spec: further fields of its specification.
        hosts: the names of the jobs of the next attempts, by those of the attempts before.
        run: the number of the run.
        awaits: the roles that it starts after.
        failures: the maximum number of retries of a replica by the job before.
    """
    number = attempt_of(job) + 1
    metadata = job["metadata"]
    kept = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key not in _NOT_COPIED and not key.startswith((*_OF_CLUSTER, DISRUPTED))
    }
    fields = {key: copy.deepcopy(job["spec"][key]) for key in _JOB_FIELDS if key in job["spec"]}
    if fields.get("activeDeadlineSeconds") == CLOSED:
        own = count_of(annotation(job, DEADLINE))
        if own:
            fields["activeDeadlineSeconds"] = own
        else:
            del fields["activeDeadlineSeconds"]
    template = fields["template"]
    template["metadata"] = {
        **{key: value for key, value in template["metadata"].items() if key in ("labels", "annotations")},
        "labels": _next_labels(template["metadata"], number),
    }
    _update_containers(template["spec"], number, run, hosts, failures)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name_of(metadata["name"], number - 1, number),
            "namespace": metadata["namespace"],
            "labels": _next_labels(metadata, number),
            "annotations": {**kept, RETRIES: restart, HELD: held_at, **({AWAITS: awaits} if awaits else {})},
        },
        "spec": {**fields, **spec, "suspend": True},
    }


def _update_containers(spec: Data, number: int, run: int, hosts: Mapping[str, str], failures: int) -> None:
    """Gives the containers of a pod template the variables and the hosts of the next attempt."""
    domain = text_at(spec, "subdomain")
    for container in spec.get("containers") or []:
        container["env"] = [
            _variable(entry, number, run, hosts, domain) for entry in container.get("env") or []
        ]
        container["env"] = _with_earlier(container["env"], failures)
        if not container["env"]:
            del container["env"]
        if container.get("args"):
            container["args"] = [_renamed(str(arg), hosts, domain) for arg in container["args"]]


def rank0_service(job: Object, owners: list[Object]) -> Object:
    """Returns the service that makes rank 0 reachable under the host name of an attempt of the first role.

    Args:
        job: the manifest of the job of that attempt.
        owners: the jobs of the attempt before.
    """
    metadata = job["metadata"]
    common = {
        key: value
        for key, value in metadata["labels"].items()
        if key != ATTEMPT and not key.startswith(f"{PREFIX}role-")
    }
    first = {
        APP_ID: metadata["labels"][APP_ID],
        ROLE_INDEX: "0",
        JOB_COMPLETION_INDEX: "0",
        ATTEMPT: metadata["labels"][ATTEMPT],
    }
    own = {"name": f"{metadata['name']}-0", "namespace": metadata["namespace"]}
    return headless({**own, "labels": common, "ownerReferences": owners}, first)


def _next_labels(metadata: Data, number: int) -> dict[str, str]:
    labels = metadata.get("labels") or {}
    own = {
        key: value
        for key, value in labels.items()
        if not key.startswith(_OF_CLUSTER) and key not in ("controller-uid", "job-name")
    }
    return {**own, ATTEMPT: str(number)}


def _variable(entry: Data, number: int, run: int, hosts: Mapping[str, str], domain: str) -> Object:
    """Returns a variable of the next attempt: its number, that of the run, and the names of its hosts."""
    name, value = str(entry.get("name")), entry.get("value")
    counts = {settings.TORCHX_ATTEMPT: number, settings.TORCHX_RUN: run}
    if name in counts and value is not None:
        return {"name": name, "value": str(counts[name])}
    if not isinstance(value, str):
        return dict(entry)
    # other hosts without a domain have the same name in all attempts
    return {**entry, "value": _renamed(value, hosts, "" if name == settings.TORCHX_RANK0_HOST else domain)}


def _with_earlier(env: list[Object], failures: int) -> list[Object]:
    """Returns variables with the number of earlier attempts, if the job counts the retries."""
    if all(entry.get("name") != RETRY_NUMBER for entry in env):
        return env
    count = str(earlier_attempts(env) + failures + 1)
    others = [entry for entry in env if entry.get("name") != EARLIER]
    return [{"name": EARLIER, "value": count}, *others]


def _renamed(text: str, hosts: Mapping[str, str], domain: str) -> str:
    """Returns a text with the names of hosts in the next attempt.

    Args:
        text: the text.
        hosts: the names of the next jobs, by those of the jobs before.
        domain: the domain of the hosts; empty for host names alone.
    """
    if not hosts:
        return text
    names = "|".join(re.escape(host) for host in sorted(hosts, key=len, reverse=True))
    after = r"(?![\w-])"
    if domain:
        after = rf"\.{re.escape(domain)}(?![\w-])"
    return re.sub(rf"(?<![\w.-])({names})(?=-\d+{after})", lambda match: hosts[match[1]], text)


MOST_CONFLICTS = 5
"""Maximum number of starts in a row for which a job has changed since it was read, as by its controller."""
LONGEST_DELAY = 60.0
"""Maximum seconds before a restart; clocks that differ by more cause none."""


def carry_out(cluster: Cluster, facts: Facts, restart: Restart) -> bool:
    """Continues a restart as far as possible.

    Returns:
        False if something remains to be done later: replicas have not ended yet, or a pause is due.
    """
    if not _end_replaced(cluster, facts, restart):
        return False
    current = gather(cluster, facts.namespace, facts.name, events=False)
    left = None
    if current is not None:
        left = due_restart(current)
    if current is None or left is None or not left.marked:
        return current is None or left is None
    if not _have_ended(cluster, current, _replaced(current, left)):
        return False
    pause = left.at - cluster.clock.now()
    if 0.0 < pause <= LONGEST_DELAY:
        return False
    for manifest in _manifests(current, left, now(cluster)):
        _create(cluster, manifest)
    return any(_begin(cluster, current, left) for _ in range(MOST_CONFLICTS))


def _end_replaced(cluster: Cluster, facts: Facts, restart: Restart) -> bool:
    """Marks and ends the jobs that a restart replaces; returns False if this was done before, and pods run.

    The end of a pod is a change, so the next step needs no query until then.
    """
    replaced = _replaced(facts, restart)
    for main in replaced:
        if not annotation(main, RESTARTED):
            _mark(cluster, facts, main, restart)
    unended = [main for main in replaced if _is_unended(facts, main)]
    end_jobs(cluster, facts, unended, "")
    return bool(unended) or not any(_has_pods(facts, main) for main in replaced)


def complete_marks(cluster: Cluster, facts: Facts) -> None:
    """Marks restarts as done whose next attempts exist; a slow process may have marked them again."""
    for job in facts.earlier:
        found = restart_from(annotation(job, RESTARTED))
        if found is not None and not found[1]:
            cluster.patch(
                facts.path_of(job), {"metadata": {"annotations": {RESTARTED: found[0].text(done=True)}}}
            )


def _replaced(facts: Facts, restart: Restart) -> list[Object]:
    """Returns the jobs that a restart is still to replace, in the order of their roles."""
    return sorted(_attempts(facts.mains, restart, 0), key=_role)


def _attempts(jobs: Sequence[Object], restart: Restart, later: int) -> list[Object]:
    """Returns the jobs of the attempts that a restart replaces, or of those that follow.

    Args:
        jobs: all jobs of the application.
        restart: the restart.
        later: 0 for the replaced attempts, 1 for the next ones.
    """
    return [job for job in jobs if restart.attempts.get(_role(job)) == attempt_of(job) - later]


def _role(main: Object) -> int:
    number = role_index(main)
    if number is None:
        return -1
    return number


def _mark(cluster: Cluster, facts: Facts, main: Object, restart: Restart) -> None:
    """Records the restart in a job that it replaces; from now on the cluster deletes neither it nor pods."""
    change = {
        "metadata": {"annotations": {RESTARTED: restart.text()}},
        "spec": {"maxFailedIndexes": None, "backoffLimit": MANY, "ttlSecondsAfterFinished": None},
    }
    cluster.patch(facts.path_of(main), change)


def _is_unended(facts: Facts, main: Object) -> bool:
    """Returns True if the end of a job that is replaced was not requested, or not of all its pods."""
    is_open = not is_terminal(job_facts("job", main).state)
    return is_open and (not annotation(main, RESTARTED) or has_running(facts, main))


def _has_pods(facts: Facts, main: Object) -> bool:
    """Returns True if a pod of a job has not ended."""
    return any(owns(main, pod) and not is_over(pod) for pod in facts.pods)


def _have_ended(cluster: Cluster, facts: Facts, mains: list[Object]) -> bool:
    """Returns True if no pod of some jobs runs; closes jobs that would start another one."""
    for main in mains:
        if _has_pods(facts, main):
            return False
        if not is_terminal(job_facts("job", main).state) and not value_at(main, "spec", "suspend"):
            close(cluster, facts, main)
    return True


def _manifests(facts: Facts, restart: Restart, held_at: str) -> Iterator[Object]:
    """Yields the objects of the next attempts: services, then jobs."""
    replaced = _replaced(facts, restart)
    hosts = {}
    for main in replaced:
        name, attempt = main["metadata"]["name"], attempt_of(main)
        hosts[name] = name_of(name, attempt, attempt + 1)
    ttl = facts.cfg.get("ttl")
    more = {}
    if ttl is not None:
        more = {"ttlSecondsAfterFinished": ttl}
    run = run_of(restart.used)
    before = {number: ", ".join(before_of(role)) for number, role in enumerate(facts.roles)}
    made = [
        next_job(
            main,
            restart.text(),
            held_at,
            more,
            hosts,
            run,
            before.get(_role(main), ""),
            _failures(facts, main),
        )
        for main in replaced
    ]
    owners = [_owner(main) for main in replaced]
    yield from (rank0_service(job, owners) for job in made if _role(job) == 0)
    yield from made


def _failures(facts: Facts, main: Object) -> int:
    """Returns the maximum number of retries of a replica by its job."""
    counts = (count_of(annotation(pod, FAILURE_COUNT)) for pod in facts.pods if owns(main, pod))
    return max((count or 0 for count in counts), default=0)


def _create(cluster: Cluster, manifest: Object) -> None:
    """Creates an object, unless another process has."""
    try:
        cluster.create(path_to(manifest, name=False), manifest)
    except ClusterError as error:
        if error.reason != "AlreadyExists":
            raise


def _begin(cluster: Cluster, facts: Facts, restart: Restart) -> bool:
    """Starts the next attempts, unless the application was cancelled or deleted meanwhile.

    Returns:
        False if a job is missing, or has changed since the check: an end may have come first.
    """
    jobs = originals(cluster.items(main_path("job", facts.namespace), selector(facts.name)))
    before, following = _attempts(jobs, restart, 0), _attempts(jobs, restart, 1)
    if len(before) < len(restart.attempts) or any(deleted(job) for job in before):
        for job in following:
            cluster.delete(facts.path_of(job))
        return True
    cancelled = next(filter(None, (annotation(job, CANCELLED) for job in jobs)), "")
    if cancelled:
        for job in following:
            if annotation(job, HELD):
                change = {"metadata": {"annotations": {CANCELLED: cancelled, HELD: None}}}
                cluster.patch(facts.path_of(job), change)
        return True
    if len(following) < len(restart.attempts):
        return False
    if not all(_is_done(job) for job in before):
        _take_over(cluster, facts, restart, before, jobs)
    return all(_start(cluster, facts, job) for job in following if annotation(job, HELD))


def _start(cluster: Cluster, facts: Facts, job: Object) -> bool:
    """Starts a job, unless it has changed since it was read."""
    queued = bool(value_at(job["metadata"], "labels", QUEUE))
    if queued or awaits(job):
        start = {}
    else:
        start = {"spec": {"suspend": False}}
    change = {**start, "metadata": {"annotations": {HELD: None}}}
    return cluster.patch_unchanged(facts.path_of(job), job, change)


def _is_done(job: Object) -> bool:
    """Returns True if the restart that replaces a job is marked as done."""
    found = restart_from(annotation(job, RESTARTED))
    return found is not None and found[1]


def _take_over(
    cluster: Cluster, facts: Facts, restart: Restart, before: list[Object], jobs: list[Object]
) -> None:
    """Makes the newest jobs the owners of all other objects, which are deleted with the last of them."""
    newest = [
        job
        for job in jobs
        if not any(_role(other) == _role(job) and attempt_of(other) > attempt_of(job) for other in jobs)
    ]
    owners = [_owner(job) for job in newest]
    for resource in ("services", "configmaps", "secrets"):
        path = path_of("v1", resource, facts.namespace)
        with if_allowed():
            for each in parts_of(jobs, cluster.items(path, selector(facts.name))):
                change = {"metadata": {"ownerReferences": owners}}
                cluster.patch(f"{path}/{each['metadata']['name']}", change)
    for job in before:  # last, as a restart that is done is not repeated
        own = [_owner(each) for each in newest if _role(each) == _role(job)]
        done = {RESTARTED: restart.text(done=True)}
        cluster.patch(facts.path_of(job), {"metadata": {"annotations": done, "ownerReferences": own}})


def _owner(job: Object) -> Object:
    return owner_of(BATCH, "Job", job)
