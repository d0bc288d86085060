"""Errors as the user sees them: text on stderr, or with ``-o json`` and ``-o yaml`` an object on stdout."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx import settings
from torchx.errors import RunOptionError, TorchxError, UsageError
from torchx.json_limits import Object, without_none
from torchx.lazy import lazy_imports
from torchx.printable import printable
from torchx.suggestions import meant_in
from torchx_cli.terminal.output import discard_output, error_line, print_stderr, say, yaml_text

with lazy_imports:
    import json
    import threading
    import traceback

    from torchx_cli import applications, rule_flags
    from torchx_cli.terminal import masking

if TYPE_CHECKING:
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.status import AppState

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
"""128 + SIGPIPE: the reader of stdout has closed it, as `head` does."""

_CLICK_CODES = {
    "MissingParameter": "missing_argument",
    "NoSuchOption": "unknown_flag",
    "BadParameter": "invalid_value",
    "missing command": "missing_argument",
    "no such command": "unknown_command",
    "got unexpected extra": "unexpected_argument",
}
"""Name of an error of click, or the beginning of its message, and the code."""


class Failure(NamedTuple):
    """An error, as printed.

    Attributes:
        code: its stable code.
        message: its message.
        hint: the next step, or None.
        exit_code: the exit code.
        facts: data about the cause.
    """

    code: str
    message: str
    hint: str | None
    exit_code: int
    facts: Object

    def as_data(self) -> Object:
        """Returns the error as plain data, without secrets and control characters."""
        facts = dict(self.facts)
        if masking.looks_secret(str(facts.get("flag", ""))) and "given" in facts:
            facts["given"] = masking.MASK
        if near := meant_in(self.hint or ""):
            facts.setdefault("did_you_mean", near)
        data = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "exit_code": self.exit_code,
            **without_none(facts),
        }
        shown: Object = _printable(masking.mask(data))
        return shown


def failure_of(error: BaseException) -> Failure:
    """Returns the description of an error."""
    facts: Object = getattr(error, "facts", {})
    if isinstance(error, TorchxError):
        hint, cause = error.hint or _of_full_disk(error.__cause__), error.__cause__
        if isinstance(cause, OSError):
            facts = {"errno": errno.errorcode.get(cause.errno or 0), **facts}
        return Failure(error.code, error.message, hint, error.exit_code, facts)
    if isinstance(error, KeyboardInterrupt):
        code = getattr(error, "exit_code", EXIT_INTERRUPTED)
        return Failure("interrupted", "interrupted", None, code, facts)
    if isinstance(error, BrokenPipeError):
        return Failure("broken_pipe", "the reader of the output has closed it", None, EXIT_PIPE, {})
    if isinstance(error, OSError):
        return _of_system(error, facts)
    if _is_of_a_thread(error):
        hint = "close other programs, or raise the limit: ulimit -u"
        return Failure("process_limit", "this user may not start another thread", hint, EXIT_FAILED, facts)
    # a defect in torchx or a plugin, reported in one line
    hint = "this is a bug in torchx; for a traceback: torchx --debug ..."
    return Failure("internal", f"{type(error).__name__}: {error}", hint, EXIT_FAILED, facts)


def _of_system(error: OSError, facts: Object) -> Failure:
    """Returns the description of an error of the operating system."""
    where, path = "", None
    if error.filename is not None:
        path = os.fsdecode(error.filename)
    if path:
        where = f": {path}"
    facts = {**facts, "errno": errno.errorcode.get(error.errno or 0), "path": path}
    if isinstance(error, FileNotFoundError) and not where and _working_directory_removed():
        gone = "the working directory does not exist: it has been removed"
        return Failure("file_error", gone, "cd to another folder first", EXIT_FAILED, facts)
    hint = None
    if where:  # not of stdout
        hint = _of_full_disk(error)
    return Failure("file_error", f"{error.strerror or error}{where}", hint, EXIT_FAILED, facts)


def _of_full_disk(error: object) -> str | None:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        home = f"or set {settings.TORCHX_HOME} to a folder on another disk"
        return f"free space there, e.g. with torchx prune, {home}"
    return None


def _is_of_a_thread(error: BaseException) -> bool:
    """Returns True if a thread could not be started, for which Python has no error of its own."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_code is threading.Thread.start.__code__


@contextlib.contextmanager
def about(handle: str) -> Iterator[None]:
    """Adds an application to the facts of an error, also to those of Ctrl-C."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        error.facts = {"handle": handle, **getattr(error, "facts", {})}  # type: ignore[union-attr]
        raise


class Failures:
    """Errors of some of several applications, after which the others are processed too.

    The error of a single application is raised.

    Args:
        names: the applications; several of one name are one.
        form: the output format: in text, errors are printed when they occur.
    """

    def __init__(self, names: Collection[str], form: str) -> None:
        self._alone, self._form = len({*names}) == 1, form
        self._errors: dict[str, Failure] = {}

    @contextlib.contextmanager
    def of(self, handle: str) -> Iterator[None]:
        """Keeps the error of an application."""
        try:
            yield
        except TorchxError as error:
            self.add(handle, error)

    def add(self, handle: str, error: TorchxError) -> None:
        """Keeps the error of an application, or raises it if it is the only application."""
        if self._alone:
            raise error
        failure = failure_of(error)
        if self._form == "text" and failure not in self._errors.values():  # an outage is reported once
            print_stderr(error_line(failure.message, failure.hint, sys.stderr))
        self._errors[handle] = failure

    def find_each(
        self, texts: Iterable[str], find: Callable[[str], tuple[str, DescribeAppResponse] | None]
    ) -> list[tuple[str, DescribeAppResponse]]:
        """Returns the handle and the description of each application that is found.

        Args:
            texts: handles or short names.
            find: finds the application of one; returns None for one that is left out.
        """
        found: dict[str, DescribeAppResponse] = {}
        for text in dict.fromkeys(texts):
            with self.of(text):
                if match := find(text):
                    found |= [match]
        return [*found.items()]

    def rows(
        self,
        key: str,
        found: Iterable[tuple[str, DescribeAppResponse]],
        ends: Mapping[str, AppState | None] | None = None,
    ) -> list[Object]:
        """Returns an object for each application, those that are not found last.

        Args:
            key: the name of the result, which is false after an error.
            found: the applications that are found.
            ends: the new states of those that are changed (default: all, which keep their states).
        """
        rows: list[Object] = []
        missing = dict(self._errors)
        for handle, described in found:
            done = missing.pop(handle, None) is None and (ends is None or handle in ends)
            state = (ends or {}).get(handle) or described.state
            rows.append({**applications.identity(handle), "state": state.name, key: done})
        for text in missing:
            rows.append({"handle": text, "app_id": text, "scheduler": "", "state": "UNKNOWN", key: False})
        return [{**row, "error": self.as_data(row["handle"])} for row in rows]

    def as_data(self, handle: str) -> Object | None:
        """Returns the error of an application as plain data, or None."""
        failure = self._errors.get(handle)
        return failure and failure.as_data()

    @property
    def exit_code(self) -> int:
        """The exit code of the first error; 0 without an error."""
        return next((failure.exit_code for failure in self._errors.values()), 0)


def _working_directory_removed() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # called for its error
    except FileNotFoundError:
        return True
    return False


def click_code(error: Exception, message: str) -> str | None:
    """Returns the code for an error of click, which has no codes; None if it has no narrower one."""
    names = {base.__name__ for base in type(error).__mro__}
    found = (code for key, code in _CLICK_CODES.items() if key in names or message.startswith(key))
    return next(found, None)


def report(error: BaseException, args: Sequence[str], form: str) -> int:
    """Prints an error in the format that the command line requests, and returns the exit code.

    An interrupt and a closed output are printed only as data: in text, the exit code reports them.
    """
    failure = failure_of(error)
    if form == "text" and isinstance(error, UsageError):
        form = format_in(args)  # also behind the component
    if isinstance(error, RunOptionError) and (flag := rule_flags.flag_of(error.option, args)):
        failure = failure._replace(message=f"{flag} {error.problem}")
    if isinstance(error, BrokenPipeError):
        discard_output()  # if the closed output is stdout, data is discarded too
    if form != "text":
        _print_data(failure, form)
    elif not isinstance(error, (KeyboardInterrupt, BrokenPipeError)):
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            print_stderr(error_line(failure.message, failure.hint, sys.stderr))
    if isinstance(error, OSError):
        discard_output()
    return failure.exit_code


def _print_data(failure: Failure, form: str) -> None:
    """Prints an error as data, or as text on stderr if stdout takes no data, e.g. on a full disk."""
    data = {"error": failure.as_data()}
    try:
        say(json.dumps(data) if form == "json" else yaml_text(data, unicode=False).rstrip(), flush=True)
    except (BrokenPipeError, ValueError):  # closed: the exit code reports it
        return
    except OSError:
        hint = failure.hint
        if handle := failure.facts.get("handle"):
            hint = f"the application: {handle}"
        print_stderr(error_line(failure.message, hint, sys.stderr))


def format_in(args: Sequence[str]) -> str:
    """Returns the output format that any flags among arguments request: text, json or yaml."""
    return first_format(_formats_in(args))


def first_format(formats: Iterable[str]) -> str:
    """Returns the first format for data, or text."""
    return next((each for each in formats if each in ("json", "yaml")), "text")


def _formats_in(args: Sequence[str]) -> Iterator[str]:
    """Yields the formats that flags of an unknown command request."""
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        if arg == "--":
            return
        if arg == "--json":
            yield "json"
        elif arg in ("-o", "--output"):
            yield following
        elif arg.startswith(("-o", "--output=")):
            yield arg.removeprefix("--output").removeprefix("-o").removeprefix("=")


def _printable(data: Any) -> Any:
    """Returns data for JSON, without control characters; an error of a plugin may have any."""
    if isinstance(data, Mapping):
        return {printable(key): _printable(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_printable(value) for value in data]
    if data is None or isinstance(data, (bool, int, float)):
        return data
    return printable(data)
