"""A workspace without an image of its own: a ConfigMap, which an init container unpacks."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.options import check_options

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import CfgVal
    from torchx.workspace.tree import Tree

LARGEST = 900_000
"""Bytes of an archive: a cluster stores 1 MiB in a ConfigMap, of which its names take some."""
FOLDER = "/torchx/workspace"
"""Where a replica finds the files, and starts."""
CONTAINER = "workspace"
"""The init container that unpacks them."""
_PACKED = "/torchx/packed"
_FILE = "workspace.tar.gz"


@dataclass(frozen=True)
class Archive:
    """The files of a workspace, packed.

    Attributes:
        data: the bytes of a ``.tar.gz``; equal trees have equal ones.
        files: how many files.
        size: their bytes, unpacked.
    """

    data: bytes
    files: int
    size: int


def plan_workspaces(app: AppDef, cfg: Mapping[str, CfgVal]) -> list[str]:
    """Decides how the workspaces of an application travel, and notes it in its roles; reads files, no more.

    Args:
        app: its roles get the image they will have.
        cfg: run options.

    Returns:
        What there is to say about it, a line each.

    Raises:
        UsageError: a workspace is too large, or not there.
    """
    from torchx.workspace.tree import look_at_all

    check_options(cfg)  # nobody is to wait for files to be read, only to hear of a misspelt option
    limit = cfg.get("workspace_limit_mb")
    notes: dict[str, None] = {}
    known: dict[int, Archive] = {}
    for role, scanned in look_at_all(app.roles, limit if isinstance(limit, int) else None):
        notes.update(dict.fromkeys(scanned.tree.notes))
        if cfg.get("workspace_type") == "image" or (
            cfg.get("workspace_type") != "configmap" and cfg.get("image_repo")
        ):
            from torchx.schedulers.docker.images.workspace import plan_image

            scanned.plan = plan = plan_image(role, scanned.tree, cfg)
            role.image = plan.name
            notes[plan.why] = None
            if not plan.push:
                notes["without image_repo it is pushed nowhere: the nodes have to get it in another way"] = (
                    None
                )
            continue
        archive = known.get(id(scanned.tree)) or pack(scanned.tree)
        if archive is None:
            much = f"{scanned.tree.size / 1e6:,.1f} MB"
            raise UsageError(
                f"workspace `{scanned}` has {much}, too much for a ConfigMap: {LARGEST // 1000} KB, packed",
                hint="name a registry: -cfg image_repo=REGISTRY/NAME   or leave files out: .torchxignore",
            )
        scanned.plan = known[id(scanned.tree)] = archive
        size = len(archive.data) / 1000
        line = (
            f"the workspace travels in a ConfigMap ({archive.files} files, {size:,.1f} KB): the `tar` of the "
        )
        notes[line + f"image unpacks it to {FOLDER}, where the replicas start"] = None
    return list(notes)


def needs_images(app: AppDef) -> bool:
    """Tells whether a workspace of an application travels in an image that may have to be built."""
    plans = (getattr(role.workspace, "plan", None) for role in app.roles)
    return any(plan is not None and not isinstance(plan, Archive) for plan in plans)


def archives_of(roles: Iterable[Role]) -> dict[int, Archive]:
    """Returns the workspaces that travel as ConfigMaps, by the number of the role."""
    plans = ((number, getattr(role.workspace, "plan", None)) for number, role in enumerate(roles))
    return {number: plan for number, plan in plans if isinstance(plan, Archive)}


def pack(tree: Tree) -> Archive | None:
    """Returns the archive of a tree; None when it is too large for a ConfigMap."""
    if tree.size > 100 * LARGEST:
        return None  # nothing packs so well, and it would take long to see
    held = io.BytesIO()
    with gzip.GzipFile(fileobj=held, mode="wb", mtime=0) as packed:
        tree.write_tar(cast("IO[bytes]", packed))
    data = held.getvalue()
    return Archive(data, tree.files, tree.size) if len(data) <= LARGEST else None


def config_map_names(app_id: str, archives: Mapping[int, Archive]) -> dict[int, str]:
    """Returns the name of each role's ConfigMap; roles of equal archives share one.

    Args:
        app_id: the application's id.
        archives: by the number of the role.
    """
    known: dict[bytes, str] = {}
    for archive in archives.values():
        known.setdefault(archive.data, f"{app_id}-ws" + (f"-{len(known)}" if known else ""))
    return {number: known[archive.data] for number, archive in archives.items()}


def config_map(metadata: dict[str, Any], archive: Archive) -> dict[str, Any]:
    """Returns the ConfigMap that holds an archive."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "binaryData": {_FILE: base64.b64encode(archive.data).decode()},
    }


def add_to(pod_spec: dict[str, Any], name: str) -> None:
    """Lets a pod unpack its workspace before it starts, and start in it; in place.

    The image's own ``tar`` does it, without a shell: where there is none, the pod fails and says so.

    Args:
        pod_spec: the specification of the pod.
        name: of the ConfigMap.
    """
    (main,) = pod_spec["containers"]
    own = {key: main[key] for key in ("image", "imagePullPolicy") if key in main}
    basic = {
        kind: {key: value for key, value in amounts.items() if key in ("cpu", "memory")}
        for kind, amounts in main["resources"].items()
    }
    pod_spec["initContainers"] = [
        {
            "name": CONTAINER,
            **own,
            "command": ["tar"],
            "args": ["-xzf", f"{_PACKED}/{_FILE}", "-C", FOLDER],
            "env": [],
            # as much as the replica gets: a quota wants it told, and the pod needs no more for it
            "resources": {kind: amounts for kind, amounts in basic.items() if amounts},
            "volumeMounts": [
                {"name": "packed", "mountPath": _PACKED, "readOnly": True},
                {"name": CONTAINER, "mountPath": FOLDER},
            ],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]
    pod_spec["volumes"] += [
        {"name": "packed", "configMap": {"name": name}},
        {"name": CONTAINER, "emptyDir": {}},
    ]
    main["volumeMounts"].append({"name": CONTAINER, "mountPath": FOLDER})
    main["workingDir"] = FOLDER
