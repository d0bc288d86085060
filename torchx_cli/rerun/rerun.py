"""`torchx rerun`: submit an application again, as it was submitted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx_cli import run_flags
from torchx_cli.applications import find, short_name
from torchx_cli.commands.run import check_combination, submit_again
from torchx_cli.flags import Handle, argument, tags_given
from torchx_cli.resubmission import from_record, is_in_image
from torchx_cli.run_request import RunRequest
from torchx_cli.session import session_of
from torchx_cli.terminal.output import output_format

with lazy_imports:
    from torchx.sweeps import paths
    from torchx_cli import recorded
    from torchx_cli.rerun import rebuild, restored
    from torchx_cli.sweep import rerun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchx.runner.api import Runner
    from torchx_cli.resubmission import Submission
    from torchx_cli.session import Session


EXAMPLES = """\b
Examples:
  torchx rerun @last
  torchx rerun --set lr=0.01 @last
  torchx rerun @last -- --lr 0.01 --epochs 3
"""

FLAGS = run_flags.RERUN


def rerun_(
    ctx: typer.Context,
    handle: Handle,
    arguments: Annotated[
        list[str] | None,
        argument(metavar="[-- ARGS...]", help="New positional arguments."),
    ] = None,
    **flags: Any,
) -> int:
    """Submit an application again, from its record: the same roles, options and scheduler.

    It may still run or have ended. --set changes arguments, -s and -cfg change the scheduler and its
    options. The copy or image of its workspace is used again if it still exists. --as-it-was restores
    the commit, the changes and the untracked files in a new folder, and runs there. Output and exit
    code are as for `torchx run`.
    """
    form = output_format(flags["output"], flags["json"])
    os.environ[settings.TORCHX_CONTEXT_NAME] = "cli_run"  # inherited by local replicas
    request = RunRequest(
        scheduler=flags["scheduler"],
        scheduler_args=list(flags["cfg"]),
        tags=tags_given(flags["tag"]),
    )
    failed, changes = flags["failed"], flags["set"]
    session = session_of(ctx)
    request.take(flags, session.config)
    check_combination(request, form)
    with request.with_origins(), session.runner() as runner:
        full, described = find(runner, handle, full=True, prefer=[paths.BACKEND] if failed else [], acts=True)
        if runner.scheduler_of(full).has_runs:
            rerun.check(request, changed=bool(changes or arguments or flags["as_it_was"]))
            return rerun.rerun_sweep(full, runner, request, form, failed=failed)
        if failed:
            raise UsageError(
                "--failed applies to sweeps", hint=f"torchx rerun {handle}", code="conflicting_flags"
            )
        request.named = (handle, short_name(runner, full))
        submission = _changed(
            from_record(full, described), session, runner, request, changes, arguments or []
        )
        if not flags["as_it_was"]:
            return submit_again(submission, request, form, runner, session.config)
        with restored.source_of(submission, request, runner) as submission:
            return submit_again(submission, request, form, runner, session.config)


def _changed(
    submission: Submission,
    session: Session,
    runner: Runner,
    request: RunRequest,
    changes: Sequence[str],
    arguments: Sequence[str],
) -> Submission:
    """Returns a submission with other arguments of its component, and the command line that repeats it.

    Raises:
        StateError: its arguments are not on record.
        UsageError: an argument is invalid.
    """
    app, handle = submission.app, submission.handle
    other = ""
    if request.scheduler != submission.scheduler:
        other = request.scheduler
    is_changed = bool([*changes, *arguments])
    run = app.metadata.get(settings.RUN, "")  # a run of a sweep gets a command line of its own
    if not (is_changed or request.scheduler_args or other or run) and settings.COMMAND_LINE in app.metadata:
        return submission
    command = recorded.recorded_command(app.metadata, recorded.provenance_of(runner, handle)[0])
    if command is None:
        if is_changed:
            raise StateError(
                f"the arguments of {handle} are not on record here, so they cannot be changed",
                hint="submit it with its component: torchx run ...",
                code="not_repeatable",
            )
        return submission
    if is_changed or (other and any(is_in_image(role, submission) for role in app.roles)):
        rebuilt = rebuild.Rebuilt(command, session.config, handle)
        submission = submission._replace(images={role.name: role.image for role in rebuilt.before.roles})
        if is_changed:
            app, command = rebuilt.with_changes(app, changes, arguments)
    app.metadata = {**app.metadata, **command.on(other, request.scheduler_args).metadata()}
    return submission._replace(app=app)
