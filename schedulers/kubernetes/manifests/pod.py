"""The pods of a role: one template for all of its replicas, or one for a single replica."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx import settings
from torchx.errors import UsageError
from torchx.machine.ports import port_variable
from torchx.schedulers.kubernetes import options
from torchx.schedulers.kubernetes.manifests import attempt_number as attempts
from torchx.schedulers.kubernetes.manifests.escaping import INDEX_VARIABLE, MacroFiller, escaped
from torchx.schedulers.kubernetes.manifests.names import (
    APP_ID,
    APP_NAME,
    CONTAINER,
    JOB_COMPLETION_INDEX,
    PREFIX,
    REPLICA_ID,
    ROLE_INDEX,
    ROLE_NAME,
    VERSION,
    label_value,
    slug,
)
from torchx.schedulers.kubernetes.manifests.volumes import volumes_of
from torchx.schedulers.kubernetes.manifests.workspace import FOLDER, add_to
from torchx.specs.app import AppDef, Role
from torchx.specs.named_resources_aws import EFA_DEVICE, K8S_ITYPE
from torchx.specs.run_options import CfgVal
from torchx.version import __version__

GPU = "nvidia.com/gpu"
FIELD_PATH = "[FIELD_PATH]"
"""A value of the environment that begins so names a field of the pod, such as ``status.podIP``."""
NO_SIDECAR = "sidecar.istio.io/inject"
"""Label and annotation: a sidecar that never ends would keep the job from ending."""


@dataclass(frozen=True)
class AppContext:
    """What a pod has to know of the application that it belongs to.

    Attributes:
        app: the application.
        app_id: its id, without the namespace.
        cfg: run options.
        rank0: the host of replica 0 of the first role, as every pod finds it.
        subdomain: the name of the service that gives pods their names; empty where the cluster sees to it.
        workspaces: the ConfigMap that holds the workspace of a role, by the role's number.
    """

    app: AppDef
    app_id: str
    cfg: Mapping[str, CfgVal]
    rank0: str
    subdomain: str = ""
    workspaces: Mapping[int, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The namespace."""
        return str(self.cfg.get("namespace") or "default")

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects of the application."""
        name = label_value(self.app.name)
        # by which the tools of others group what belongs together
        known = {"name": name, "instance": self.app_id, "managed-by": PREFIX.rstrip("/")}
        common = {f"app.kubernetes.io/{key}": value for key, value in known.items()}
        own = {APP_ID: self.app_id, APP_NAME: name, VERSION: label_value(__version__)}
        return {**common, **options.pairs(self.cfg, "labels"), **own}

    def role_labels(self, number: int) -> dict[str, str]:
        """Returns the labels of what belongs to one role."""
        name = label_value(self.app.roles[number].name)
        return {**self.labels, ROLE_NAME: name, ROLE_INDEX: str(number)}

    def metadata(self, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """Returns the metadata of an object."""
        annotations = options.pairs(self.cfg, "annotations")
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": dict(labels),
            **({"annotations": annotations} if annotations else {}),
        }


def pod_template(
    context: AppContext, number: int, replica: int | None = None, retries_at: str | None = ""
) -> dict[str, Any]:
    """Returns the template of a role's pods.

    Args:
        context: the application.
        number: which role, from 0.
        replica: for this replica alone; None for all, which find out their number when they start.
        retries_at: the field of a pod in which the cluster counts its retries; empty where there are none,
            None where there are some and no field shows them.

    Raises:
        UsageError: the role asks for what no pod can have.
    """
    role, cfg = context.app.roles[number], context.cfg
    volumes = volumes_of(role)
    packed = context.workspaces.get(number)
    filler = MacroFiller(f"{context.namespace}:{context.app_id}", replica, FOLDER if packed else "")
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": role.image,
        # the role says what runs: an entrypoint of the image does not count
        "command": [escaped(_text(role, role.entrypoint))],
        "args": [
            *attempts.arguments(escaped(role.entrypoint), retries_at),
            *(filler.fill(_text(role, arg)) for arg in role.args),
        ],
        "env": _env(context, number, filler, replica, retries_at),
        "resources": resources_of(role, cfg),
        "volumeMounts": volumes.mounts,
        # the end of the log is kept with the pod's state
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if cfg.get("image_pull_policy"):
        container["imagePullPolicy"] = cfg["image_pull_policy"]
    if role.port_map:
        container["ports"] = _ports(role)
    if volumes.privileged:
        container["securityContext"] = {"privileged": True}
    labels = {**context.role_labels(number), NO_SIDECAR: "false"}
    if replica is not None:
        labels[REPLICA_ID] = str(replica)
    spec = {
        "restartPolicy": "Never",
        **({"subdomain": context.subdomain} if context.subdomain else {}),
        "terminationGracePeriodSeconds": options.number(cfg, "grace_period", 30),
        **_where(role, cfg),
        "containers": [container],
        "volumes": volumes.volumes,
    }
    if packed:
        add_to(spec, packed)
    annotations = {NO_SIDECAR: "false", **options.pairs(cfg, "annotations")}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def share_processes(spec: dict[str, Any]) -> None:
    """Gives the processes of a pod a namespace whose process 1 is not the program; in context.

    The kernel drops the signals that process 1 has no handler for: such a program would not end on TERM, nor
    by a signal of its own, as by abort(). Where a pod has further containers they could see and trace each
    other's processes, so these keep namespaces of their own unless an overlay says otherwise.

    Args:
        spec: the specification of the pod, with its overlays.
    """
    if not is_shared_by_others(spec):
        spec.setdefault("shareProcessNamespace", True)


def is_shared_by_others(spec: Mapping[str, Any]) -> bool:
    """Returns True if other containers run beside the program: further ones, or sidecars that start first."""
    started = [each for each in spec.get("initContainers") or () if isinstance(each, dict)]
    sidecars = any(each.get("restartPolicy") == "Always" for each in started)
    return sidecars or len(spec.get("containers") or ()) > 1


def resources_of(role: Role, cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    """Returns what a container is promised, and what it may use at most.

    A node keeps some of its CPU and memory for itself. So a replica that is given a whole node asks for
    somewhat less than that; one that is small asks for half of its limit at least.
    """
    resource = role.resource
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    if resource.cpu > 0:
        cpu = max(1, int(resource.cpu * 1000))
        limits["cpu"], requests["cpu"] = f"{cpu}m", f"{_request(cpu, cfg, 'reserved_millicpu', 100)}m"
    if resource.memMB > 0:
        memory = int(resource.memMB)
        limits["memory"] = f"{memory}Mi"
        requests["memory"] = f"{_request(memory, cfg, 'reserved_memmb', 1024)}Mi"
    devices = {GPU: int(resource.gpu)} if resource.gpu > 0 else {}
    # what has no domain before its name is no device that a cluster hands out
    devices |= {name: count for name, count in resource.devices.items() if "/" in name}
    if cfg.get("efa_device_count") is not None:
        devices[EFA_DEVICE] = options.number(cfg, "efa_device_count", 0)
    given = {name: str(count) for name, count in devices.items() if count > 0}
    resources = {"limits": {**limits, **given}, "requests": {**requests, **given}}
    return {name: amounts for name, amounts in resources.items() if amounts}


def _request(limit: int, cfg: Mapping[str, CfgVal], option: str, otherwise: int) -> int:
    return max(limit - options.number(cfg, option, otherwise), (limit + 1) // 2)


def _env(
    context: AppContext, number: int, filler: MacroFiller, replica: int | None, retries_at: str | None
) -> list[dict[str, Any]]:
    """The variables of a container; one that is named in the value of another stands before it."""
    role = context.app.roles[number]
    first: list[dict[str, Any]] = []
    if replica is None:
        path = f"metadata.annotations['{JOB_COMPLETION_INDEX}']"
        first.append({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    ports = {port_variable(name): str(port) for name, port in role.port_map.items()}
    own = {
        settings.TORCHX_RANK0_HOST: context.rank0,
        settings.TORCHX_IMAGE: escaped(role.image),
        settings.TORCHX_REPLICA: f"{escaped(_text(role, role.name))}/{filler.index}",
    }
    written = {name: _variable(role, name, value, filler) for name, value in role.env.items()}
    plain = {name: {"name": name, "value": value} for name, value in (ports | own).items()}
    counted = attempts.variables(retries_at)
    # as on other engines: a role may set a port, and nothing else that is the scheduler's
    chosen = {**plain, **written, **{name: plain[name] for name in own}, **counted}
    return first + [entry for name, entry in chosen.items() if name != INDEX_VARIABLE or replica is not None]


def _variable(role: Role, name: str, value: str, filler: MacroFiller) -> dict[str, Any]:
    if not re.fullmatch(r"[ -<>-~]+", name):
        raise UsageError(
            f"role `{role.name}` sets the environment variable {name!r}, a name that no cluster takes"
        )
    if value.startswith(FIELD_PATH):
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": value.removeprefix(FIELD_PATH)}}}
    return {"name": name, "value": filler.fill(_text(role, value))}


def _text(role: Role, text: str) -> str:
    if "\0" in text or text != text.encode("utf-8", "ignore").decode():
        raise UsageError(
            f"role `{role.name}` has {text!r} among its words, which is no text that a cluster takes"
        )
    return text


def _ports(role: Role) -> list[dict[str, Any]]:
    ports: list[dict[str, Any]] = []
    taken: set[str] = set()
    for name, port in role.port_map.items():
        if not 0 < port < 65536:
            raise UsageError(f"role `{role.name}` has the port {port} (`{name}`), expected 1 to 65535")
        short = slug(name)[:15].strip("-")
        named = short and short not in taken and "--" not in short and re.search("[a-z]", short)
        taken.add(short)
        if port not in [entry["containerPort"] for entry in ports]:
            ports.append({"containerPort": port, **({"name": short} if named else {})})
    return ports


def _where(role: Role, cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    """Which nodes the pods may run on, and in whose name."""
    selector: dict[str, str] = {}
    instance = role.resource.capabilities.get(K8S_ITYPE)
    if instance:
        selector[K8S_ITYPE] = str(instance)
    spec: dict[str, Any] = {
        "nodeSelector": {**selector, **options.pairs(cfg, "node_selector")},
        "tolerations": options.tolerations(cfg),
        "serviceAccountName": cfg.get("service_account"),
        "priorityClassName": cfg.get("priority_class"),
        "imagePullSecrets": [{"name": name} for name in options.strings(cfg, "image_pull_secrets")],
    }
    return {name: value for name, value in spec.items() if value}
