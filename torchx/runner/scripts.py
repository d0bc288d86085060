"""Checks at a submission that the script of a role exists, where it would run with files of this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torchx.errors import UsageError
from torchx.scheduling.base import BuildsImages, Scheduler
from torchx.settings import AFTER
from torchx.specs.app import AppDef, Role
from torchx.suggestions import did_you_mean

_COMMAND = re.compile(
    r"python3?\0([^-\0][^\0]*).*|bash\0-c\0[^\0]*\btorchrun (?:(?! -m ).)*? ([\w./-]+\.py)\b.*", re.S
)
"""The program and arguments of `utils.python` and `dist.torchrun`, separated by zero bytes."""


def require_scripts(app: AppDef, engine: Scheduler[Any]) -> None:
    """Rejects an application whose script is missing in its workspace, or on this machine if it runs here.

    Raises:
        UsageError: a script does not exist.
    """
    for role in app.roles:
        script, folders = script_of(role), _folders(role, engine)
        # an earlier role may write it
        if (
            folders
            and script
            and not role.metadata.get(AFTER)
            and not any((f / script).exists() for f in folders)
        ):
            raise UsageError(
                f"the script `{script}` of role `{role.name}` does not exist in {folders[0].absolute()}",
                hint=did_you_mean(script, [path.name for path in folders[0].glob("*.py")]),
                code="missing_script",
                facts={"given": script},
            )


def script_of(role: Role) -> str:
    """Returns the Python script that a role runs, by Python or by torchrun; empty if that is unknown.

    >>> script_of(Role("r", "", entrypoint="python3", args=["my train.py", "x.py"]))
    'my train.py'
    >>> script_of(Role("r", "", entrypoint="bash", args=["-c", "A=1 torchrun --nnodes 1 train.py --lr 1"]))
    'train.py'
    >>> script_of(Role("r", "", entrypoint="bash", args=["-c", "torchrun --nnodes 1 -m train x.py"]))
    ''
    """
    match = _COMMAND.fullmatch("\0".join([role.entrypoint, *role.args]))
    script = (match[1] or match[2]) if match is not None else ""
    return "" if Path(script).is_absolute() or "$" in script or "{" in script else script


def _folders(role: Role, engine: Scheduler[Any]) -> list[Path]:
    """Returns the folders of this machine that have the files of a role; empty if others may have them."""
    projects = role.workspace.projects if role.workspace is not None else {}
    if not projects:
        return [Path(), Path(role.image)] if engine.on_this_machine else []
    sent = [Path(source) for source, target in projects.items() if not target and Path(source).is_dir()]
    return sent if len(projects) == 1 and not isinstance(engine, BuildsImages) else []
