"""Errors of finding, checking and calling components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx.command_line import ArgumentError as ArgumentError
from torchx.errors import UsageError

if TYPE_CHECKING:
    from torchx.discovery.model import LinterMessage


class ComponentNotFoundException(UsageError):
    """No component has this name.

    Attributes:
        instead: the arguments of `torchx run` for a script or program of this name; may be empty.
    """

    code = "unknown_component"
    instead: tuple[str, ...] = ()


class ComponentValidationException(UsageError):
    """A function was found that is not a valid component.

    Args:
        what: the name that the user typed, or the whole message.
        messages: all of its problems.
        hint: the next step for the user.
    """

    code = "invalid_component"

    def __init__(self, what: str, messages: Sequence[LinterMessage] = (), *, hint: str | None = None) -> None:
        self.messages = tuple(messages)
        if len(self.messages) == 1:
            text = str(self.messages[0])
        elif self.messages:
            text = "\n  ".join([f"{what} is not a valid component:", *map(str, self.messages)])
        else:
            text = what
        super().__init__(text, hint=hint)


class ComponentError(UsageError):
    """A component's own code failed when it was imported or called; the cause is kept.

    Args:
        message: the message, with the place in the user's file.
        path: that file, None if no line of it took part in the failure.
        line: the line in it, from 1.
        hint: the next step for the user.
    """

    code = "component_failed"

    def __init__(
        self, message: str, *, path: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, facts={"path": path, "line": line})
        self.path = path
        self.line = line
