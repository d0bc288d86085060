"""Run options of the scheduler ``kubernetes``: definitions, validation and parsing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchx.errors import UsageError
from torchx.specs.run_options import CfgVal, runopts
from torchx.suggestions import did_you_mean

AUTO, JOB, JOBSET, VOLCANO = "auto", "job", "jobset", "volcano"
KINDS = (AUTO, JOB, JOBSET, VOLCANO)
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
WORKSPACE_TYPES = ("auto", "image", "configmap")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def run_opts() -> runopts:
    """Returns the run options."""
    opts = runopts()
    opts.add(
        "kind",
        type_=str,
        default=AUTO,
        help="kind of object: job, jobset or volcano; auto: the best that the cluster supports",
    )
    opts.add("queue", type_=str, help="queue of Kueue or Volcano; required for Volcano")
    opts.add("namespace", type_=str, default="default", help="namespace on the cluster")
    opts.add("context", type_=str, help="context of the kubeconfig (default: the current one)")
    opts.add("kubeconfig", type_=str, help="path of the kubeconfig (default: $KUBECONFIG or ~/.kube/config)")
    opts.add("service_account", type_=str, help="service account of the pods")
    opts.add("priority_class", type_=str, help="priority class of the pods")
    opts.add("node_selector", type_=dict[str, str], help="required labels of nodes, as key:value,key:value")
    opts.add(
        "tolerations",
        type_=list[str],
        help="tolerated taints: key, key:Effect or key:value:Effect; * for all",
    )
    opts.add("labels", type_=dict[str, str], help="additional labels of all objects, as key:value,key:value")
    opts.add("annotations", type_=dict[str, str], help="additional annotations of all objects, as key:value")
    opts.add("image_pull_policy", type_=str, help="when nodes pull the image: Always, IfNotPresent or Never")
    opts.add("image_pull_secrets", type_=list[str], help="secrets of the namespace for pulling images")
    opts.add("image_repo", type_=str, help="registry repository to push images with a workspace to")
    opts.add("quiet", type_=bool, default=False, help="show no progress of builds and pushes")
    opts.add(
        "workspace_type",
        type_=str,
        default="auto",
        help="transport of workspaces: image, configmap (up to 900 KB), or auto: image with image_repo",
    )
    opts.add("workspace_limit_mb", type_=int, default=1024, help="refuse a workspace of more MB than this")
    opts.add(
        "validate_spec",
        type_=bool,
        default=True,
        help="have the cluster validate all objects before creating any",
    )
    opts.add("reserved_millicpu", type_=int, default=100, help="CPU by which requests are below limits")
    opts.add("reserved_memmb", type_=int, default=1024, help="memory by which requests are below limits")
    opts.add(
        "efa_device_count",
        type_=int,
        help="EFA devices of each replica, instead of those of its resource; 0 for none",
    )
    opts.add("grace_period", type_=float, default=30.0, help="seconds between TERM and KILL")
    opts.add(
        "fail_fast",
        type_=bool,
        default=True,
        help="end all replicas when one has failed and has no retries left",
    )
    opts.add(
        "ttl", type_=int, help="seconds from the end until the cluster removes the job (default: it is kept)"
    )
    return opts


def check_options(cfg: Mapping[str, CfgVal]) -> None:
    """Validates the values of options.

    Raises:
        UsageError: a value is invalid.
    """
    from torchx.schedulers.kubernetes.manifests.names import check_labels

    for option, known in (
        ("kind", KINDS),
        ("image_pull_policy", PULL_POLICIES),
        ("workspace_type", WORKSPACE_TYPES),
    ):
        value = cfg.get(option)
        if value is not None and value not in known:
            raise UsageError(
                f"run option `{option}` of kubernetes is one of {', '.join(known)}, got `{value}`",
                hint=did_you_mean(str(value), known),
            )
    for option in ("reserved_millicpu", "reserved_memmb", "efa_device_count", "grace_period", "ttl"):
        value = cfg.get(option)
        if isinstance(value, (int, float)) and not 0 <= value < 2**31:
            raise UsageError(
                f"run option `{option}` of kubernetes is {value}, expected a number from 0 to {2**31 - 1}"
            )
    for option in ("namespace", "service_account", "priority_class"):
        _require_dns_name(option, cfg.get(option))
    for secret in strings(cfg, "image_pull_secrets"):
        _require_dns_name("image_pull_secrets", secret)
    for option in ("labels", "annotations", "node_selector"):
        check_labels(pairs(cfg, option), option)
    if cfg.get("kind") == VOLCANO and not cfg.get("queue"):
        raise UsageError(
            "Volcano needs a queue, and run option `queue` is not set",
            hint="e.g. -cfg kind=volcano,queue=default   without Volcano: -cfg kind=job",
        )
    if cfg.get("queue"):
        check_labels({"queue": str(cfg["queue"])}, "queue")
    tolerations(cfg)


def strings(cfg: Mapping[str, CfgVal], option: str) -> list[str]:
    """Returns the value of a list option; default: empty."""
    value = cfg.get(option)
    return list(value) if isinstance(value, list) else []


def pairs(cfg: Mapping[str, CfgVal], option: str) -> dict[str, str]:
    """Returns the value of a mapping option; default: empty."""
    value = cfg.get(option)
    return dict(value) if isinstance(value, dict) else {}


def number(cfg: Mapping[str, CfgVal], option: str, otherwise: int) -> int:
    """Returns the value of a numeric option, rounded up."""
    value = cfg.get(option)
    return -int(-value // 1) if isinstance(value, (int, float)) else otherwise


def tolerations(cfg: Mapping[str, CfgVal]) -> list[dict[str, Any]]:
    """Returns the tolerations of the pods.

    Raises:
        UsageError: one is invalid.

    >>> tolerations({"tolerations": ["gpu", "team:a:NoSchedule"]})[0]
    {'key': 'gpu', 'operator': 'Exists'}
    >>> tolerations({"tolerations": ["gpu", "team:a:NoSchedule"]})[1]
    {'key': 'team', 'operator': 'Equal', 'value': 'a', 'effect': 'NoSchedule'}
    """
    return [_toleration(text) for text in strings(cfg, "tolerations")]


def _toleration(text: str) -> dict[str, Any]:
    parts = re.split("[:=]", text)
    effect = parts.pop() if len(parts) > 1 and parts[-1] in _EFFECTS else None
    if not parts[0] or len(parts) > (1 if parts[0] == "*" else 2):
        raise UsageError(
            f"run option `tolerations` of kubernetes has `{text}`, which is not a taint",
            hint="e.g. nvidia.com/gpu, spot:NoSchedule or team:a:NoSchedule",
        )
    toleration: dict[str, Any] = {} if parts[0] == "*" else {"key": parts[0]}
    toleration |= {"operator": "Equal", "value": parts[1]} if len(parts) > 1 else {"operator": "Exists"}
    return toleration | ({"effect": effect} if effect else {})


def _require_dns_name(option: str, value: CfgVal) -> None:
    if value is not None and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", str(value)):
        raise UsageError(
            f"run option `{option}` of kubernetes is `{value}`, which is not a valid Kubernetes name",
            hint="names have lowercase letters, digits and dashes",
        )
