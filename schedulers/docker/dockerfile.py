"""The Dockerfile of a workspace's image: its own, or a default that copies the files into the base image."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress

from torchx.json_limits import Data
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import Tree, open_project

CONTENT_LABEL = "torchx.pytorch.org/workspace"
"""Label of an image: the digest of its inputs."""

BASE_LABEL = "torchx.pytorch.org/workspace-base"
"""Label of an image: the ids of its base images. Only the result of a build has it."""

DOCKERFILE = "Dockerfile.torchx"
"""Name of the Dockerfile at the top of a workspace."""

FILES = "workspace"
"""The folder of the files in the build context, if the workspace has no Dockerfile of its own."""

FOLDER = "/workspace"
"""Target in an image without a working directory: in `/`, a folder `lib` would replace the system's."""

LARGEST = 1 << 20
"""Maximum bytes read of a Dockerfile."""

_VARIABLE = r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})"
_FROM = r"(?i)FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*"
_ARG = r"(?i)ARG\s+(.+)"
_IMAGE = r"(?a)\w[\w.-]*(?::\d+)?(?:/[\w.-]+)*(?::[\w.-]+)?(?:@\w+:\w+)?"
_OWNER = r"[\w.-]+(?::[\w.-]+)?"


def own_dockerfile(workspace: Workspace, tree: Tree) -> tuple[str, str]:
    """Returns the path and the text of a workspace's Dockerfile; both are empty without one.

    A Dockerfile excluded by an ignore file is used too, as by the docker command; so its path may be missing
    from the tree.
    """
    entry, path = tree.find(DOCKERFILE), DOCKERFILE
    for _ in range(8):  # a limit, as links can form a cycle
        if entry is None or entry.kind != "link":
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.target))
        entry = tree.find(path)
    if entry is not None:
        if entry.kind == "file":
            return (path, tree.read(entry).decode("utf-8", "replace"))
        return ("", "")
    if any(DOCKERFILE in paths for paths in tree.left.values()):
        for name, target in reversed(workspace.projects.items()):
            project = open_project(name)
            list(project.entries())  # fills `left`
            if target.strip("./") == "" and any(DOCKERFILE in paths for paths in project.left.values()):
                return DOCKERFILE, b"".join(project.pieces(DOCKERFILE, LARGEST)).decode("utf-8", "replace")
    return "", ""


def mentions(text: str, variable: str) -> bool:
    """Returns True if a Dockerfile uses a variable.

    >>> mentions("ARG IMAGE\\nFROM $IMAGE", "IMAGE"), mentions("FROM python # no IMAGES", "IMAGE")
    (True, False)
    """
    return re.search(rf"\b{variable}\b", text) is not None


def images_below(text: str, image: str) -> list[str]:
    """Returns the base images of a Dockerfile that can be determined without running it.

    Invalid image names are left out; the engine reports them.

    Args:
        text: the Dockerfile.
        image: the value of its argument ``IMAGE``.

    >>> images_below("ARG V=3\\nFROM python:$V AS b\\nFROM b\\nFROM ${IMAGE}\\nFROM scratch", "a:1")
    ['python:3', 'a:1']
    >>> images_below("ARG A=python B='3.12-slim'\\nFROM $A:$B\\nFROM $A:$C", "a:1")
    ['python:3.12-slim']
    """
    values: dict[str, str] = {}
    stages: set[str] = set()
    images: dict[str, None] = {}
    lines = re.sub(r"\\[ \t]*\n", " ", re.sub(r"^[ \t]*#.*\n?", "", text, flags=re.MULTILINE)).splitlines()
    for line in map(str.strip, lines):
        if not stages and not images and (argument := re.fullmatch(_ARG, line)):
            values |= _pairs(argument[1])
        if stage := re.fullmatch(_FROM, line):
            name = _filled(stage[1], {**values, "IMAGE": image})
            if re.fullmatch(_IMAGE, name) and name.lower() not in (*stages, "scratch"):
                images[name] = None
            stages.add((stage[2] or f"{len(stages)}").lower())
    return list(images)


def _pairs(text: str) -> dict[str, str]:
    """Returns the arguments of an ARG line and their defaults."""
    with suppress(ValueError):  # an unclosed quote
        return {name: value for name, _, value in (pair.partition("=") for pair in shlex.split(text))}
    return {}


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(_VARIABLE, lambda match: values.get(match[1] or match[2]) or match[3] or "", text)


def default_dockerfile(below: Data | None, digest: str) -> str:
    """Returns the Dockerfile that copies the files into the working directory of an image.

    The files are owned by the image's user, which otherwise could not read files with mode 600.

    Args:
        below: the engine's description of the base image.
        digest: the digest of all inputs, as a label that identifies what an interrupted build leaves.

    >>> print(default_dockerfile({"Config": {"User": "bob", "WorkingDir": "/app"}}, "0a1b"))
    ARG IMAGE
    FROM $IMAGE
    LABEL torchx.pytorch.org/workspace=0a1b
    COPY --chown=bob ["workspace/", "./"]
    """
    config = (below or {}).get("Config") or {}
    owner = str(config.get("User") or "")
    option = ""
    if re.fullmatch(_OWNER, owner):
        option = f"--chown={owner} "
    bare = (config.get("WorkingDir") or "/") == "/"
    lines = ["ARG IMAGE", "FROM $IMAGE", f"LABEL {CONTENT_LABEL}={digest}"]
    lines += [f"COPY {option}{json.dumps([FILES + '/', FOLDER + '/' if bare else './'])}"]
    return "\n".join([*lines, f"WORKDIR {FOLDER}"] if bare else lines)
