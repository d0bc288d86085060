"""The record of the source of applications: begun at the submission, found by handle, removed with them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import StateError, TorchxError
from torchx.jobs.paths import Home, state_home, user_home
from torchx.json_shape import typed_at
from torchx.lazy import lazy_imports
from torchx.machine import files, threads, trees
from torchx.masking import mask_text
from torchx.provenance.model import Provenance, Source
from torchx.provenance.repository import is_commit
from torchx.scheduling.base import KeepsProvenance

with lazy_imports:
    from torchx.provenance import launch, restore, store
    from torchx.supervisor import process

if TYPE_CHECKING:
    from torchx.provenance.submission import Submission
    from torchx.runner.host import Host
    from torchx.scheduling.responses import DescribeAppResponse
    from torchx.specs.app import AnyDryRunInfo

ELSEWHERE = "the other facts were not recorded, or are on the machine that submitted it"


def begin(
    runner: Host,
    handle: str,
    info: AnyDryRunInfo,
    submission: Submission,
    command_line: str = "",
) -> str:
    """Begins the record of an application's source, and does not wait for its end.

    Args:
        runner: used to find the files.
        handle: the application.
        info: its request.
        submission: the facts that were read before the submission.
        command_line: the command line that submitted it, with secrets masked.

    Returns:
        The reason why the source is not recorded, or an empty string.
    """
    folder = None
    try:
        home = state_home()
        folder = runner._provenance_folder(handle)
        if folder is None:
            return ""  # deleted meanwhile
        near = isinstance(runner.scheduler_of(handle), KeepsProvenance)
        roles = []
        if info.app is not None:
            roles = info.app.roles
        live = near and not any(role.workspace for role in roles)
        program = ""
        if near and roles:
            program = _program(roles[0].entrypoint, roles[0].env)
        pid = launch.start(folder, submission, command_line, home, program, live=live)
    except TorchxError as error:
        return f"its source is not recorded: {error.message}"
    except OSError as error:
        return f"its source is not recorded at {error.filename or folder}: {error.strerror}"
    threads.begin(process.reap, pid)
    return ""


def _program(entrypoint: str, env: dict[str, str]) -> str:
    """Returns the path of a program; empty if it does not exist."""
    # as for local jobs: last, the programs installed beside this one
    path = os.pathsep.join(
        [env.get("PATH") or os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    )
    found = shutil.which(entrypoint, path=path)
    if found is None:
        return ""
    return str(Path(found).absolute())


def from_metadata(described: DescribeAppResponse | None) -> Provenance | None:
    """Returns the commit and the branch that an application's metadata has, None without them."""
    if described is None:
        return None
    commit, _, branch = typed_at(described.metadata, str, settings.SOURCE).partition(" ")
    if not is_commit(commit):
        return None
    at = 0.0
    if described.submitted_at is not None:
        at = described.submitted_at.timestamp()
    return Provenance(at, source=Source("", commit, mask_text(branch)), notes=(ELSEWHERE,))


def inherited(
    runner: Host, handle: str, found: Provenance, now: Submission, notes: Sequence[str] = ()
) -> Submission:
    """Returns the facts of a submission with the source of an earlier application.

    Args:
        runner: used to find the files.
        handle: the earlier application.
        found: its provenance.
        now: the facts of this submission.
        notes: what differs from the earlier application.
    """
    folder = runner._provenance_folder(handle)
    if found.source is None or not found.source.complete or folder is None:
        return now._replace(
            repository=None, notes=(f"it reuses the source of {handle}, which is not recorded",)
        )
    notes = (f"it reuses the source of {handle}", *notes)
    return now._replace(directory=found.directory, inherited=found.source, earlier=str(folder), notes=notes)


# --- restored trees -------------------------------------------------------------------------------------


def restored_tree(runner: Host, handle: str, found: Provenance) -> tuple[Path, list[str]]:
    """Restores the source of an application in a new folder; returns it, and notes on missing parts.

    Raises:
        StateError: it cannot be restored.
    """
    folder = runner._provenance_folder(handle)
    if folder is None:
        raise StateError(f"no source is recorded for {handle}", code="not_recorded")
    home = Home(state_home()).restored
    files.make_folder(home)
    target = home / os.urandom(6).hex()
    try:
        return target, restore.restore(found, store.Store(folder), target)
    except BaseException:
        trees.discard(target)
        raise


def give(tree: Path, handle: str) -> None:
    """Makes an application the owner of a restored tree, which is removed with it.

    Args:
        tree: the tree.
        handle: the application; empty just before its submission. Without an owner, `prune` removes the tree.
    """
    files.write_file(_owner(tree), handle.encode())


def discard(tree: Path) -> None:
    """Removes a restored tree."""
    trees.discard(tree)
    with suppress(OSError):
        _owner(tree).unlink(missing_ok=True)


def _owner(tree: Path) -> Path:
    return Home(tree.parent.parent).owner_of(tree.name)


def forget(runner: Host, handle: str) -> None:
    """Removes the source of an application that was removed, and the tree that was restored for it."""
    with suppress(TorchxError, OSError):
        if not isinstance(runner.scheduler_of(handle), KeepsProvenance):
            folder = runner._provenance_folder(handle)
            if folder is not None:
                hidden = folder.with_name(f".{folder.name}")
                folder.rename(hidden)  # first: the recording process then writes nothing more
                trees.discard(hidden)
    with suppress(TorchxError, OSError):
        home = Home(user_home())
        for owner in home.restored.glob(home.owner_of("*").name):
            with suppress(OSError):  # the others count also if one is damaged
                if files.read_file(owner, 1 << 16) == handle.encode():
                    discard(home.restored / owner.name.removeprefix(home.owner_of("").name))
