"""Plans the image of a workspace: its name is a hash of all inputs. Nothing is built here."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from torchx.errors import RunOptionError, UsageError
from torchx.printable import counted
from torchx.schedulers.docker.dockerfile import images_below, mentions, own_dockerfile
from torchx.scheduling.progress import MB
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import RunOptions
from torchx.workspace.tree import Tree, scan_workspaces, shown

NAME = "torchx-workspace"
"""The repository of images that are not pushed."""

TAG_LENGTH = 24
"""Characters of the digest used as the tag."""

_REPOSITORY = re.compile(
    r"(?:[\w.-]+(?::\d+)?/|\[[0-9a-fA-F:]+\](?::\d+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)


@dataclass(frozen=True)
class ImagePlan:
    """An image to build, unless the engine has it.

    Attributes:
        name: its name.
        base: the role's image.
        workspace: the workspace, as specified.
        dockerfile: the path of the workspace's Dockerfile; empty to copy the files over ``base``.
        digest: the hash of all inputs.
        push: whether to push it to a registry.
        tree: the files.
        steps: the text of the Dockerfile.
    """

    name: str
    base: str
    workspace: str
    dockerfile: str
    digest: str
    push: bool
    tree: Tree = field(compare=False)
    steps: str = ""

    @property
    def about(self) -> str:
        """A description of its inputs, for users."""
        how = ""
        if self.dockerfile:
            how = f" by its {self.dockerfile}"
        size = f"{counted(self.tree.files, 'file')}, {self.tree.size / MB:,.1f} MB"
        return f"{self.base} with workspace {self.workspace}{how} ({size})"

    @property
    def why(self) -> str:
        """A line for the output of a dry-run."""
        then = " and pushed" if self.push else ""
        return f"{self.name} is built from {self.about}{then}, unless it already exists"

    @property
    def when(self) -> str:
        """The condition under which it is built."""
        below = ", ".join(self.below) or "base image"
        when = f"unless the engine has it, built from these files and the current {below}"
        return when + ("; pushed unless the registry has it" if self.push else "")

    @property
    def below(self) -> list[str]:
        """Its base images."""
        if self.dockerfile:
            return images_below(self.steps, self.base)
        return [self.base]


def plan_images(app: AppDef, cfg: RunOptions) -> tuple[list[ImagePlan], list[str]]:
    """Plans an image for each role with a workspace; only reads files.

    Args:
        app: the application; its roles get the names of the images.
        cfg: run options.

    Returns:
        The images without duplicates, and notes, one line each.

    Raises:
        UsageError: a workspace does not exist or is too large, or an image cannot be planned.
    """
    plans: dict[str, ImagePlan] = {}
    notes: dict[str, None] = {}
    for role, tree in scan_workspaces(app.roles, cfg):
        plan = plan_image(role, tree, cfg)
        role.image = plan.name
        plans[plan.name] = plan
        notes |= dict.fromkeys(tree.notes)
    return list(plans.values()), list(notes)


def plan_image(role: Role, tree: Tree, cfg: RunOptions) -> ImagePlan:
    """Plans the image of a role's image and workspace; reads files, but makes no network connection.

    Args:
        role: the role, with the base image and the workspace.
        tree: the files of the workspace.
        cfg: the run options; ``image_repo`` is the repository to push the image to.

    Raises:
        UsageError: the role has no image, or ``image_repo`` is not a repository.
    """
    if not role.image:
        raise UsageError(f"role `{role.name}` has a workspace, but no image to add it to")
    repository = str(cfg.get("image_repo") or "")
    _check_repository(repository)
    assert role.workspace is not None
    dockerfile, steps = own_dockerfile(role.workspace, tree)
    workspace = shown(str(role.workspace))
    content = tree.digest  # leaves out files that were removed
    modes = "".join(f"{entry.mode:o} " for entry in tree.entries if entry.kind != "link")
    # the name of the workspace differs between machines, so it is included only if the image depends on it
    argument = ""
    if mentions(steps, "WORKSPACE"):
        argument = workspace
    parts = [content, modes, role.image, dockerfile, steps, argument]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    name = f"{repository or NAME}:{digest[:TAG_LENGTH]}"
    return ImagePlan(name, role.image, workspace, dockerfile, digest, bool(repository), tree, steps)


def _check_repository(repository: str) -> None:
    if not repository or _REPOSITORY.fullmatch(repository):
        return
    last = repository.rpartition("/")[2]
    if "://" in repository:
        expected = "a repository without a protocol"
    elif "@" in repository or ":" in last:
        expected = "a repository without a tag"
    else:
        expected = "REGISTRY/NAME in lowercase letters, digits, and . _ - between them"
    raise RunOptionError(
        "image_repo",
        f"is `{repository}`, expected {expected}",
        hint="e.g. -cfg image_repo=registry.example.com/team/jobs",
    )
