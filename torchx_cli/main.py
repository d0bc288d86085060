"""Run a command and turn errors into a message and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import cast

import typer

from torchx.errors import TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx_cli.app import build
from torchx_cli.terminal.output import discard_output, error_line, prepare_streams, print_stderr

with lazy_imports:
    import traceback

    from torchx_cli.completion import complete
    from torchx_cli.terminal import display, masking

PROG = "torchx"
COMPLETE = "__complete"
"""The hidden command that completion scripts call."""

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
"""128 + SIGPIPE: the reader of stdout has closed it, as `head` does."""


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
        code = _invoke(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        discard_output()
        return EXIT_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except TorchxError as error:
        _debug(args)
        _print_error(error.message, error.hint)
        return error.exit_code
    except OSError as error:
        _debug(args)
        where = f": {error.filename}" if error.filename else ""
        if isinstance(error, FileNotFoundError) and not where and _working_directory_removed():
            _print_error(
                "the working directory does not exist: it has been removed", "cd to another folder first"
            )
        else:
            _print_error(f"{error.strerror or error}{where}", None)
        discard_output()
        return EXIT_FAILED
    except Exception as error:  # a defect in torchx or a plugin, reported in one line
        _debug(args)
        _print_error(
            f"{type(error).__name__}: {error}",
            "this is a bug in torchx; for a traceback: torchx --debug ...",
        )
        return EXIT_FAILED


def _invoke(args: list[str]) -> int:
    if args[:1] == [COMPLETE]:
        return complete.complete(args[1:])

    click_error = cast("type[Exception]", _base_named(typer.BadParameter, "ClickException"))
    command = build()
    try:
        with command.make_context(PROG, list(args)) as ctx:  # consumes the list
            result = command.invoke(ctx)
        return result if isinstance(result, int) else 0
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except click_error as error:
        ctx_of = getattr(error, "ctx", None)
        path = ctx_of.command_path if ctx_of is not None else PROG
        message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
        raise UsageError(message[:1].lower() + message[1:], hint=f"see: {path} --help") from error


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
        with contextlib.suppress(OSError):  # stderr is closed
            display.show_code(masking.mask_text(traceback.format_exc()), "pytb", sys.stderr)


def _working_directory_removed() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # called for its error
    except FileNotFoundError:
        return True
    return False


def _print_error(message: str, hint: str | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # stderr is closed: the exit code reports it
        print_stderr(error_line(message, hint, sys.stderr))
