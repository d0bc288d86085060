"""Workspaces in ConfigMaps, unpacked by an init container instead of being built into an image."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, cast

from torchx.errors import UsageError
from torchx.json_limits import without_empty
from torchx.lazy import lazy_imports
from torchx.printable import counted

with lazy_imports:
    from torchx.schedulers.docker.images import workspace
    from torchx.workspace import tree as workspace_tree

if TYPE_CHECKING:
    from torchx.schedulers.docker.image_plan import ImagePlan
    from torchx.schedulers.kubernetes.api.objects import Object
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import RunOptions
    from torchx.workspace.tree import Tree

LARGEST = 900_000
"""Maximum size of an archive in bytes; a ConfigMap holds 1 MiB including its names."""
FOLDER = "/torchx/workspace"
"""The folder with the files, and the working directory of replicas."""
CONTAINER = "workspace"
"""The init container that unpacks them."""
_PACKED = "/torchx/packed"
_FILE = "workspace.tar.gz"


HEADER = 512
"""Minimum bytes of a file in an archive, before it is packed."""


@dataclass(frozen=True)
class Archive:
    """The files of a workspace, packed.

    Attributes:
        data: the bytes of a ``.tar.gz``; equal trees have equal ones.
        files: how many files.
        size: their bytes, unpacked.
    """

    data: bytes = field(repr=False)
    files: int
    size: int


@dataclass
class WorkspacePlans:
    """The plans for the workspaces of an application.

    Attributes:
        archives: the workspaces that are sent in ConfigMaps, by role number.
        builds: the images to build for the others.
        notes: notes for the user, one line each.
    """

    archives: dict[int, Archive] = field(default_factory=dict)
    builds: list[ImagePlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_workspaces(app: AppDef, cfg: RunOptions) -> WorkspacePlans:
    """Plans a ConfigMap or an image for each workspace of an application; only reads files.

    Args:
        app: the application; its roles get the names of planned images.
        cfg: run options.

    Raises:
        UsageError: a workspace is too large or does not exist.
    """
    plans = WorkspacePlans()
    if not any(role.workspace for role in app.roles):
        return plans

    images: dict[str, ImagePlan] = {}
    notes: dict[str, None] = {}
    known: dict[int, Archive] = {}
    scanned = workspace_tree.scan_workspaces(app.roles, cfg)
    for role, tree in scanned:
        notes.update(dict.fromkeys(tree.notes))
        if cfg.get("workspace_type") == "image" or (
            cfg.get("workspace_type") != "configmap" and cfg.get("image_repo")
        ):
            plan = workspace.plan_image(role, tree, cfg)
            images[plan.name] = plan
            role.image = plan.name
            notes[plan.why] = None
            if not plan.push:
                notes["without image_repo the image is not pushed: nodes must get it in another way"] = None
            continue
        archive = known.get(id(tree)) or pack(tree)
        if archive is None:
            much = f"{counted(tree.files, 'file')}, {tree.size / 1e6:,.1f} MB"
            limit = f"too much for a ConfigMap ({LARGEST // 1000} KB, packed)"
            raise UsageError(
                f"workspace `{role.workspace}` has {much}: {limit}",
                hint="use a registry: -cfg image_repo=REGISTRY/NAME   or exclude files: .torchxignore",
            )
        number = next(number for number, other in enumerate(app.roles) if other is role)
        plans.archives[number] = known[id(tree)] = archive
        size = f"{counted(archive.files, 'file')}, {len(archive.data) / 1000:,.1f} KB"
        line = f"the workspace is sent in a ConfigMap ({size}): the `tar` of the "
        notes[line + f"image unpacks it to {FOLDER}, the working directory of replicas"] = None
    notes.update(dict.fromkeys(line for _, tree in scanned for line in tree.vanished))
    plans.builds, plans.notes = list(images.values()), list(notes)
    return plans


def pack(tree: Tree) -> Archive | None:
    """Returns the archive of a tree, or None if it is too large for a ConfigMap."""
    if tree.size + tree.files * HEADER > 100 * LARGEST:
        return None  # cannot be compressed that much
    held = io.BytesIO()
    with gzip.GzipFile(fileobj=held, mode="wb", mtime=0) as packed:
        tree.write_tar(cast("IO[bytes]", packed))
    data = held.getvalue()
    if len(data) <= LARGEST:
        return Archive(data, tree.files, tree.size)
    return None


def config_map_names(app_id: str, archives: Mapping[int, Archive]) -> dict[int, str]:
    """Returns the name of each role's ConfigMap; roles with equal archives share one.

    Args:
        app_id: the application's id.
        archives: the archives by role number.
    """
    known: dict[bytes, str] = {}
    for archive in archives.values():
        known.setdefault(archive.data, f"{app_id}-ws" + (f"-{len(known)}" if known else ""))
    return {number: known[archive.data] for number, archive in archives.items()}


def config_map(metadata: Object, archive: Archive) -> Object:
    """Returns the ConfigMap of an archive."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "binaryData": {_FILE: base64.b64encode(archive.data).decode()},
    }


def add_to(pod_spec: Object, name: str) -> None:
    """Adds an init container that unpacks the workspace of a pod, in place.

    It runs ``tar`` from the image, without a shell; without ``tar``, the pod fails with a message.

    Args:
        pod_spec: the specification of the pod.
        name: the name of the ConfigMap.
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
            # a quota requires limits; those of the replica do not increase the needs of the pod
            "resources": without_empty(basic),
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
