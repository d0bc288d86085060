"""`torchx run`: from a component to a running application."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx import settings
from torchx.errors import UsageError
from torchx_cli.flags import Cfg, Scheduler
from torchx_cli.run_request import RunRequest, check_stdin_alone, read_stdin, run_options, split_words
from torchx_cli.session import session_of
from torchx_cli.terminal.masking import remember
from torchx_cli.terminal.output import chosen_format, emit, give_up_output, note, say

if TYPE_CHECKING:
    from torchx.config import Config, Setting
    from torchx.runner.api import Runner
    from torchx.specs.app import AppDef
    from torchx.specs.dryrun import AppDryRunInfo

SETTINGS = {"allow_interspersed_args": False}  # the first word that is no flag is the component


def run_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMPONENT] [ARGS]...",
            show_default=False,
            help="The component, and all that comes after it for the component. Its own flags: "
            "torchx run COMPONENT --help. Without a component: the one of [cli:run] in .torchxconfig.",
        ),
    ] = None,
    scheduler: Scheduler = "",
    cfg: Cfg = [],  # noqa: B006  # typer makes a new one
    dryrun: Annotated[
        bool, typer.Option("--dryrun", help="Show what would be sent, and send nothing.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Return after the submission; the application runs on.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; local schedulers always do.")
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Wait for the end and stream the logs; local schedulers always do.")
    ] = False,
    workspace: Annotated[
        str,
        typer.Option(
            "--workspace",
            "--buck-target",
            metavar="PATH",
            show_default=False,
            help="A folder that travels with the application: a path, any address that fsspec knows, or a "
            "YAML mapping of them to folders.",
        ),
    ] = "",
    parent_run_id: Annotated[
        str,
        typer.Option(
            "--parent_run_id", metavar="ID", show_default=False, help="The run that this one belongs to."
        ),
    ] = "",
    tee_logs: Annotated[
        bool,
        typer.Option("--tee_logs", help="Name the replica before each line of the logs; always so here."),
    ] = False,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read what to run from stdin, as JSON.")] = False,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FORM", show_default=False, help="With --dryrun: json or yaml."
        ),
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout in place of the handle.")
    ] = False,
) -> int:
    """Run an application from a component.

    The handle is the first line on stdout. On a local scheduler the command stays with the
    application: it streams the logs on stderr, Ctrl-C cancels, and the exit code is that of the
    replica that failed first. Closing the terminal leaves the application running.
    """
    form = chosen_format(output, json)
    os.environ[settings.TORCHX_CONTEXT_NAME] = "cli_run"  # what runs on this machine inherits it
    request = RunRequest(
        scheduler=scheduler, scheduler_args=list(cfg), workspace=workspace, parent_run_id=parent_run_id,
        dryrun=dryrun, wait=wait, log=log, detach=detach,
    )  # fmt: skip
    request.argv = list(words or ())
    if stdin:
        check_stdin_alone(request)
        request = read_stdin(sys.stdin)
        request.detach = detach
    session = session_of(ctx)
    if not stdin:
        request.component, request.argv = split_words(request.argv, session.config)
    if request.detach and (request.wait or request.log):
        raise UsageError("--detach returns at once, so it goes with neither --wait nor --log")
    if form == "yaml" and not request.dryrun:
        raise UsageError("-o yaml shows a request: it goes with --dryrun")
    return _run(request, form, session.config, session.runner())


def _run(request: RunRequest, form: str, config: Config, opened: Any) -> int:
    app = make_app(request, config)
    if app is None:
        return 0  # its help was asked for
    remember(app)
    with opened as runner:
        info = make_request(request, app, runner, config)
        for line in info.notes:
            note(f"note: {line}")
        if request.dryrun:
            from torchx_cli.terminal.dryrun_output import print_dryrun

            print_dryrun(info, form)
            return 0
        from torchx_cli.terminal.attach import Attached
        from torchx_cli.terminal.progress import Telling

        follow = follows(request, info._scheduler)
        with Attached(runner, info, stream=follow) as attached:
            told = len(info.notes)
            with Telling(attached.stoppable) as info.tell:  # what takes long, such as the pull of an image
                handle = attached.submit()
            for line in info.notes[told:]:  # what only the submission could find out
                note(f"note: {line}")
            if form == "text":
                tell_handle(handle)
            ends = follow or request.wait
            code = attached.to_the_end() if ends else attached.leave()
            if form == "json":
                emit(attached.as_data(), "json", hide=True)
            return code


def tell_handle(handle: str) -> None:
    """Prints the handle on stdout; on stderr when nobody takes it there: the application runs already."""
    try:
        say(f"{handle}\n", end="", flush=True)  # one write: others print meanwhile
    except OSError:
        give_up_output()
        note(handle)


def follows(request: RunRequest, scheduler: str | None) -> bool:
    """Tells whether a run stays with its application and shows its logs."""
    return not request.detach and (request.log or (scheduler or "").startswith("local"))


def make_app(request: RunRequest, config: Config) -> AppDef | None:
    """Makes the application; prints the help of the component, and returns None, when that was asked for.

    What the component's file prints comes on stderr: on stdout there is only what scripts read.

    Raises:
        UsageError: the component or its arguments cannot be right.
    """
    from torchx.discovery.call.arguments import parse_arguments
    from torchx.discovery.call.build import build_app
    from torchx.discovery.find.finder import find_component

    with redirect_stdout(sys.stderr):
        component = find_component(request.component)
    section: dict[str, Setting] = config.section(f"component:{request.component}")
    arguments = parse_arguments(component, request.argv, config=request.component_args, section=section)
    if arguments.wants_help:
        from torchx_cli.terminal.component_help import render
        from torchx_cli.terminal.output import has_colour, speaks_unicode, width_of

        text = render(component, width_of(sys.stdout) or 100, has_colour(sys.stdout))
        say(text if speaks_unicode(sys.stdout) else text.replace("…", "..."))
        return None
    for line in arguments.notes:
        note(f"note: {line}")
    with redirect_stdout(sys.stderr):
        return build_app(component, arguments)


def make_request(request: RunRequest, app: AppDef, runner: Runner, config: Config) -> AppDryRunInfo[Any]:
    """Makes what would be sent to the scheduler.

    Raises:
        UsageError: the scheduler, its options or the workspace cannot be right.
    """
    named = config.get("cli:run", "scheduler")
    scheduler = request.scheduler or (named.value if named else runner.default_scheduler)
    cfg = run_options(request, scheduler, runner, config)
    workspace = request.workspace
    configured = config.get("cli:run", "workspace")
    if not workspace and configured is not None and configured.value:
        if runner.takes_workspace(scheduler, asked=False):
            workspace = configured.value
        elif runner.takes_workspace(scheduler):
            note(
                f"note: {scheduler} runs in the working directory; the workspace from {configured.origin} is "
                "not used without --workspace"
            )
        else:
            note(f"note: {scheduler} takes no workspace; the one from {configured.origin} is not used")
    with redirect_stdout(sys.stderr):  # values that a role leaves open are made here, by the component's code
        return runner.dryrun(app, scheduler, cfg, workspace or None, request.parent_run_id or None)
