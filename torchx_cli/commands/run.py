"""`torchx run`: run an application from a component."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx import settings
from torchx.command_line import ArgumentError
from torchx.discovery.errors import ComponentNotFoundException
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx_cli import run_flags
from torchx_cli.command import flag_table
from torchx_cli.door import feature
from torchx_cli.flags import (
    FULL,
    OMITTED,
    PROGRAM,
    argument,
    option,
    switch,
)
from torchx_cli.rule_flags import rule_notes, rule_options
from torchx_cli.run_request import (
    RunRequest,
    check_stdin_alone,
    make_app,
    read_stdin,
    split_component,
    tags_of,
)
from torchx_cli.session import session_of
from torchx_cli.sweep_flags import sweep_flags
from torchx_cli.terminal.error_output import about
from torchx_cli.terminal.interrupts import Terminated
from torchx_cli.terminal.masking import remember
from torchx_cli.terminal.output import (
    emit,
    is_terminal,
    note,
    note_all,
    output_format,
)

with lazy_imports:
    from torchx_cli import component_flags, hints, placement, recording, resubmission, shown
    from torchx_cli.sweep import rerun as sweep_rerun
    from torchx_cli.sweep import submit as sweeping_submit
    from torchx_cli.terminal import attach, dryrun_output, progress, streaming

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.runner.api import Runner
    from torchx.specs.app import AnyDryRunInfo, AppDef
    from torchx_cli.resubmission import Submission

EXIT_NOT_FOUND = 127
"""The exit code of a shell that cannot find a program."""

EXAMPLES = """\b
Examples:
  torchx run utils.echo --msg hi
  torchx run -s slurm dist.torchrun -j 2x8 --script a.py
  torchx run --each lr=1,3 utils.sh 'sh a.sh --lr={lr}'
"""

SETTINGS = {"allow_interspersed_args": False}  # the first positional argument is the component
FLAGS = run_flags.RUN


def run_(
    ctx: typer.Context,
    arguments: Annotated[
        list[str] | None,
        argument(
            metavar="[COMPONENT] [FLAGS] [ARGS]...",
            help="The component, its flags, then its other arguments: the first of these, or --, ends the "
            "flags. List its flags with torchx run COMPONENT --help. "
            "Set a default component in [cli:run] of .torchxconfig.",
        ),
    ] = None,
    workspace: Annotated[
        str | None,
        option(
            "--workspace",
            metavar="PATH",
            help="Copy this folder with the application: a path, an fsspec URL, or "
            "a YAML mapping to target folders; '' copies nothing.",
            group=PROGRAM,
        ),
    ] = None,
    stdin: Annotated[
        bool,
        switch(
            "--stdin",
            help="Read the request as JSON from stdin, such as the output of describe -o json.",
            group=PROGRAM,
        ),
    ] = False,
    parent_run_id: Annotated[
        str, typer.Option("--parent_run_id", metavar="ID", help="The parent run.", hidden=True)
    ] = "",
    tee_logs: Annotated[
        bool, typer.Option("--tee_logs", help="Prefixes are always on.", hidden=True)
    ] = False,
    **flags: Any,
) -> int:
    """Run an application from a component.

    Prints the handle first, on stdout. On a local scheduler the command stays attached: it streams the
    logs to stderr, Ctrl-C cancels the application, and the replica that failed first sets the exit code. If
    you close the terminal, the application keeps running.
    """
    form = output_format(flags["output"], flags["json"])
    os.environ[settings.TORCHX_CONTEXT_NAME] = "cli_run"  # inherited by local replicas
    request = RunRequest(
        scheduler=flags["scheduler"],
        scheduler_args=list(flags["cfg"]),
        workspace=workspace,
        parent_run_id=parent_run_id,
        rules=rule_options(flags),
        sweep=sweep_flags(flags),
    )
    request.argv = list(arguments or ())
    if stdin:
        check_stdin_alone(request)
        request = read_stdin(sys.stdin)
    session = session_of(ctx)
    request.context = session.context
    request.take(flags, session.config)
    request.tags = tags_of(flags["tag"], session.config)
    if len(flags) > len(FLAGS) or session.config.sections("feature"):
        feature("features.flags").take(request, flags, session.config)
    if not stdin:
        request.component, request.argv = split_component(request.argv, session.config, request.origins)
        _check_pairs(flags["cfg"], request.component)
    check_combination(request, form)
    table = flag_table(ctx.command.get_params(ctx), False, ctx.command_path)
    try:
        with request.with_origins():
            note_all(component_flags.notes_about(request.component, request.argv))
            return _run(request, form, session.config, session.runner())
    except ArgumentError as error:
        error.hint = hints.of_component_flag(request.component, error, request.argv, table) or error.hint
        raise
    except ComponentNotFoundException as error:
        instead = error.instead or [request.component]
        if error.instead or instead == ["torchrun"]:
            error.hint = hints.of_program(instead, request.argv)
        raise


def _check_pairs(texts: list[str], following: str) -> None:
    """Checks that no option of -cfg is separated from its value, which would be the component."""
    for text in texts:
        if text and "=" not in text:
            error = ArgumentError(f"-cfg takes KEY=VALUE, got `{text}`", flag="-cfg", given=text)
            key, colon, rest = text.partition(":")
            if colon and key.isidentifier():
                error.hint = f"did you mean `-cfg {key}={rest}`?"
            if text.isidentifier():
                value = "VALUE" if "." in following else following  # with a dot it is the component
                error.hint = f"did you mean `-cfg {text}={value}`?"
            raise error


def _run(request: RunRequest, form: str, config: Config, opened: Any) -> int:
    if request.description is not None:
        with opened as runner:
            submission = resubmission.from_description(request.description, runner)
            return submit_again(submission, request, form, runner, config)
    if request.sweep and not {"-h", "--help"}.intersection(request.argv):
        return sweeping_submit.submit_sweep(request, form, config, opened)
    app = make_app(request, config, form)
    if app is None:
        return 0  # help was printed
    app = request.with_name(app)
    request.environment.apply(app)
    remember(app.roles)
    request.describe(app)
    if not request.dryrun:
        recording.record_command(app, request.component, request.argv)
        request.recording = recording.of_run(app)
    with opened as runner:
        if request.context:
            placed = placement.placement(request, runner, config)
            return int(feature("contexts.remote_run").submit([({}, app)], request, form, placed))
        code = submit(make_request(request, app, runner, config), request, form, runner)
    if code == EXIT_NOT_FOUND:
        explain_misplaced_flag(request)
    return code


def submit_again(
    submission: Submission, request: RunRequest, form: str, runner: Runner, config: Config
) -> int:
    """Submits an application as it was submitted before, with the variables and options of the request."""
    others = []
    if submission.handle:
        others = sweep_rerun.others_of(submission, runner, once=bool(request.once))
    resubmission.named_after_run(submission.app)
    app = request.with_name(submission.app)
    submission = submission._replace(app=app)
    request.environment.apply(app)
    remember(app.roles)
    if not request.dryrun and request.recording is None:
        request.recording = recording.of_rerun(app, submission.handle, runner)
    request.describe(app)
    info = resubmission.request_again(submission, request, runner, config)
    if others and not request.dryrun:
        note_all(info.notes)
        placed = placement.Placement(info.scheduler or "", dict(info.cfg), "")
        return sweeping_submit.submit_runs(
            request, form, runner, [({}, app)], placed, others, request.recording
        )
    return submit(info, request, form, runner)


def submit(info: AnyDryRunInfo, request: RunRequest, form: str, runner: Runner) -> int:
    """Prints or submits a request, waits for the end if needed, and returns the exit code.

    Args:
        info: the request.
        request: whether to submit it, to wait, and to show the logs.
        form: the output format.
        runner: submits it.
    """
    note_all(info.notes)
    if request.dryrun:
        dryrun_output.print_dryrun(info, form, full=request.dryrun == FULL)
        return 0
    info.notify = request.notify
    follow = follows(request, runner, info)
    counts = []
    if info.app is not None:
        counts = [(role.name, role.num_replicas) for role in info.app.roles]
    text, origin = request.shown
    replicas = {}
    if follow:
        replicas = shown.select(text, counts, origin)
    printer = streaming.printer_of(sys.stderr, counts, replicas, fold=request.fold)
    with attach.Attached(
        runner, info, follow, printer=printer, replicas=replicas, form=form, named=request.named
    ) as attached:
        printed = len(info.notes)
        with progress.ProgressReporter(attached.allow_stop) as info.on_progress:  # e.g. for image pulls
            handle = attached.submit()
        request.origins.clear()
        note_all(info.notes[printed:])  # added during submission
        if form == "text":
            attach.print_handle(handle)
        ends = follow or request.wait
        record = None if info.existed else request.recording
        with about(handle):  # in JSON, it is not printed before
            if record is not None and (form == "text" or ends):
                record.begin(runner, handle, info)
            try:
                if ends:
                    code = attached.to_the_end()
                else:
                    code = attached.leave()
            except Terminated as end:
                code = end.exit_code
            if not ends and not request.detach and form == "text" and is_terminal(sys.stderr):
                note(f"it runs without this command; to follow it: torchx attach {attach.app_id_of(handle)}")
            if form == "json":
                existed = {}
                if request.once:
                    existed = {"existed": info.existed}
                emit(attached.as_data(code) | existed, "json", hide=True, flush=True)
                if record is not None:
                    record.begin(runner, handle, info)
        return code


def explain_misplaced_flag(request: RunRequest) -> None:
    """Prints a hint if a flag of the component was passed to its program."""
    hint = component_flags.misplaced_flag(request.component, request.argv)
    if hint:
        note(f"  {hint}")


def check_combination(request: RunRequest, form: str) -> None:
    """Checks the flags of a submission.

    Raises:
        UsageError: they cannot be combined.
    """
    if request.detach and (request.wait or request.log or request.fold or request.show):
        raise UsageError(
            "--detach cannot be combined with --wait, --log, --fold or --show", code="conflicting_flags"
        )
    if request.show and request.sweep:
        raise UsageError("--show cannot be combined with --each or --after", code="conflicting_flags")
    if request.dryrun not in ("", False, True, FULL, *OMITTED.values()):
        raise UsageError(f'--dryrun takes {FULL} or no value, got "{request.dryrun}"', code="invalid_value")
    if form == "yaml" and not request.dryrun:
        hint = "for the result as data: -o json"
        raise UsageError("-o yaml requires --dryrun", hint=hint, code="conflicting_flags")


def follows(request: RunRequest, runner: Runner, info: AnyDryRunInfo) -> bool:
    """Returns True if a run stays attached to its application and shows its logs."""
    return not request.detach and (request.log or runner.scheduler(info.scheduler or "").attaches_by_default)


def make_request(request: RunRequest, app: AppDef, runner: Runner, config: Config) -> AnyDryRunInfo:
    """Builds the scheduler request.

    Raises:
        UsageError: the scheduler, its options or the workspace are invalid.
    """
    scheduler, cfg, workspace = placement.placement(request, runner, config)
    with redirect_stdout(sys.stderr):  # may call functions of the component
        info = runner.dryrun(app, scheduler, cfg, workspace or None, request.parent_run_id or None)
    info.notes += rule_notes(request.rules, app, request.component)
    return info
