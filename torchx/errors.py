"""The error classes of this project: each keeps its facts; its text is the message for the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TorchxError(Exception):
    """Base of every error that this project raises on purpose.

    Args:
        message: the problem, its origin and the expected value, in one line.
        hint: the next step for the user, one line, or None.
        code: the stable code of the cause (default: that of the class).
        facts: data about the cause, such as the flag, for ``-o json``.
    """

    exit_code = 1
    """The exit code of the command line."""

    code = "error"
    """The stable code of the cause, as documented with the JSON output."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = dict(facts or {})
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        if self.hint is None:
            return self.message
        return f"{self.message}\n  {self.hint}"

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython shows instead of a traceback through this project."""
        return f"{type(self).__name__}: {self}".splitlines()

    def __reduce__(self) -> tuple[Any, ...]:
        # independent of a subclass's arguments, so that an error can be pickled with its facts
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[TorchxError], args: tuple[Any, ...], facts: dict[str, Any]) -> TorchxError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class UsageError(TorchxError):
    """The request is invalid on any machine: a wrong argument, type or combination."""

    exit_code = 2
    code = "usage"


class RunOptionError(UsageError, ValueError):
    """A run option has an invalid value, or lacks another option.

    Args:
        option: its name.
        problem: the rest of a sentence that begins with the option.
        hint: the next step, or None.
    """

    code = "invalid_run_option"

    def __init__(self, option: str, problem: str, hint: str | None = None) -> None:
        super().__init__(f"run option `{option}` {problem}", hint=hint, facts={"option": option})
        self.option, self.problem = option, problem


class PluginError(UsageError):
    """An extension of another package cannot be loaded or created; everything else works without it."""

    code = "plugin_failed"


class StateError(TorchxError):
    """The request is valid, but the state of this machine or engine prevents it."""

    code = "state"


class UnreachableError(StateError):
    """An engine that could have the application did not answer, so nothing is known of it."""

    exit_code = 69  # EX_UNAVAILABLE of sysexits.h
    code = "engine_unreachable"


class OwnershipError(StateError):
    """The application belongs to another user: only its owner may end or remove it."""

    exit_code = 77  # EX_NOPERM of sysexits.h
    code = "not_owner"


class AbsentError(StateError):
    """This machine has no such engine, and none was configured."""

    exit_code = UnreachableError.exit_code
    code = "engine_absent"
