"""Checks of an application for Slurm: errors, and notes on unsupported features."""

from __future__ import annotations

from collections.abc import Mapping

from torchx.schedulers.slurm.directives import in_containers
from torchx.scheduling.checks import require_images, require_roles
from torchx.specs.app import AppDef
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal


def check(app: AppDef, cfg: Mapping[str, CfgVal]) -> None:
    """Checks an application; resources are optional.

    Raises:
        UsageError: it has no roles, or a role to run in a container has no image.
    """
    require_roles(app)
    if cfg.get("containers"):
        require_images(app, "`containers`")


def notes_of(app: AppDef, cfg: Mapping[str, CfgVal]) -> list[str]:
    """Returns a note for each feature of an application that Slurm does not support."""
    inside = in_containers(cfg)
    notes = []
    for note, roles in (
        (
            "mounts are not supported: replicas see the files of the nodes",
            [role for role in app.roles if role.mounts and not inside],
        ),
        (
            "only folders and files can be mounted into containers",
            [r for r in app.roles if inside and any(not isinstance(m, BindMount) for m in r.mounts)],
        ),
        (
            "devices are not requested: use sbatch options such as gres",
            [role for role in app.roles if role.resource.devices],
        ),
        (
            "min_replicas is not supported: all replicas start together",
            [role for role in app.roles if role.min_replicas not in (None, role.num_replicas)],
        ),
    ):
        if roles:
            notes.append(f"{note} (role {', '.join(role.name for role in roles)})")
    return notes
