"""Converts an application to a request: manifests as plain data, made without access to a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchx import settings
from torchx.errors import UsageError
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.masking import MASK, SecretValue
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.checks import notes_of, process_notes
from torchx.schedulers.kubernetes.facts import SPARE
from torchx.schedulers.kubernetes.limits import by_torchx, check_roles, notes_of_limits, with_requeues
from torchx.schedulers.kubernetes.manifests import job as jobs
from torchx.schedulers.kubernetes.manifests import jobset as jobsets
from torchx.schedulers.kubernetes.manifests import volcano
from torchx.schedulers.kubernetes.manifests.hosts import hosts_of
from torchx.schedulers.kubernetes.manifests.overlays import apply_overlays
from torchx.schedulers.kubernetes.manifests.pod import AppContext
from torchx.schedulers.kubernetes.manifests.secrets import secret_manifests, secret_name
from torchx.schedulers.kubernetes.manifests.workspace import (
    WorkspacePlans,
    config_map,
    config_map_names,
    plan_workspaces,
)
from torchx.schedulers.kubernetes.names import APP, ATTEMPT, require_name, role_names, unique_name
from torchx.schedulers.kubernetes.options import AUTO, JOB, JOBSET, VOLCANO
from torchx.schedulers.kubernetes.record import write_record
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.checks import has_services
from torchx.specs.run_options import RunOptions

with lazy_imports:
    import json

    import yaml

    from torchx.schedulers.kubernetes import checks as service_checks

LARGEST = 1_500_000
"""Maximum size of an object in a cluster, in bytes of JSON."""


@dataclass
class KubernetesJob:
    """All objects of one application.

    Attributes:
        app_id: its id, without the namespace; the id in handles is ``namespace:app_id``.
        namespace: where it runs.
        kind: job, jobset or volcano.
        manifests: the objects in order of creation; the first job carries the record.
        workspaces: the plans for its workspaces.
    """

    app_id: str
    namespace: str
    kind: str
    manifests: list[Object] = field(default_factory=list)
    workspaces: WorkspacePlans = field(default_factory=WorkspacePlans)

    @property
    def is_gang(self) -> bool:
        """Whether torchx restarts roles as a whole: each attempt of a role is a job of its own."""
        return any(ATTEMPT in manifest["metadata"]["labels"] for manifest in self.manifests)


def dry_run(app: AppDef, cfg: RunOptions) -> AppDryRunInfo[KubernetesJob]:
    """Returns the request for an application, with notes; contacts no cluster."""
    check_roles(app, cfg)
    if has_services(app):
        service_checks.check_services(app, cfg)
    kind = kind_of(app, cfg)
    plans = plan_workspaces(app, cfg)
    info = AppDryRunInfo(to_request(app, unique_name(app), cfg, kind, plans), as_text)
    info.notes += plans.notes
    info.notes += [*notes_of(app, cfg, kind), *notes_of_limits(cfg)]
    if has_services(app):
        info.notes += service_checks.notes_of_services(app)
    info.notes += process_notes(app, templates_of(info.request))
    return info


def kind_of(app: AppDef, cfg: RunOptions, has_jobset: bool = False) -> str:
    """Returns the kind of object for an application: from the run options, else from the cluster.

    Args:
        app: the application.
        cfg: run options.
        has_jobset: whether the cluster has JobSets; False in a dry-run, which contacts no cluster.
    """
    kind = cfg.get("kind") or AUTO
    if kind != AUTO:
        return str(kind)
    whole = len(app.roles) > 1 or any(
        jobs.restarts_as_a_whole(role) and role.num_replicas > 1 for role in app.roles
    )
    by_cause = any(cfg.get(option) is not None for option in ("retry_on", "no_retry_on"))
    by_torchx_alone = by_torchx(cfg) or has_services(app)
    if has_jobset and whole and not (by_cause or by_torchx_alone):
        return JOBSET
    return JOB


def to_request(
    app: AppDef,
    name: str,
    cfg: RunOptions,
    kind: str = JOB,
    workspaces: WorkspacePlans | None = None,
    *,
    gangs: bool = True,
) -> KubernetesJob:
    """Returns the manifests of an application, without side effects.

    Args:
        app: the application; unchanged.
        name: its id, see ``names.unique_name``.
        cfg: run options, with their defaults.
        kind: job, jobset or volcano, see :func:`kind_of`.
        workspaces: the plans for its workspaces.
        gangs: torchx restarts roles as a whole; False if it may not.

    Raises:
        UsageError: the application is not possible on a cluster.
    """
    require_name(name)
    record = write_record(app, cfg)
    plans = workspaces or WorkspacePlans()
    packed = config_map_names(name, plans.archives)
    if kind == VOLCANO:
        names = role_names(name, app.roles, spare=volcano.PODS_SPARE)
        pods = sum(role.num_replicas for role in app.roles)
        hosts = hosts_of(app, name, [f"{name}-{part}-{{}}-0" for part in names], templates=pods)
        rank0 = volcano.rank0_host(name, names[0])
        context = AppContext(app, name, cfg, rank0, workspaces=packed, hosts=hosts)
        manifests = list(volcano.manifests(context, names))
    elif kind == JOBSET:
        names = role_names(name, app.roles, spare=jobsets.PODS_SPARE)
        hosts = hosts_of(app, name, [f"{name}-{part}-0-{{}}" for part in names])
        context = AppContext(app, name, cfg, f"{name}-{names[0]}-0-0", workspaces=packed, hosts=hosts)
        manifests = list(jobsets.manifests(context, names))
    else:
        # restarts need the record
        gang = gangs and record is not None and jobs.is_gang(app, cfg)
        spare = SPARE
        if not gang:
            app, spare = with_requeues(app, cfg), 0
        names = role_names(name, app.roles, spare=spare)
        rank0 = f"{name}-{names[0]}-0"
        hosts = hosts_of(app, name, [f"{name}-{part}-{{}}" for part in names], gang=gang)
        context = AppContext(app, name, cfg, rank0, name, packed, gang, hosts)
        manifests = list(jobs.manifests(context, names))
    apply_overlays(context, manifests)
    if record is not None:
        first = next(manifest for manifest in manifests if manifest["kind"] != "Service")
        first["metadata"].setdefault("annotations", {})[APP] = record
    maps = {
        packed[number]: config_map(context.metadata(packed[number], context.labels), archive)
        for number, archive in plans.archives.items()
    }
    secrets = secret_manifests(app, context.metadata(secret_name(name), context.labels))
    _check_size(manifests, kind)
    return KubernetesJob(name, context.namespace, kind, [*maps.values(), *secrets, *manifests], plans)


def templates_of(request: KubernetesJob) -> Iterator[Data]:
    """Yields the pod templates of a request."""
    for manifest in request.manifests:
        spec = manifest.get("spec") or {}
        if manifest["kind"] == "JobSet":
            yield from (each["template"]["spec"]["template"] for each in spec["replicatedJobs"])
        elif manifest["kind"] == "Job":
            yield from (each["template"] for each in spec.get("tasks") or [spec])


def with_images(request: KubernetesJob, images: Mapping[str, str]) -> KubernetesJob:
    """Returns a request with the names of images after they were built and pushed.

    Args:
        request: the request; unchanged.
        images: the new name of each image by its old one.
    """

    def changed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            is_image = key == "env" and value.get("name") == settings.TORCHX_IMAGE
            return {k: changed(v, "image" if is_image and k == "value" else k) for k, v in value.items()}
        if isinstance(value, list):
            return [changed(v, key) for v in value]
        if key == "image" and isinstance(value, str):
            return images.get(value, value)
        return value

    return replace(request, manifests=changed(request.manifests))


def as_text(request: KubernetesJob) -> str:
    """Returns the manifests as input for ``kubectl apply -f -``."""
    return dump(request.manifests)


def _check_size(manifests: list[Object], kind: str) -> None:
    for manifest in manifests:
        try:
            size = len(json.dumps(manifest, separators=(",", ":"), ensure_ascii=False).encode())
        except (TypeError, ValueError) as error:  # ValueError: also from lone surrogates
            raise UsageError(f"the {manifest['kind']} cannot be written as JSON: {error}") from error
        if size > LARGEST:
            many = "kind=job supports any number of replicas"
            raise UsageError(
                f"the {manifest['kind']} has {size / 1e6:.1f} MB; the maximum for an object is "
                f"{LARGEST / 1e6:.1f} MB",
                hint=many if kind == VOLCANO else "move long arguments to a file",
            )


_PLAIN = r"[A-Za-z/$][A-Za-z0-9_./$-]*"
_BREAKS = frozenset("\x85\u2028\u2029")  # line ends in YAML, which a block scalar would change
_NO_TEXT = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


def dump(manifests: Iterable[Data]) -> str:
    """Returns manifests as YAML documents.

    Strings that some parsers read as numbers or booleans are quoted, such as ``1e3`` and ``y``, which are
    strings for PyYAML but not for ``kubectl``.

    >>> print(dump([{"value": "1e3", "args": ["-c", "echo a\\necho b\\n"]}]), end="")
    value: "1e3"
    args:
    - "-c"
    - |
      echo a
      echo b
    """

    class Dumper(yaml.SafeDumper):
        """Writes plain data without aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, value: str) -> yaml.ScalarNode:
        # PyYAML quotes a string that a block cannot hold
        style: str | None = '"'
        if "\n" in value and _BREAKS.isdisjoint(value):
            style = "|"
        if re.fullmatch(_PLAIN, value) and value.lower() not in _NO_TEXT:
            style = None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_multi_representer(str, text)  # subclasses, which a hook may have added
    Dumper.add_representer(SecretValue, lambda dumper, value: text(dumper, MASK))
    written: str = yaml.dump_all(
        manifests, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100_000, explicit_start=False
    )
    return written
