"""Run a command and turn errors into a message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import cast

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.files import state_home_path
from torchx_cli.door import feature
from torchx_cli.terminal import error_output
from torchx_cli.terminal.output import prepare_streams

with lazy_imports:
    import traceback

    import typer

    from torchx_cli import app, hints
    from torchx_cli.completion import complete
    from torchx_cli.terminal import display, interrupts, masking

PROG = "torchx"
COMPLETE = "__complete"
"""The hidden command that completion scripts call."""
HELP = "help"
"""`torchx help run` is `torchx run --help`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Args:
        argv: the arguments after the program name (default: those of this process).

    Returns:
        The exit code: 0, the code of the error, 130 after Ctrl-C, or for `run` the application's result.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    if "torchx_cli.terminal.masking" in sys.modules:  # by an earlier call of main
        masking.forget()
    try:
        ending: AbstractContextManager[None] = nullcontext()
        if _names_data(args):
            ending = interrupts.ending_as_data(lambda: requested_format(args))
        with ending:
            code = _invoke(args)
            sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, (BrokenPipeError, KeyboardInterrupt)):
            _debug(args)
        return error_output.report(error, args, requested_format(args))


def _invoke(args: list[str]) -> int:
    if args[:1] == [COMPLETE]:
        return complete.complete(args[1:])
    if args[:1] == [HELP]:
        args = [*args[1:], "--help"]
    if args == ["version"]:
        args = ["--version"]

    if _may_name_context(args):
        chosen = feature("contexts.dispatch").dispatch(args)
        if isinstance(chosen, int):
            return chosen
        args = chosen

    click_error = cast("type[Exception]", _base_named(typer.BadParameter, "ClickException"))
    command = app.build()
    try:
        with command.make_context(PROG, list(args)) as ctx:  # consumes the list
            result = command.invoke(ctx)
        if isinstance(result, int):
            return result
        return 0
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except click_error as error:
        path = getattr(getattr(error, "ctx", None), "command_path", PROG)
        message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
        message = message[:1].lower() + message[1:]
        code = error_output.click_code(error, message)
        if code == "unexpected_argument":
            given = hints.number_of_lines(args) or message.rpartition("(")[2].rstrip(")")
            message = f"unexpected argument `{given}`"
        raise UsageError(message, hint=hints.of_number(args) or f"see: {path} --help", code=code) from error


def _may_name_context(args: Sequence[str]) -> bool:
    """Returns True if a command may run on another machine: contexts exist, or the arguments name one."""
    if os.environ.get(settings.TORCHX_CONTEXT) or any("--context" in arg or "+" in arg for arg in args):
        return True
    with suppress(StateError):  # without a home there are no contexts
        return (state_home_path() / "contexts.json").exists()
    return False


def requested_format(args: Sequence[str]) -> str:
    """Returns the output format of a command line that may be invalid: text, json or yaml."""
    if not _names_data(args):
        return "text"
    with suppress(Exception):  # the error that is reported may be one of loading the command
        parsed = complete.parse(args)
        if parsed is not None:
            _, line = parsed
            return error_output.first_format(
                [*line.values.get("output", ()), "json" if "json" in line.given else ""]
            )
    return error_output.format_in(args)  # of an unknown command, or of a plugin


def _names_data(args: Sequence[str]) -> bool:
    """Returns False if the output format of a command line is certainly text."""
    return any("json" in arg or "yaml" in arg or arg.startswith("--j") for arg in args)


def _base_named(cls: type, name: str) -> type:
    """Returns a base class by name: Typer uses click or its own copy of it, depending on its version."""
    return next(base for base in cls.__mro__ if base.__name__ == name)


def _debug(args: list[str]) -> None:
    """Prints the traceback of the current error if --debug is given before the command."""
    before_command = []
    for arg in args:
        if not arg.startswith("-"):
            break
        before_command.append(arg)
    if "--debug" in before_command:
        with suppress(OSError):  # stderr is closed
            display.show_code(masking.mask_text(traceback.format_exc()), "pytb", sys.stderr)
