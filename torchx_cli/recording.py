"""The record of the source of a submission, which begins when the handle has been printed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx_cli.terminal.output import note

with lazy_imports:
    from torchx.provenance import submission as submissions
    from torchx.runner import provenance
    from torchx_cli.terminal import attach

if TYPE_CHECKING:
    from pathlib import Path

    from torchx.provenance.submission import Submission
    from torchx.runner.api import Runner
    from torchx.specs.app import AppDef, AppDryRunInfo


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

    def begin(self, runner: Runner, handle: str, info: AppDryRunInfo[Any]) -> None:
        """Begins the record, once; the restored working tree is removed with the application."""
        self.handle = handle
        if self._tree is not None:
            provenance.give(self._tree, handle)
            self._tree = None
        submission, self._submission = self._submission, None
        if submission is not None:
            recorded = info.app.metadata.get(settings.COMMAND_LINE) if info.app is not None else None
            line = recorded or attach.command_line()
            why = provenance.begin(runner, handle, info, submission, line)
            if why:
                note(f"note: {why}")


def of_run(app: AppDef) -> Recording:
    """Returns the record of the submission of a new application."""
    return Recording(app, submissions.look() if submissions.is_enabled() else None)


def of_rerun(app: AppDef, earlier: str, runner: Runner) -> Recording:
    """Returns the record of the submission of an earlier application.

    If it runs in a copy of files or in an image, the source is that of the earlier application.

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
