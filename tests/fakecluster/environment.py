"""The environment and the commands of containers of the fake cluster."""

from __future__ import annotations

import re

from fakecluster.store import Object


def environment_of(pod: Object, container: Object, secrets: dict[str, Object]) -> dict[str, str]:
    """Returns the environment of a container, with fields of its pod and values of Secrets filled in."""
    found: dict[str, str] = {}
    number = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    for each in container.get("env") or []:
        if "secretKeyRef" in each.get("valueFrom", {}):
            reference = each["valueFrom"]["secretKeyRef"]
            found[each["name"]] = secrets[reference["name"]]["stringData"][reference["key"]]
        elif "valueFrom" in each:
            found[each["name"]] = field_of(pod, each["valueFrom"]["fieldRef"]["fieldPath"])
        else:
            found.setdefault("JOB_COMPLETION_INDEX", number)
            found[each["name"]] = expanded(str(each.get("value", "")), found)
    return {**found, "JOB_COMPLETION_INDEX": number, "HOSTNAME": pod["spec"]["hostname"]}


def field_of(pod: Object, path: str) -> str:
    """Returns a field of a pod; empty for a label or an annotation that it does not have."""
    match = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if match:
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    return str(pod["metadata"]["name"])


def command_of(probe: Object) -> list[str]:
    return list((probe.get("exec") or {}).get("command") or [])


def expanded(text: str, values: dict[str, str]) -> str:
    """Replaces ``$(NAME)`` as Kubernetes does; ``$$`` stands for a dollar sign."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return values.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", one, text)
