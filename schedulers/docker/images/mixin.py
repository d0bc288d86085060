"""Workspaces in images for schedulers of other packages: built on a dry-run, pushed on submission."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.workspace.api import WorkspaceMixin

with lazy_imports:
    from torchx.schedulers.docker.engine import client
    from torchx.schedulers.docker.images import pull
    from torchx.schedulers.docker.images import push as images_push
    from torchx.schedulers.docker.images import workspace as images_workspace
    from torchx.schedulers.shared import options
    from torchx.specs import run_options
    from torchx.specs import workspace as specs_workspace
    from torchx.workspace import options as workspace_options
    from torchx.workspace import tree as workspace_tree

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import RunOptions

_LOCAL = "sha256:"
"""Prefix of an image id, which only the engine that built it can resolve."""


class DockerWorkspaceMixin(WorkspaceMixin[dict[str, tuple[str, str]]]):
    """Adds workspaces to a scheduler whose jobs run in images.

    The images are built by this machine's Docker engine when the request is created. The scheduler calls
    :meth:`dryrun_push_images` when it creates the request, and :meth:`push_images` with the result when it
    submits it.

    Args:
        args, kwargs: passed to the scheduler.
        docker_client: ignored; the engine is found as the docker command does.

    Example::

        class MyScheduler(DockerWorkspaceMixin, Scheduler[MyRequest]):
            def _submit_dryrun(self, app, cfg):
                images = self.dryrun_push_images(app, cfg)
                ...

            def schedule(self, info):
                self.push_images(info.request.images)
                ...
    """

    def __init__(self, *args: Any, docker_client: object = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def workspace_opts(self) -> run_options.runopts:
        """Returns the run options that workspaces add to the scheduler's."""
        opts = run_options.runopts()
        options.add_shared(opts, "image_repo", "workspace_limit_mb", "quiet")
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | specs_workspace.Workspace, cfg: RunOptions
    ) -> None:
        """Builds an image of a role's image and a workspace, and sets ``role.image`` to its id.

        Raises:
            UsageError: the workspace does not exist, or is too large.
            StateError: no engine answers, or the build fails.
        """
        parsed = specs_workspace.Workspace.from_str(workspace)
        copy = dataclasses.replace(role, workspace=parsed)
        tree = workspace_tree.scan(parsed, workspace_options.limit_of(cfg))
        # it is named after a registry when it is pushed
        role.image = images_workspace.provide_image(
            client.Engine(), images_workspace.plan_image(copy, tree, {}), lambda line: None
        )[0]

    def dryrun_push_images(self, app: AppDef, cfg: RunOptions) -> dict[str, tuple[str, str]]:
        """Replaces the ids of images that are only on this machine's engine by their names in a registry.

        Args:
            app: the application; its roles get the new names.
            cfg: the run options; ``image_repo`` is the repository.

        Returns:
            Image id -> repository and tag, for :meth:`push_images`.

        Raises:
            UsageError: there are such images, but no ``image_repo``.
        """
        images: dict[str, tuple[str, str]] = {}
        repository = cfg.get("image_repo")
        for role in app.roles:
            if role.image.startswith(_LOCAL):
                if not repository:
                    raise UsageError(
                        f"the image of role `{role.name}` is only on this machine: {role.image}",
                        hint="name a repository to push it to: -cfg image_repo=REGISTRY/NAME",
                    )
                tag = role.image.removeprefix(_LOCAL)
                images[role.image] = (str(repository), tag)
                role.image = f"{repository}:{tag}"
        return images

    def push_images(self, images_to_push: Mapping[str, tuple[str, str]]) -> None:
        """Pushes images, unless their registry has them.

        Args:
            images_to_push: image id -> repository and tag, as returned by :meth:`dryrun_push_images`.

        Raises:
            StateError: no engine answers, it lacks an image, or the registry rejects one.
        """
        if not images_to_push:
            return
        engine = client.Engine()
        for image, (repository, tag) in images_to_push.items():
            info = pull.inspect_image(engine, image)
            if info is None:
                raise StateError(f"the engine no longer has image {image}", hint="repeat the dry-run")
            engine.call("POST", f"/images/{image}/tag", {"repo": repository, "tag": tag})
            images_push.push(engine, f"{repository}:{tag}", info, lambda line: None)
