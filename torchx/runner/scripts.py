"""Checks at a submission that the script of a role exists, where it would run with files of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from torchx.errors import UsageError
from torchx.scheduling.base import AnyScheduler, BuildsImages
from torchx.settings import AFTER
from torchx.specs.app import AppDef, Role
from torchx.suggestions import did_you_mean

_COMMAND = (
    r"(?s)python3?\0(?P<script>[^-/\0${][^\0${]*).*|"
    r"bash\0-c\0[^\0]*\btorchrun (?:(?! -m ).)*? (?P<of_torchrun>[\w.-][\w./-]*\.py)\b.*"
)
"""The program and arguments of `utils.python` and `dist.torchrun`, separated by zero bytes."""


def require_scripts(app: AppDef, engine: AnyScheduler) -> None:
    """Rejects an application whose script is missing in its workspace, or on this machine if it runs here.

    Raises:
        UsageError: a script does not exist.
    """
    for role, script, folders, found in _scripts(app, engine):
        if folders and not found:
            folder = Path(folders[0]).absolute()
            raise UsageError(
                f"the script `{script}` of role `{role.name}` does not exist in {folder}",
                hint=did_you_mean(
                    script, [path.name for path in folder.glob("*.py")], "a path is relative to this folder"
                ),
                code="missing_script",
            )


def changed_since(app: AppDef, engine: AnyScheduler, then: float) -> str:
    """Returns the script of an application that was changed after a time; empty without one."""
    found = ((script, path) for _, script, _, paths in _scripts(app, engine) for path in paths)
    return next((script for script, path in found if path.stat().st_mtime > then), "")


def _scripts(app: AppDef, engine: AnyScheduler) -> Iterator[tuple[Role, str, list[str], list[Path]]]:
    """Yields the roles that run a script, the script, the folders that may have it, and its paths there."""
    for role in app.roles:
        match = re.fullmatch(_COMMAND, "\0".join([role.entrypoint, *role.args]))
        if match is not None and not role.metadata.get(AFTER):  # an earlier role may write the script
            script, folders = match[match.lastgroup or 0], _folders(role, engine)
            yield (
                role,
                script,
                folders,
                [path for folder in folders if (path := Path(folder, script)).exists()],
            )


def _folders(role: Role, engine: AnyScheduler) -> list[str]:
    """Returns the folders of this machine that have the files of a role; empty if others may have them."""
    sent = {}
    if role.workspace is not None:
        sent = role.workspace.projects
    if not sent:
        if engine.workspaces_on_request:
            return [".", role.image]
        return []
    whole = [source for source, target in sent.items() if not target and Path(source).is_dir()]
    if len(sent) == 1 and not isinstance(engine, BuildsImages):
        return whole
    return []
