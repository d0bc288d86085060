"""Workspaces in images for schedulers of other packages: built at the dry-run, pushed at the submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx.errors import StateError, UsageError
from torchx.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import CfgVal, runopts
    from torchx.specs.workspace import Workspace

_LOCAL = "sha256:"
"""How the id of an image begins: it means something to the engine that has built it alone."""


class DockerWorkspaceMixin(WorkspaceMixin[dict[str, tuple[str, str]]]):
    """Lets a scheduler whose jobs run in images take workspaces; a base class beside its own.

    The images are built by the Docker engine of this machine when the request is made. The scheduler calls
    :meth:`dryrun_push_images` where it makes the request, and :meth:`push_images` with the result where it
    submits it.

    Args:
        args, kwargs: for the scheduler.
        docker_client: not looked at: the engine is found as the docker command finds it.

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

    def workspace_opts(self) -> runopts:
        """Returns the run options that workspaces add to those of the scheduler."""
        from torchx.specs.run_options import runopts

        opts = runopts()
        opts.add("image_repo", type_=str, help="registry repository to push images of workspaces to")
        opts.add("workspace_limit_mb", type_=int, default=1024, help="MB that a workspace may have")
        opts.add("quiet", type_=bool, default=False, help="show no progress of builds and pushes")
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Lays a workspace over the image of a role, and sets ``role.image`` to the id of the result.

        Raises:
            UsageError: the workspace is not there, or too large.
            StateError: no engine answers, or it cannot build the image.
        """
        from dataclasses import replace

        from torchx.schedulers.docker.engine.client import Engine
        from torchx.schedulers.docker.images.workspace import plan_image, provide_image
        from torchx.specs.workspace import Workspace
        from torchx.workspace.tree import look_at

        given = Workspace.from_str(workspace) if isinstance(workspace, str) else workspace
        looked = replace(role, workspace=given)
        limit = cfg.get("workspace_limit_mb")
        tree = look_at(looked, limit if isinstance(limit, int) else None).tree
        # it gets the name of a registry when it is pushed
        role.image = provide_image(Engine(), plan_image(looked, tree, {}), _silence)[0]

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> dict[str, tuple[str, str]]:
        """Names images that only this machine's engine knows as they will be called in a registry.

        Args:
            app: its roles get the new names.
            cfg: ``image_repo`` says where.

        Returns:
            Image id -> repository and tag, for :meth:`push_images`.

        Raises:
            UsageError: there are such images, and ``image_repo`` is not given.
        """
        images: dict[str, tuple[str, str]] = {}
        repository = cfg.get("image_repo")
        for role in app.roles:
            if role.image.startswith(_LOCAL):
                if not repository:
                    raise UsageError(
                        f"the image of role `{role.name}` is on this machine alone: {role.image}",
                        hint="name a repository to push it to: -cfg image_repo=REGISTRY/NAME",
                    )
                tag = role.image.removeprefix(_LOCAL)
                images[role.image] = (str(repository), tag)
                role.image = f"{repository}:{tag}"
        return images

    def push_images(self, images_to_push: Mapping[str, tuple[str, str]]) -> None:
        """Pushes images, unless their registry has them.

        Args:
            images_to_push: image id -> repository and tag, as :meth:`dryrun_push_images` returns it.

        Raises:
            StateError: no engine answers, it lacks an image, or the registry does not take one.
        """
        from torchx.schedulers.docker.engine.client import Engine
        from torchx.schedulers.docker.images.pull import inspect_image
        from torchx.schedulers.docker.images.push import push

        if not images_to_push:
            return
        engine = Engine()
        for image, (repository, tag) in images_to_push.items():
            found = inspect_image(engine, image)
            if found is None:
                raise StateError(f"the engine has no image {image} any more", hint="make a new dry-run")
            engine.call("POST", f"/images/{image}/tag", {"repo": repository, "tag": tag})
            push(engine, f"{repository}:{tag}", found, _silence)


def _silence(line: str) -> None:
    """Tells nobody."""
