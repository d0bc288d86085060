"""Run options of the scheduler ``kubernetes``: definitions, validation and parsing."""

from __future__ import annotations

import re

from torchx.errors import RunOptionError
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.shared.options import (
    CLUSTER,
    add_shared,
    check_choices,
    check_shared,
)
from torchx.specs.run_options import CfgVal, RunOptions, runopts

with lazy_imports:
    from torchx.schedulers.kubernetes import limits, names


AUTO, JOB, JOBSET, VOLCANO = "auto", "job", "jobset", "volcano"
CHOICES = {
    "kind": (AUTO, JOB, JOBSET, VOLCANO),
    "image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "workspace_type": ("auto", "image", "configmap"),
}
LARGEST = 2**31 - 1
"""The largest number in most fields of a cluster's objects."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def run_options() -> runopts:
    """Returns the run options."""
    opts = runopts()
    opts.add(
        "kind", str, "kind of object: job, jobset or volcano; auto: the best that the cluster supports", AUTO
    )
    opts.add("queue", str, "queue of Kueue or Volcano; required for Volcano")
    opts.add("namespace", str, "namespace on the cluster", "default")
    opts.add("context", str, "context of the kubeconfig (default: the current one)")
    opts.add("kubeconfig", str, "path of the kubeconfig (default: $KUBECONFIG or ~/.kube/config)")
    opts.add("service_account", str, "service account of the pods")
    opts.add("priority_class", str, "priority class of the pods")
    opts.add("node_selector", dict[str, str], "run only on nodes with these labels: key:value,key:value")
    opts.add("tolerations", list[str], "tolerated taints: key, key:Effect or key:value:Effect; * for all")
    opts.add("labels", dict[str, str], "add labels to all objects: key:value,key:value")
    opts.add("annotations", dict[str, str], "add annotations to all objects: key:value")
    opts.add("image_pull_policy", str, "when nodes pull the image: Always, IfNotPresent or Never")
    opts.add("image_pull_secrets", list[str], "pull images with these secrets of the namespace")
    opts.add(
        "workspace_type",
        str,
        "send workspaces by: image, configmap (up to 900 KB), or auto: image with image_repo",
        "auto",
    )
    opts.add("validate_spec", bool, "have the cluster validate all objects before creating any", True)
    opts.add("reserved_millicpu", int, "request this much less CPU than the limit", 100)
    opts.add("reserved_memmb", int, "request this much less memory than the limit", 1024)
    opts.add("efa_device_count", int, "EFA devices of each replica, overriding its resource; 0 for none")
    opts.add("grace_period", float, "seconds between TERM and KILL", 30.0)
    add_shared(opts, "retry_backoff", "image_repo", *CLUSTER)
    opts.add("ttl", int, "remove the job this many seconds after its end (default: keep it)")
    return opts


def check_options(cfg: RunOptions) -> None:
    """Validates the values of options.

    Raises:
        UsageError: a value is invalid.
    """
    check_choices("kubernetes", cfg, CHOICES)
    check_shared("kubernetes", cfg, LARGEST)
    for option in ("retry_on", "no_retry_on"):
        if cfg.get(option) is not None and cfg.get("kind") in (JOBSET, VOLCANO):
            raise RunOptionError(
                option,
                f"does not work with kind={cfg['kind']}, which does not retry by cause",
                hint="without it, torchx does: -cfg kind=job",
            )
    limits.check_limits(cfg)
    for option in ("namespace", "service_account", "priority_class"):
        _require_dns_name(option, cfg.get(option))
    for secret in strings(cfg, "image_pull_secrets"):
        _require_dns_name("image_pull_secrets", secret)
    for option in ("labels", "annotations", "node_selector"):
        names.check_labels(pairs(cfg, option), option)
    if cfg.get("kind") == VOLCANO and not cfg.get("queue"):
        raise RunOptionError(
            "kind",
            "is volcano, which needs a queue, and run option `queue` is not set",
            hint="e.g. -cfg kind=volcano,queue=default   without Volcano: -cfg kind=job",
        )
    if cfg.get("queue"):
        names.check_labels({"queue": str(cfg["queue"])}, "queue")
    tolerations(cfg)


def strings(cfg: RunOptions, option: str) -> list[str]:
    """Returns the value of a list option; default: empty."""
    value = cfg.get(option)
    if isinstance(value, list):
        return list(value)
    return []


def pairs(cfg: RunOptions, option: str) -> dict[str, str]:
    """Returns the value of a mapping option; default: empty."""
    value = cfg.get(option)
    if isinstance(value, dict):
        return dict(value)
    return {}


def number(cfg: RunOptions, option: str, otherwise: int) -> int:
    """Returns the value of a numeric option, rounded up."""
    value = cfg.get(option)
    if isinstance(value, (int, float)):
        return -int(-value // 1)
    return otherwise


def tolerations(cfg: RunOptions) -> list[Object]:
    """Returns the tolerations of the pods.

    Raises:
        UsageError: one is invalid.

    >>> tolerations({"tolerations": ["gpu", "team:a:NoSchedule"]})[0]
    {'key': 'gpu', 'operator': 'Exists'}
    >>> tolerations({"tolerations": ["gpu", "team:a:NoSchedule"]})[1]
    {'key': 'team', 'operator': 'Equal', 'value': 'a', 'effect': 'NoSchedule'}
    """
    return [_toleration(text) for text in strings(cfg, "tolerations")]


def _toleration(text: str) -> Object:
    parts = re.split("[:=]", text)
    effect = None
    if len(parts) > 1 and parts[-1] in _EFFECTS:
        effect = parts.pop()
    if not parts[0] or len(parts) > (1 if parts[0] == "*" else 2):
        raise RunOptionError(
            "tolerations",
            f"of kubernetes has `{text}`, which is not a taint",
            hint="e.g. nvidia.com/gpu, spot:NoSchedule or team:a:NoSchedule",
        )
    if parts[0] == "*":
        toleration: Object = {}
    else:
        toleration = {"key": parts[0]}
    if len(parts) > 1:
        toleration |= {"operator": "Equal", "value": parts[1]}
    else:
        toleration |= {"operator": "Exists"}
    return toleration | ({"effect": effect} if effect else {})


def _require_dns_name(option: str, value: CfgVal) -> None:
    if value is not None and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", str(value)):
        raise RunOptionError(
            option,
            f"of kubernetes is `{value}`, which is not a valid Kubernetes name",
            hint="names have lowercase letters, digits and dashes",
        )
