"""The request for a Slurm job: a script, created without calling Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchx.errors import RunOptionError
from torchx.lazy import lazy_imports
from torchx.schedulers.ids import random_id
from torchx.schedulers.shared.batch.request import BatchRequest, as_brief, as_text, context_of
from torchx.schedulers.shared.batch.script import files_of, script_of
from torchx.schedulers.shared.batch.workspaces import (
    WorkspaceCopy,
    plan_workspaces,
)
from torchx.schedulers.slurm.checks import notes_of
from torchx.schedulers.slurm.directives import DIALECT, in_containers
from torchx.schedulers.slurm.limits import notes_of_limits
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.schedulers.docker.images import workspace

if TYPE_CHECKING:
    from torchx.schedulers.docker.image_plan import ImagePlan
    from torchx.workspace.tree import Tree


@dataclass
class SlurmRequest(BatchRequest):
    """A Slurm job to submit.

    Attributes:
        builds: the images to build for workspaces that are not copied.
    """

    cmd: tuple[str, ...] = ("sbatch", "--parsable")
    builds: list[ImagePlan] = field(default_factory=list)


def dry_run(app: AppDef, cfg: RunOptions, session: str) -> AppDryRunInfo[SlurmRequest]:
    """Returns the request for an application, with notes; has no side effects."""
    builds: dict[str, ImagePlan] = {}

    def plan_image(role: Role, tree: Tree) -> str:
        if not in_containers(cfg) or not cfg.get("image_repo"):
            raise RunOptionError(
                "workspace_type",
                "is docker, which needs containers=pyxis or apptainer to run the image, and image_repo "
                "to pull it from",
            )
        plan = workspace.plan_image(role, tree, cfg)
        builds[plan.name] = plan
        role.image = plan.name
        return plan.why

    images = cfg.get("workspace_type") == "docker"
    copies, notes = plan_workspaces("slurm", app, cfg, plan_image if images else None)
    info = AppDryRunInfo(to_request(app, cfg, session, copies, builds.values()), as_text, as_brief)
    info.notes += notes + notes_of(app, cfg) + notes_of_limits(cfg)
    return info


def to_request(
    app: AppDef,
    cfg: RunOptions,
    session: str,
    copies: Mapping[str, WorkspaceCopy],
    builds: Iterable[ImagePlan] = (),
    token: str = "",
) -> SlurmRequest:
    """Returns the request for an application; has no side effects.

    Args:
        app: the application; not modified.
        cfg: run options, with their defaults.
        session: the session part of its handle.
        copies: the copies of workspaces, by role.
        builds: the images to build for workspaces.
        token: distinguishes the job from others (default: a random one).

    Raises:
        UsageError: the application is not supported on Slurm.
    """
    token = token or random_id()
    context = context_of(DIALECT, app, cfg, session, copies, token)
    script, files = script_of(app, cfg, context), files_of(app, cfg, context)
    return SlurmRequest(
        context.name,
        token,
        context.folder,
        script,
        files,
        copies=dict(copies),
        builds=list(builds),
        fallback=context.fallback,
    )
