"""`torchx rerun`: submit an application again, as it was submitted."""

from __future__ import annotations

import os

import typer

from torchx import settings
from torchx_cli.applications import find
from torchx_cli.commands.run import check_combination, submit_again
from torchx_cli.environment import Env, EnvFile, Environment, Secrets
from torchx_cli.flags import Detach, Dryrun, Handle, Log, Notify, NotifyOn, RequestOutput, ResultJson, Wait
from torchx_cli.resubmission import from_record
from torchx_cli.run_request import RunRequest, notifications_of
from torchx_cli.session import session_of
from torchx_cli.terminal.output import output_format


def rerun_(
    ctx: typer.Context,
    handle: Handle,
    env: Env = [],  # noqa: B006  # typer makes a new one
    env_file: EnvFile = [],  # noqa: B006
    secret: Secrets = [],  # noqa: B006
    dryrun: Dryrun = False,
    detach: Detach = False,
    wait: Wait = False,
    log: Log = False,
    notify: Notify = [],  # noqa: B006
    notify_on: NotifyOn = "",
    output: RequestOutput = "",
    json: ResultJson = False,
) -> int:
    """Submit an application again, from its record: the same roles, options and scheduler.

    It may be running or have ended, successfully or not. The workspace is that of the earlier submission if
    its copy or image still exists. The output and the exit code are those of `torchx run`.
    """
    form = output_format(output, json)
    os.environ[settings.TORCHX_CONTEXT_NAME] = "cli_run"  # inherited by local replicas
    request = RunRequest(
        dryrun=dryrun, wait=wait, log=log, detach=detach, environment=Environment(env, env_file, secret)
    )
    check_combination(request, form)
    session = session_of(ctx)
    request.notify = notifications_of(notify, notify_on, session.config)
    with session.runner() as runner:
        return submit_again(from_record(*find(runner, handle, full=True)), request, form, runner)
