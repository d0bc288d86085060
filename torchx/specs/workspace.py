"""Local folders whose copy a job receives."""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded

with lazy_imports:
    import shutil

    from torchx import yaml_limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PLAIN_PATH = r"(?:[~./]|\w+://|[A-Za-z_])[\w./~@%+-]*"
LONGEST_SHOWN = 200
"""Characters of a workspace that an error repeats."""

_YAML_CONSTANTS = frozenset({"null", "true", "false", "yes", "no", "on", "off"})


@dataclass
class Workspace:
    """Local folders and their targets below the job's root folder.

    Attributes:
        projects: local path to the folder below the root; an empty text is the root itself.

    >>> Workspace({"~/src/lib": "lib"}).is_unmapped_single_project()
    False
    """

    projects: dict[str, str]

    @staticmethod
    def from_str(workspace: str | Workspace | None) -> Workspace:
        """Reads a workspace from text: one path, or a YAML mapping of paths to folders.

        A workspace is returned unchanged.

        Args:
            workspace: None or empty text gives a workspace without projects; a project mapped to null
                is copied to the root.

        Raises:
            UsageError: the text is neither.

        >>> Workspace.from_str("~/src")
        Workspace(projects={'~/src': ''})
        >>> Workspace.from_str("{lib: lib, app: null}")
        Workspace(projects={'lib': 'lib', 'app': ''})
        """
        if isinstance(workspace, Workspace):
            return workspace
        if not workspace or not workspace.strip():
            return Workspace({})
        # a plain path needs no yaml, which is slow to import
        if re.fullmatch(_PLAIN_PATH, workspace) and workspace.lower() not in _YAML_CONSTANTS:
            return Workspace({workspace: ""})
        return _from_yaml(workspace)

    def is_unmapped_single_project(self) -> bool:
        """Returns True if this is one project that is copied to the root."""
        return list(self.projects.values()) == [""]

    def merge_into(self, outdir: str | pathlib.Path) -> None:
        """Copies each project into ``outdir``, in order; later files replace earlier ones.

        Links are copied as links; a project that is one file is copied by its name.

        Raises:
            UsageError: a target is outside ``outdir``.
            StateError: a project does not exist or cannot be read.
        """
        root = pathlib.Path(outdir)
        for project, target in self.projects.items():
            if pathlib.Path(target).is_absolute() or ".." in pathlib.Path(target).parts:
                raise UsageError(
                    f"workspace project `{project}` has the target `{target}`, outside the job's root"
                )
            src, dst = expanded(project), root / target
            try:
                if src.is_file():
                    dst.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(src, dst / src.name)
                else:
                    shutil.copytree(src, dst, symlinks=True, ignore=_all_but(root), dirs_exist_ok=True)
            except (OSError, shutil.Error) as e:
                raise StateError(f"workspace project `{project}` cannot be copied: {e}") from e

    def __bool__(self) -> bool:
        return bool(self.projects)

    def __str__(self) -> str:
        """Returns ``local:target`` pairs joined by ``;``, for display."""
        return ";".join(f"{src}:{dst}" if dst else src for src, dst in self.projects.items())


def _all_but(outdir: Path) -> Callable[[str, list[str]], list[str]]:
    """Excludes the target from the copy if it is inside the project."""
    end = outdir.resolve()
    return lambda folder, names: [n for n in names if type(end)(folder, n).resolve() == end]


def _from_yaml(text: str) -> Workspace:
    if len(text) <= LONGEST_SHOWN:
        short = text
    else:
        short = f"{text[:LONGEST_SHOWN]}..."
    data = yaml_limits.load_yaml(text, source=f"workspace `{short}`")
    if isinstance(data, str):
        return Workspace({data: ""})
    if data is None:
        return Workspace({})
    if isinstance(data, dict):
        projects = {key: "" if value is None else value for key, value in data.items()}
        if all(isinstance(x, str) for pair in projects.items() for x in pair):
            return Workspace(projects)
    raise UsageError(
        f"workspace `{short}` is neither a path nor a mapping of paths to folders",
        hint='e.g. ~/src/app   or   {"~/src/lib": "lib", "~/src/app": ""}',
    )
