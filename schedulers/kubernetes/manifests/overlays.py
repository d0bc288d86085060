"""Overlays: changes by users to manifests, for settings without a field in an application."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torchx import settings
from torchx.json_shape import items_at, typed_at, value_at
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.manifests.escaping import INDEX, INDEX_VARIABLE
from torchx.schedulers.kubernetes.manifests.pod import AppContext, share_processes
from torchx.schedulers.kubernetes.manifests.volumes import SHM
from torchx.schedulers.kubernetes.manifests.workspace import CONTAINER as UNPACKER
from torchx.schedulers.kubernetes.names import CONTAINER, PREFIX, ROLE_INDEX
from torchx.scheduling.base import replica_variables
from torchx.specs.app import AppDef, Role
from torchx.specs.macro import macros
from torchx.specs.overlay_merge import operator_of
from torchx.specs.overlays import (
    Overlay,
    OverlayError,
    OverlaySpec,
    apply_overlay,
    get_overlay,
    validate_overlay,
)
from torchx.suggestions import did_you_mean

NAMESPACE = "kubernetes"
"""Key of overlays in the metadata of an application or a role."""
POD = OverlaySpec(NAMESPACE, "V1Pod", ("apiVersion", "kind", "status"))
"""Overlay of the template of a role's pods: ``metadata`` and ``spec``."""
JOB = OverlaySpec(NAMESPACE, "V1Job", ("apiVersion", "kind", "status"))
"""Overlay of a role's Job, also within a JobSet, without its pods."""
WHOLE = {
    "jobset": OverlaySpec(NAMESPACE, "JobSet", ("apiVersion", "kind", "status")),
    "volcano": OverlaySpec(NAMESPACE, "VolcanoJob", ("apiVersion", "kind", "status")),
}
"""Overlay of the single object of an application; set in the metadata of the application."""
_ENV = (
    INDEX_VARIABLE,
    settings.TORCHX_RANK0_HOST,
    settings.TORCHX_IMAGE,
    *replica_variables("", "", 0),
)

_MOUNTED = f"spec.containers.{CONTAINER}.volumeMounts."

_Kept = Callable[[Object], Object]


def apply_overlays(context: AppContext, manifests: Iterable[Object]) -> None:
    """Applies the overlays of an application and of its roles to its manifests, in place.

    Raises:
        OverlayError: an overlay sets a reserved field.
        OverlayTypeError: an overlay has a wrong type.
    """
    for manifest in manifests:
        kind = (manifest["apiVersion"].partition("/")[0], manifest["kind"])
        if kind == ("batch", "Job"):
            _job(context, manifest)
        elif kind[1] == "JobSet":
            for replicated in manifest["spec"]["replicatedJobs"]:
                _job(context, replicated["template"])
            _whole(context, manifest, "jobset", "replicatedJobs")
        elif kind[1] == "Job":
            for task in manifest["spec"]["tasks"]:
                _pod(context, task["template"])
            _whole(context, manifest, "volcano", "tasks")


def _job(context: AppContext, job: Object) -> None:
    _apply_both(context, JOB, job, _kept_of_job)
    _pod(context, job["spec"]["template"])


def _pod(context: AppContext, template: Object) -> None:
    _apply_both(context, POD, template, _kept_of_pod)
    share_processes(template["spec"])


def _apply_both(context: AppContext, spec: OverlaySpec, base: Object, kept: _Kept) -> None:
    """Applies the overlays of the application, then those of a role."""
    number = int(base["metadata"]["labels"][ROLE_INDEX])
    for target in (context.app, context.app.roles[number]):
        _apply(context, target, spec, base, kept)


def _whole(context: AppContext, manifest: Object, kind: str, parts: str) -> None:
    def kept(whole: Object) -> Object:
        return {**_kept_of_metadata(whole), f"spec.{parts}": copy.deepcopy(value_at(whole, "spec", parts))}

    _apply(context, context.app, WHOLE[kind], manifest, kept)


def _apply(context: AppContext, target: AppDef | Role, spec: OverlaySpec, base: Object, kept: _Kept) -> None:
    """Applies an overlay to a part of the request, and checks that reserved fields are unchanged."""
    overlay = _noted(target, spec)
    if not overlay:
        return
    validate_overlay(overlay, blocklist=spec.blocklist, overlay_name=spec.kind)
    for written in overlay:
        key = operator_of(written)[1]
        if key not in ("metadata", "spec"):
            raise OverlayError(
                f"the overlay {spec.kind} of `{target.name}` has `{key}`; "
                "only `metadata` and `spec` are allowed",
                hint=did_you_mean(key, ("metadata", "spec")),
            )
    before = kept(base)
    apply_overlay(base, _filled(context, overlay))
    after = kept(base)
    lost = [name for name, value in before.items() if after.get(name) != value]
    if lost and lost[0].startswith(_MOUNTED):
        raise OverlayError(
            f"the overlay {spec.kind} of `{target.name}` removes or changes the mount at "
            f"`{lost[0].removeprefix(_MOUNTED)}` in the container {CONTAINER}",
            hint='add mounts with JOIN("volumeMounts", on="mountPath") within the container, '
            "volumes with a plain list",
        )
    if lost:
        raise OverlayError(
            f"the overlay {spec.kind} of `{target.name}` changes `{lost[0]}`, "
            "which is reserved for the scheduler",
            hint='add variables with JOIN("env", on="name") within the container'
            if ".env." in lost[0]
            else "set the field of the role or the run option; additional containers need other names",
        )


def _noted(target: AppDef | Role, spec: OverlaySpec) -> Overlay:
    overlay = get_overlay(target, NAMESPACE, spec.kind, flat_fallback=False)
    if overlay or spec is not POD:
        return overlay
    # in older files, the metadata may itself be the overlay of the pods
    flat = get_overlay(target, NAMESPACE, spec.kind)
    if any(each.kind in flat for each in (JOB, *WHOLE.values())):
        return {}
    return flat


def unused(app: AppDef, kind: str) -> Iterator[tuple[str, str]]:
    """Yields the overlays that a kind of object does not use, with the name of their application or role.

    Args:
        app: the application.
        kind: job, jobset or volcano.
    """
    targets: list[AppDef | Role] = [app, *app.roles]
    for target in targets:
        for spec in (JOB, *WHOLE.values()):
            if spec is JOB:
                fits = kind != "volcano"
            else:
                fits = target is app and WHOLE.get(kind) is spec
            if not fits and _noted(target, spec):
                yield spec.kind, target.name


def _filled(context: AppContext, overlay: Overlay) -> Overlay:
    """Substitutes macros; only the pod knows the replica's id."""
    values = macros.Values(
        img_root="",
        app_id=f"{context.namespace}:{context.app_id}",
        replica_id=INDEX,
        rank0_env=settings.TORCHX_RANK0_HOST,
        role_hosts=context.hosts,
    )
    holder = Role("overlay", "", metadata=overlay)
    return values.apply(holder).metadata


def _kept_of_metadata(base: Object) -> Object:
    labels = typed_at(base, dict, "metadata", "labels")
    own = {f"metadata.labels.{key}": value for key, value in labels.items() if key.startswith(PREFIX)}
    return {
        "metadata.name": value_at(base, "metadata", "name"),
        "metadata.namespace": value_at(base, "metadata", "namespace"),
        **own,
    }


def _kept_of_job(job: Object) -> Object:
    spec = typed_at(job, dict, "spec")
    names = ("completionMode", "completions", "parallelism", "selector", "manualSelector", "template")
    return {**_kept_of_metadata(job), **{f"spec.{name}": copy.deepcopy(spec.get(name)) for name in names}}


def _kept_of_pod(template: Object) -> Object:
    spec = typed_at(template, dict, "spec")
    kept = {f"spec.{name}": spec.get(name) for name in ("restartPolicy", "subdomain", "hostname")}
    containers = _named(spec, "containers", CONTAINER)
    main = containers[0] if len(containers) == 1 else {}
    for name in ("image", "command", "args"):
        kept[f"spec.containers.{CONTAINER}.{name}"] = copy.deepcopy(main.get(name))
    unpackers = _named(spec, "initContainers", UNPACKER)
    kept[f"spec.initContainers.{UNPACKER}"] = copy.deepcopy(unpackers)
    kept.update(_mounted(spec, main))
    for name in _ENV:
        kept[f"spec.containers.{CONTAINER}.env.{name}"] = [*map(dict, _named(main, "env", name))]
    return {**_kept_of_metadata(template), **kept}


def _named(spec: Any, key: str, name: str) -> list[Object]:
    """Returns the entries of a list in a specification with a name."""
    return [entry for entry in items_at(spec, dict, key) if entry.get("name") == name]


def _mounted(spec: Object, main: Object) -> Object:
    """Returns the mounts of the container by path; True for shared memory, which may be replaced."""
    volumes = {str(volume.get("name")): volume for volume in items_at(spec, dict, "volumes")}
    return {
        f"{_MOUNTED}{mount.get('mountPath')}": True
        if mount.get("mountPath") == SHM
        else copy.deepcopy([mount, volumes[str(mount["name"])]])
        for mount in items_at(main, dict, "volumeMounts")
        if str(mount.get("name")) in volumes
    }
