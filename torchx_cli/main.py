"""The entry point: runs a command, and turns each error into a sentence and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from torchx.errors import TorchxError, UsageError
from torchx_cli.terminal.output import error_line, give_up_output, prepare_streams, tell

PROG = "torchx"
COMPLETE = "__complete"
"""The word by which a shell asks what may come next on a line that is being typed."""

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
"""128 + SIGPIPE: the reader of stdout went away, as when `head` has seen enough."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line.

    Args:
        argv: the words after the name of the program; those of this process unless given.

    Returns:
        The exit code: 0; that of the error; 130 after Ctrl-C; for `run`, the result of the application.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    if "torchx_cli.terminal.masking" in sys.modules:  # by a command line before this one
        from torchx_cli.terminal.masking import forget

        forget()
    try:
        code = _invoke(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        give_up_output()
        return EXIT_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except TorchxError as error:
        _debug(args)
        _tell(error.message, error.hint)
        return error.exit_code
    except OSError as error:
        _debug(args)
        where = f": {error.filename}" if error.filename else ""
        if isinstance(error, FileNotFoundError) and not where and _working_directory_is_gone():
            _tell("the working directory is gone: somebody has removed it", "cd to another folder first")
        else:
            _tell(f"{error.strerror or error}{where}", None)
        give_up_output()
        return EXIT_FAILED
    except Exception as error:  # the last boundary: what comes here is a defect, told in one line
        _debug(args)
        _tell(
            f"{type(error).__name__}: {error}", "this is a defect of torchx; torchx --debug ... shows where"
        )
        return EXIT_FAILED


def _invoke(args: list[str]) -> int:
    typer = _import_typer()
    if args[:1] == [COMPLETE]:
        from torchx_cli.completion.complete import complete

        return complete(args[1:])
    from torchx_cli.app import build

    click_error = cast("type[Exception]", _base_named(typer.BadParameter, "ClickException"))
    command = build()
    try:
        with command.make_context(PROG, list(args)) as ctx:  # it eats the list
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


def _import_typer() -> Any:
    """Imports Typer without rich, which takes longer to import than most commands take to run."""
    if "typer" not in sys.modules and "TYPER_USE_RICH" not in os.environ:
        os.environ["TYPER_USE_RICH"] = "0"
        try:
            import typer
        finally:
            del os.environ["TYPER_USE_RICH"]  # the application inherits our environment
        return typer
    import typer

    return typer


def _base_named(cls: type, name: str) -> type:
    """Returns a base class by its name: Typer has click inside or beside it, depending on its age."""
    return next(base for base in cls.__mro__ if base.__name__ == name)


def _debug(args: list[str]) -> None:
    """With --debug among the flags before the command, prints the traceback of the current error."""
    before_command = []
    for arg in args:
        if not arg.startswith("-"):
            break
        before_command.append(arg)
    if "--debug" in before_command:
        import traceback

        tell(traceback.format_exc().rstrip("\n"))


def _working_directory_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # what is asked for is the error
    except FileNotFoundError:
        return True
    return False


def _tell(message: str, hint: str | None) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # where nothing reads stderr, the exit code says it
        tell(error_line(message, hint, sys.stderr))
