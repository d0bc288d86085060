"""The records of a submission: its command line, and its source, read after the handle is printed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.scheduling.notes import as_note
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import note_all

with lazy_imports:
    from torchx import command_line
    from torchx.provenance import submission as submissions
    from torchx.runner import provenance
    from torchx_cli.terminal import attach

if TYPE_CHECKING:
    from pathlib import Path

    from torchx.provenance.submission import Submission
    from torchx.runner.api import Runner
    from torchx.specs.app import AnyDryRunInfo, AppDef

LONGEST_COMMAND = 10_000
"""Maximum characters of a command line that is recorded."""


class Recording:
    """The record of one submission.

    Args:
        app: the application; gets the commit and the branch as metadata.
        submission: the facts at this moment; None to record nothing.
        tree: the restored working tree that the application runs in; None for none.

    Attributes:
        handle: the handle, after the submission.
    """

    def __init__(self, app: AppDef, submission: Submission | None, tree: Path | None = None) -> None:
        self._submission, self._tree = submission, tree
        self.handle = ""
        app.metadata = {name: value for name, value in app.metadata.items() if name != settings.SOURCE}
        if submission is not None:
            app.metadata |= submissions.small_facts(submission)

    def begin(self, runner: Runner, handle: str, info: AnyDryRunInfo) -> None:
        """Begins the record, once; the restored working tree is removed with the application."""
        self.handle = handle
        tree, self._tree = self._tree, None
        submission, self._submission = self._submission, None
        notes: list[str] = []
        with as_note(notes, "its restored working tree is not removed with it"):
            if tree is not None:
                provenance.give(tree, handle)
        with as_note(notes, "its source is not recorded"):
            if submission is not None:
                recorded = None
                if info.app is not None:
                    recorded = info.app.metadata.get(settings.COMMAND_LINE)
                line = recorded or attach.command_line()
                notes += filter(None, [provenance.begin(runner, handle, info, submission, line)])
        note_all(notes)


def of_run(app: AppDef) -> Recording:
    """Returns the record of the submission of a new application."""
    return Recording(app, submissions.look() if submissions.is_enabled() else None)


def of_rerun(app: AppDef, earlier: str, runner: Runner) -> Recording:
    """Returns the record of the submission of an earlier application.

    If it runs in a copy of files or in an image, the source comes from the earlier application.

    Args:
        app: the application.
        earlier: the handle of the earlier one; may be empty.
        runner: used to find the record of the earlier one.
    """
    if not submissions.is_enabled():
        return Recording(app, None)
    now, found = submissions.look(), None
    if earlier:
        with suppress(TorchxError):
            found = runner.provenance(earlier)
    if found is not None and not found.live:
        now = provenance.inherited(runner, earlier, found, now)
    elif any(role.workspace for role in app.roles):
        now = now._replace(repository=None, notes=("the source of the files that run again is not recorded",))
    return Recording(app, now)


def record_command(app: AppDef, component: str, argv: Sequence[str]) -> None:
    """Records the command line with an application, with secrets masked, unless it is very long."""
    line = mask_text(attach.command_line())
    if len(line) <= LONGEST_COMMAND:
        names = f"torchx run {without_values(component, argv)}"
        app.metadata = {**app.metadata, settings.COMMAND_LINE: line, settings.COMMAND_NAMES: names}


def without_values(component: str, argv: Sequence[str]) -> str:
    """Returns a component with its flags, and `…` instead of their values and of arguments.

    >>> without_values("utils.sh", ["--env", "A=1", "--image=i", "-hgpu", "--", "ls", "-l"])
    'utils.sh --env … --image … -h … …'
    """
    parts = [component]
    for word in argv:
        if command_line.looks_like_flag(word) and word != "--":
            if word.startswith("--"):
                name = word.partition("=")[0]
            else:
                name = word[:2]
            parts += [name] if name == word else [name, "…"]
        elif parts[-1].startswith("-") and word != "--":
            parts.append("…")
        else:
            return " ".join([*parts, "…"])
    return " ".join(parts)
