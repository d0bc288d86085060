"""The one tree of errors: each keeps the facts, its text is the sentence that a person reads."""

from __future__ import annotations

from typing import Any


class TorchxError(Exception):
    """Base of every error that this project raises on purpose.

    Args:
        message: what was wrong, where it came from and what was expected, in one line.
        hint: what to type or to look at next, one line; None when the message says it all.
    """

    exit_code = 1
    """What the command line ends with."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # whatever arguments a subclass takes: an error crosses to another process with its facts
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[TorchxError], args: tuple[Any, ...], facts: dict[str, Any]) -> TorchxError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class UsageError(TorchxError):
    """What was asked for cannot be right, whatever the machine: a wrong word, type or combination."""

    exit_code = 2


class PluginError(UsageError):
    """What another package adds cannot be loaded or made; whatever does not need it goes on without it."""


class StateError(TorchxError):
    """What was asked for is right, and something on this machine or engine is in its way."""


class UnreachableError(StateError):
    """An engine that could have the application did not answer, so nothing is known of it."""

    exit_code = 69  # EX_UNAVAILABLE of sysexits.h


class OwnershipError(StateError):
    """The application belongs to another user: only its owner may end or remove it."""

    exit_code = 77  # EX_NOPERM of sysexits.h


class AbsentError(StateError):
    """This machine has no such engine at all, and nobody said that it should have one."""
