"""The objects of the next attempt of a role, made from the job of the attempt before it; pure functions."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping

from torchx import settings
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import Object, annotation, count_of, text_at
from torchx.schedulers.kubernetes.gang.attempts import attempt_of, name_of
from torchx.schedulers.kubernetes.manifests.attempt_number import EARLIER, earlier_attempts
from torchx.schedulers.kubernetes.manifests.attempt_number import RETRIES as RETRY_NUMBER
from torchx.schedulers.kubernetes.names import (
    APP_ID,
    ATTEMPT,
    AWAITS,
    DEADLINE,
    DISRUPTED,
    JOB_COMPLETION_INDEX,
    OUTCOME,
    PREFIX,
    RESTARTED,
    RETRIES,
    ROLE_INDEX,
)
from torchx.schedulers.kubernetes.objects import CANCELLED, CLOSED, HELD, STOPPED

_FIELDS = (
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
    fields = {key: copy.deepcopy(job["spec"][key]) for key in _FIELDS if key in job["spec"]}
    if fields.get("activeDeadlineSeconds") == CLOSED:
        own = count_of(annotation(job, DEADLINE))
        if own:
            fields["activeDeadlineSeconds"] = own
        else:
            del fields["activeDeadlineSeconds"]
    template = fields["template"]
    template["metadata"] = {
        **{key: value for key, value in template["metadata"].items() if key in ("labels", "annotations")},
        "labels": _labels(template["metadata"], number),
    }
    _update_containers(template["spec"], number, run, hosts, failures)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name_of(metadata["name"], number - 1, number),
            "namespace": metadata["namespace"],
            "labels": _labels(metadata, number),
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
    common = {key: value for key, value in metadata["labels"].items() if not _is_of_role(key)}
    first = {
        APP_ID: metadata["labels"][APP_ID],
        ROLE_INDEX: "0",
        JOB_COMPLETION_INDEX: "0",
        ATTEMPT: metadata["labels"][ATTEMPT],
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{metadata['name']}-0",
            "namespace": metadata["namespace"],
            "labels": common,
            "ownerReferences": owners,
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": first},
    }


def _is_of_role(key: str) -> bool:
    return key == ATTEMPT or key.startswith(f"{PREFIX}role-")


def _labels(metadata: Data, number: int) -> dict[str, str]:
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
