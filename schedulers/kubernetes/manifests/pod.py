"""Templates of pods: for all replicas of a role, or for a single one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchx import settings
from torchx.errors import UsageError
from torchx.json_limits import Data, without_empty
from torchx.json_shape import items_at
from torchx.machine.ports import port_variable
from torchx.masking import SecretValue
from torchx.schedulers.kubernetes import options
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.limits import container_limits, pod_annotations, pod_limits, variables
from torchx.schedulers.kubernetes.manifests import attempt_number as attempts
from torchx.schedulers.kubernetes.manifests.escaping import INDEX_VARIABLE, MacroFiller, escaped
from torchx.schedulers.kubernetes.manifests.hosts import address_variables
from torchx.schedulers.kubernetes.manifests.secrets import secret_variable
from torchx.schedulers.kubernetes.manifests.volumes import volumes_of
from torchx.schedulers.kubernetes.manifests.workspace import FOLDER, add_to
from torchx.schedulers.kubernetes.names import (
    APP_ID,
    APP_NAME,
    ATTEMPT,
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
from torchx.scheduling.base import replica_variables
from torchx.scheduling.checks import is_utf8
from torchx.scheduling.preflight import with_checks
from torchx.services.probe import CMD, HTTP, TCP, ServiceRule
from torchx.settings import SERVICE
from torchx.specs.app import AppDef, Role
from torchx.specs.named_resources_aws import EFA_DEVICE, K8S_ITYPE
from torchx.specs.run_options import RunOptions
from torchx.version import __version__

GPU = "nvidia.com/gpu"
FIELD_PATH = "[FIELD_PATH]"
"""Prefix of a value of the environment that names a field of the pod, such as ``status.podIP``."""
NO_SIDECAR = "sidecar.istio.io/inject"
"""Label and annotation that disable Istio's sidecar, which would keep the job from ending."""


@dataclass(frozen=True)
class AppContext:
    """The application of a pod.

    Attributes:
        app: the application.
        app_id: its id, without the namespace.
        cfg: run options.
        rank0: the host of replica 0 of the first role, as seen by every pod.
        subdomain: the name of the service that names the pods; empty if the cluster creates it.
        workspaces: the name of the ConfigMap with a role's workspace, by the role's number.
        gang: each attempt of a role is a job of its own, which torchx creates.
        hosts: the hosts of each role, separated by commas.
        many: each index of the Job is an application of its own, with one replica.
    """

    app: AppDef
    app_id: str
    cfg: RunOptions
    rank0: str
    subdomain: str = ""
    workspaces: Mapping[int, str] = field(default_factory=dict)
    gang: bool = False
    hosts: Mapping[str, str] = field(default_factory=dict)
    many: bool = False

    @property
    def namespace(self) -> str:
        """The namespace."""
        return str(self.cfg.get("namespace") or "default")

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all objects of the application."""
        name = label_value(self.app.name)
        # the recommended labels, which other tools group by
        known = {"name": name, "instance": self.app_id, "managed-by": PREFIX.rstrip("/")}
        common = {f"app.kubernetes.io/{key}": value for key, value in known.items()}
        own = {APP_ID: self.app_id, APP_NAME: name, VERSION: label_value(__version__)}
        return {**common, **options.pairs(self.cfg, "labels"), **own}

    def role_labels(self, number: int) -> dict[str, str]:
        """Returns the labels of a role's objects."""
        name = label_value(self.app.roles[number].name)
        attempt = {ATTEMPT: "1"} if self.gang else {}
        return {**self.labels, ROLE_NAME: name, ROLE_INDEX: str(number), **attempt}

    def metadata(self, name: str, labels: Mapping[str, str]) -> Object:
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
) -> Object:
    """Returns the template of a role's pods.

    Args:
        context: the application.
        number: the role number, from 0.
        replica: the only replica of the template; None for all replicas.
        retries_at: the pod field with the number of retries; empty without retries, None if no field has it.

    Raises:
        UsageError: the role is invalid for a pod.
    """
    role, cfg = context.app.roles[number], context.cfg
    volumes = volumes_of(role)
    packed = context.workspaces.get(number)
    known = 0 if context.many else replica
    root = FOLDER if packed else ""
    app_id = f"{context.namespace}:{context.app_id}"
    filler = MacroFiller(app_id, known, root, context.hosts, run=context.many)
    entrypoint, *args = with_checks([role.entrypoint, *role.args], role, cfg)
    container: Object = {
        "name": CONTAINER,
        "image": role.image,
        # replaces the entrypoint of the image
        "command": [escaped(checked_text(role, entrypoint))],
        "args": [
            *attempts.arguments(escaped(entrypoint), retries_at, limited=cfg.get("time_limit") is not None),
            *(filler.fill(checked_text(role, arg)) for arg in args),
        ],
        "env": _env(context, number, filler, replica, retries_at),
        "resources": resources_of(role, cfg),
        "volumeMounts": volumes.mounts,
        # the last lines of the log become part of the pod's status
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **container_limits(cfg),
    }
    if cfg.get("image_pull_policy"):
        container["imagePullPolicy"] = cfg["image_pull_policy"]
    container |= readiness_probe(role, filler)
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
        **pod_limits(cfg, options.number(cfg, "grace_period", 30)),
        **_where(role, cfg),
        "containers": [container],
        "volumes": volumes.volumes,
    }
    if packed:
        add_to(spec, packed)
    notes = {NO_SIDECAR: "false", **pod_annotations(cfg), **options.pairs(cfg, "annotations")}
    return {"metadata": {"labels": labels, "annotations": notes}, "spec": spec}


def share_processes(spec: Object) -> None:
    """Enables a shared process namespace, in place, so that the program is not process 1.

    The kernel drops signals without a handler in process 1: such a program would not end on TERM or abort().
    With further containers, which could trace each other's processes, only an overlay enables sharing.

    Args:
        spec: the specification of the pod, with its overlays.
    """
    if not is_shared_by_others(spec):
        spec.setdefault("shareProcessNamespace", True)


def is_shared_by_others(spec: Data) -> bool:
    """Returns True if a pod has further containers or sidecars."""
    sidecars = any(each.get("restartPolicy") == "Always" for each in items_at(spec, dict, "initContainers"))
    return sidecars or len(spec.get("containers") or ()) > 1


def resources_of(role: Role, cfg: RunOptions) -> Object:
    """Returns the requests and limits of a container.

    A node reserves some CPU and memory, so requests are below the limits, to fit a replica that uses a whole
    node, but at least half of them.
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
    devices = {}
    if resource.gpu > 0:
        devices = {GPU: int(resource.gpu)}
    # names of devices have a domain on a cluster
    devices |= {name: count for name, count in resource.devices.items() if "/" in name}
    if cfg.get("efa_device_count") is not None:
        devices[EFA_DEVICE] = options.number(cfg, "efa_device_count", 0)
    given = {name: str(count) for name, count in devices.items() if count > 0}
    resources = {"limits": {**limits, **given}, "requests": {**requests, **given}}
    return without_empty(resources)


def _request(limit: int, cfg: RunOptions, option: str, otherwise: int) -> int:
    return max(limit - options.number(cfg, option, otherwise), (limit + 1) // 2)


def _env(
    context: AppContext, number: int, filler: MacroFiller, replica: int | None, retries_at: str | None
) -> list[Object]:
    """Returns the variables of a container; a variable precedes those that refer to it."""
    role = context.app.roles[number]
    first: list[Object] = []
    if replica is None:
        path = f"metadata.annotations['{JOB_COMPLETION_INDEX}']"
        first.append({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    addresses = address_variables(context.app, context.hosts)
    ports = {port_variable(name): str(port) for name, port in role.port_map.items()}
    own = {
        **variables(context.cfg),
        settings.TORCHX_RANK0_HOST: context.rank0,
        settings.TORCHX_IMAGE: escaped(role.image),
        **replica_variables(
            escaped(checked_text(role, role.name, "a name")), filler.index, role.num_replicas
        ),
    }
    written: dict[str, Object] = {}
    for name, value in role.env.items():
        checked_text(role, value, f"variable {name}")
        if isinstance(value, SecretValue):
            written[name] = secret_variable(context.app_id, number, name)
        else:
            written[name] = _variable(role, name, value, filler)
    plain = {
        name: {"name": name, "value": value}
        for name, value in (settings.REPLICA_DEFAULTS | addresses | ports | own).items()
    }
    counted = attempts.variables(retries_at)
    # as on other engines, a role may override ports but no other variables of the scheduler
    chosen = {**plain, **written, **{name: plain[name] for name in own}, **counted}
    return first + [entry for name, entry in chosen.items() if name != INDEX_VARIABLE or replica is not None]


def _variable(role: Role, name: str, value: str, filler: MacroFiller) -> Object:
    if not re.fullmatch(r"[ -<>-~]+", name):
        raise UsageError(
            f"role `{role.name}` sets the environment variable {name!r}, which is not a valid name"
        )
    if value.startswith(FIELD_PATH):
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": value.removeprefix(FIELD_PATH)}}}
    return {"name": name, "value": filler.fill(value)}


def checked_text(role: Role, text: str, kind: str = "an argument") -> str:
    """Returns a text of a role.

    Args:
        role: the role.
        text: the text.
        kind: its kind or name, for the error: the text may be secret.

    Raises:
        UsageError: a cluster cannot store it.
    """
    if "\0" in text or not is_utf8(text):
        raise UsageError(f"role `{role.name}` has {kind}, which is not valid text for a cluster")
    return text


def _ports(role: Role) -> list[Object]:
    ports: list[Object] = []
    taken: set[str] = set()
    for name, port in role.port_map.items():
        short = slug(name)[:15].strip("-")
        named = short and short not in taken and "--" not in short and re.search("[a-z]", short)
        taken.add(short)
        if port not in [entry["containerPort"] for entry in ports]:
            ports.append({"containerPort": port, **({"name": short} if named else {})})
    return ports


def _where(role: Role, cfg: RunOptions) -> Object:
    """Returns the fields for the choice of nodes, the service account, the priority and pull secrets."""
    selector: dict[str, str] = {}
    instance = role.resource.capabilities.get(K8S_ITYPE)
    if instance:
        selector[K8S_ITYPE] = str(instance)
    avoided = [
        {"key": "metadata.name", "operator": "NotIn", "values": [host]}
        for host in options.strings(cfg, "avoid_hosts")
    ]
    terms = {"nodeSelectorTerms": [{"matchFields": avoided}]}
    spec: Object = {
        "affinity": avoided and {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "nodeSelector": {**selector, **options.pairs(cfg, "node_selector")},
        "tolerations": options.tolerations(cfg),
        "serviceAccountName": cfg.get("service_account"),
        "priorityClassName": cfg.get("priority_class"),
        "imagePullSecrets": [{"name": name} for name in options.strings(cfg, "image_pull_secrets")],
    }
    return without_empty(spec)


LONGEST_CHECK = 5
"""Seconds that a single check may take."""


def readiness_probe(role: Role, filler: MacroFiller) -> Object:
    """Returns the fields of a container for the probe of a service; empty if the cluster has no such probe.

    Args:
        role: the role.
        filler: substitutes its macros.

    >>> from torchx.specs import service
    >>> web = service(Role("web", "img", port_map={"http": 80}), "http:http/health")
    >>> readiness_probe(web, MacroFiller("ns:a", None))["readinessProbe"]["httpGet"]
    {'port': 80, 'path': '/health'}
    """
    if SERVICE not in role.metadata:
        return {}
    probe = ServiceRule.of(role.metadata[SERVICE]).probe
    if probe.port.isdigit():
        port = int(probe.port)
    else:
        port = role.port_map.get(probe.port, 0)
    checks: dict[str, Object] = {
        HTTP: {"httpGet": {"port": port, "path": probe.text}},
        TCP: {"tcpSocket": {"port": port}},
        CMD: {"exec": {"command": [filler.fill(word) for word in shlex.split(probe.text)]}},
    }
    if probe.kind not in checks:
        return {}
    times = {"periodSeconds": 1, "timeoutSeconds": LONGEST_CHECK, "failureThreshold": 3}
    return {"readinessProbe": {**checks[probe.kind], **times}}
