"""Errors of the programs of a batch system."""

from __future__ import annotations

from torchx.errors import StateError
from torchx.scheduling.protocols import UnavailableError


class ProgramError(StateError):
    """A program of the batch system failed.

    Attributes:
        output: its unmodified output.
    """

    code = "engine_error"

    def __init__(self, message: str, *, output: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.output = output


class NoAnswerError(ProgramError, UnavailableError):
    """The controller, the master or the accounting database does not respond."""

    code, exit_code = UnavailableError.code, UnavailableError.exit_code
