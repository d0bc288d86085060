"""What can go wrong between a component's name and its application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx.errors import UsageError

if TYPE_CHECKING:
    from torchx.discovery.model import LinterMessage


class ComponentNotFoundException(UsageError):
    """Nothing answers to the name of a component."""


class ComponentValidationException(UsageError):
    """A function was found, and it is no component.

    Args:
        what: how the person named it.
        messages: every problem of it.
        hint: what to do next.
    """

    def __init__(self, what: str, messages: Sequence[LinterMessage] = (), *, hint: str | None = None) -> None:
        self.messages = tuple(messages)
        if len(self.messages) == 1:
            text = str(self.messages[0])
        elif self.messages:
            text = "\n  ".join([f"{what} is no valid component:", *map(str, self.messages)])
        else:
            text = what
        super().__init__(text, hint=hint)


class ComponentError(UsageError):
    """A component's own code failed, while it was imported or called; the cause is kept.

    Args:
        message: the sentence, with the place in the person's file.
        path: that file, None when no line of it had a part in the failure.
        line: the line in it, from 1.
        hint: what to do next.
    """

    def __init__(
        self, message: str, *, path: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.line = line


class ArgumentError(UsageError):
    """An argument of a component is unknown, missing, given twice, or has a value it can't take.

    Args:
        message: the sentence.
        flag: the flag it is about, empty when it is about none.
        hint: what to do next.
    """

    def __init__(self, message: str, *, flag: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.flag = flag
