"""`torchx rerun`: submit an application again, as it was submitted."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from torchx import settings
from torchx.lazy import lazy_imports
from torchx_cli.applications import find
from torchx_cli.commands.run import check_combination, submit_again
from torchx_cli.environment import Env, EnvFile, Environment, Secrets
from torchx_cli.flags import (
    Detach,
    Dryrun,
    Handle,
    Log,
    Note,
    Notify,
    NotifyOn,
    RequestOutput,
    ResultJson,
    Tags,
    Wait,
    tags_given,
)
from torchx_cli.resubmission import from_record
from torchx_cli.run_request import RunRequest, notifications_of
from torchx_cli.session import session_of
from torchx_cli.terminal.output import output_format

with lazy_imports:
    from torchx_cli import restored


def rerun_(
    ctx: typer.Context,
    handle: Handle,
    as_it_was: Annotated[
        bool,
        typer.Option("--as-it-was", help="With the source that it was submitted from, restored from git."),
    ] = False,
    env: Env = [],  # noqa: B006  # typer makes a new one
    env_file: EnvFile = [],  # noqa: B006
    secret: Secrets = [],  # noqa: B006
    dryrun: Dryrun = False,
    detach: Detach = False,
    wait: Wait = False,
    log: Log = False,
    notify: Notify = [],  # noqa: B006
    notify_on: NotifyOn = "",
    tag: Tags = [],  # noqa: B006
    note: Note = "",
    output: RequestOutput = "",
    json: ResultJson = False,
) -> int:
    """Submit an application again, from its record: the same roles, options and scheduler.

    It may be running or have ended, successfully or not. The workspace is that of the earlier submission if
    its copy or image still exists. With --as-it-was, the commit, the changes and the untracked files are
    restored in a new folder, and it runs there. The output and the exit code are those of `torchx run`.
    """
    form = output_format(output, json)
    os.environ[settings.TORCHX_CONTEXT_NAME] = "cli_run"  # inherited by local replicas
    request = RunRequest(
        dryrun=dryrun,
        wait=wait,
        log=log,
        detach=detach,
        environment=Environment(env, env_file, secret),
        tags=tags_given(tag),
        note=note,
    )
    check_combination(request, form)
    session = session_of(ctx)
    request.notify = notifications_of(notify, notify_on, session.config)
    with session.runner() as runner:
        submission = from_record(*find(runner, handle, full=True))
        if not as_it_was:
            return submit_again(submission, request, form, runner)
        with restored.source_of(submission, request, runner) as submission:
            return submit_again(submission, request, form, runner)
