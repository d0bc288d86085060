"""What image a workspace makes of another: its name is that of all that goes in; nothing is built here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchx.errors import UsageError
from torchx.schedulers.docker.images.dockerfile import images_below, mentions, own_dockerfile
from torchx.scheduling.progress import MB
from torchx.specs.app import Role
from torchx.specs.run_options import CfgVal
from torchx.workspace.tree import Tree, shown

NAME = "torchx-workspace"
"""The repository of images that no registry is named for."""

TAG_LENGTH = 24
"""Characters of the digest that are the tag of an image."""

_REPOSITORY = re.compile(
    r"(?:[\w.-]+(?::\d+)?/|\[[0-9a-fA-F:]+\](?::\d+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)


@dataclass(frozen=True)
class ImagePlan:
    """An image that is to be built, unless the engine has it.

    Attributes:
        name: what it will be called.
        base: the image below it.
        workspace: what is laid over that, as it was asked for.
        dockerfile: the file of the workspace that says how; empty to lay them over its working directory.
        digest: the hash of all of this.
        push: whether it goes to a registry, for engines that pull.
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
        """What goes into it, for people."""
        how = f" by its {self.dockerfile}" if self.dockerfile else ""
        size = f"{counted(self.tree.files)}, {self.tree.size / MB:,.1f} MB"
        return f"{self.base} with workspace {self.workspace}{how} ({size})"

    @property
    def why(self) -> str:
        """One line for people who look at a dry-run."""
        then = ", and pushed" if self.push else ""
        return f"{self.name} is built from {self.about}{then}, unless it is there already"

    @property
    def when(self) -> str:
        """In which case it is built."""
        below = ", ".join(self.below) or "what its Dockerfile names"
        when = f"unless the engine has it, made of these files and the present {below}"
        return when + ("; pushed unless the registry has it" if self.push else "")

    @property
    def below(self) -> list[str]:
        """The images it is built on."""
        return images_below(self.steps, self.base) if self.dockerfile else [self.base]


def counted(files: int) -> str:
    """Returns a number of files as people say it.

    >>> counted(1), counted(2000)
    ('1 file', '2,000 files')
    """
    return f"{files:,} file{'' if files == 1 else 's'}"


def plan_image(role: Role, tree: Tree, cfg: Mapping[str, CfgVal]) -> ImagePlan:
    """Returns the image that a role's workspace makes of its image; reads files, and contacts nothing.

    Args:
        role: its image is the one below, its workspace what the tree was read from.
        tree: the files.
        cfg: ``image_repo`` names the repository of a registry that it is pushed to.

    Raises:
        UsageError: the role has no image, or ``image_repo`` is no repository.
    """
    if not role.image:
        raise UsageError(f"role `{role.name}` has a workspace, but no image to lay it over")
    repository = str(cfg.get("image_repo") or "")
    _check_repository(repository)
    assert role.workspace is not None
    dockerfile, steps = own_dockerfile(role.workspace, tree)
    workspace = shown(str(role.workspace))
    modes = "".join(f"{entry.mode:o} " for entry in tree.entries if entry.kind != "link")
    # the name of the workspace is different on each machine: it counts where the image depends on it
    told = workspace if mentions(steps, "WORKSPACE") else ""
    parts = [tree.digest, modes, role.image, dockerfile, steps, told]
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
        expected = "REGISTRY/NAME in small letters, digits, and . _ - between them"
    raise UsageError(
        f"run option `image_repo` is `{repository}`, expected {expected}",
        hint="e.g. -cfg image_repo=registry.example.com/team/jobs",
    )
