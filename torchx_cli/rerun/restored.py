"""`rerun --as-it-was`: the source of an earlier application is restored, and the application runs there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.provenance.model import PROGRAM
from torchx.runner import provenance
from torchx.specs.workspace import Workspace
from torchx_cli.recording import Recording
from torchx_cli.resubmission import existing_copy, is_in_image
from torchx_cli.terminal.output import note_all

with lazy_imports:
    import tempfile

    from torchx.provenance import drift, git, surroundings
    from torchx.provenance import submission as submissions
    from torchx_cli.terminal import source_text

if TYPE_CHECKING:
    from torchx.provenance.model import Provenance
    from torchx.runner.api import Runner
    from torchx.specs.app import Role
    from torchx_cli.resubmission import Submission
    from torchx_cli.run_request import RunRequest

LONGEST_LISTING = 30.0
"""Maximum seconds to list the packages that are installed now."""


@contextmanager
def source_of(submission: Submission, request: RunRequest, runner: Runner) -> Iterator[Submission]:
    """Restores the source of an earlier application where that is needed; yields what to submit.

    If the application ran in the working tree itself, this process changes its folder to the restored one,
    which is removed with the new application. Otherwise workspaces are copied from it, and it is removed.

    Args:
        submission: the earlier application.
        request: gets the record of the source.
        runner: used to find the record of the earlier application.

    Raises:
        StateError: its source is not recorded, or cannot be restored.
    """
    found = runner.provenance(submission.handle)
    if found is None:
        raise source_text.not_recorded(submission.handle)
    roles = [role for role in submission.app.roles if found.live or _is_missing(role, submission)]
    tree: Path | None = None
    notes: list[str] = []
    try:
        if roles:
            tree, notes = provenance.restored_tree(runner, submission.handle, found)
            notes += _place(tree, roles, found)
        notes += _drift(found)
        note_all(notes)
        if not request.dryrun:
            now = None
            if submissions.is_enabled():
                now = provenance.inherited(runner, submission.handle, found, submissions.look(), notes)
            kept = None
            if tree is not None and found.live:
                provenance.give(tree, "")
                kept = tree
            request.recording = Recording(submission.app, now, kept)
        yield submission._replace(restored=[role.name for role in roles])
    finally:
        used = found.live and request.recording is not None and request.recording.handle
        if tree is not None and not used:
            provenance.discard(tree)


def _is_missing(role: Role, submission: Submission) -> bool:
    """Returns True if a role has a workspace of which neither an image nor a copy exists."""
    if role.workspace is None or not role.workspace.projects:
        return False
    return not is_in_image(role, submission) and not existing_copy(role, submission)


def _place(tree: Path, roles: list[Role], found: Provenance) -> Iterator[str]:
    """Changes roles to run in a restored working tree, or in a copy of it; yields notes."""
    assert found.source is not None
    top = found.source.folder
    if found.live:
        if not _is_below(os.path.normpath(found.directory), top):
            raise StateError(f"the recorded folder {found.directory} is not in the recorded source {top}")
        inside = os.path.relpath(found.directory, top)
        folder = tree / inside
        folder.mkdir(parents=True, exist_ok=True)  # it may have had no recorded file
        os.chdir(folder)
    for role in roles:
        if role.workspace is not None and not found.live:
            projects = {}
            for project, target in role.workspace.projects.items():
                path = os.path.normpath(os.path.join(found.directory, os.path.expanduser(project)))  # noqa: PTH111, PTH118
                if "://" in project or not _is_below(path, top):
                    yield f"{project} is not in the repository: its current files are used"
                    projects[project] = target
                else:
                    projects[str(tree / os.path.relpath(path, top))] = target
            role.workspace = Workspace(projects)
        elif role.image.startswith("/") and _is_below(role.image, top):
            role.image = str(tree / os.path.relpath(role.image, top))
        for argument in [role.entrypoint, *role.args]:
            if argument.startswith("/") and _is_below(argument, top):
                yield f"{argument} is in the original folder, not in the restored one"


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")


def _drift(found: Provenance) -> list[str]:
    """Returns the differences between the recorded Python and the present one."""
    if found.python is None:
        return []
    program = ""
    if found.python.origin == PROGRAM:
        program = found.python.executable
    deadline = git.Deadline(LONGEST_LISTING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            now = surroundings.read_python(program, Path(folder), deadline)
    except (StateError, OSError) as error:
        return [f"the packages that are installed now are not known: {error}"]
    return list(drift.differences(found.python, now))
