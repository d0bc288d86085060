"""Findings about an engine: its address, its abilities, its problems and their fixes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torchx.errors import AbsentError, TorchxError


class Verdict(str, Enum):
    """The verdict of a finding."""

    GOOD = "ok"
    """It works."""

    ABSENT = "none"
    """It does not exist, and is optional."""

    WRONG = "wrong"
    """It prevents applications from running."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        what: the subject, such as ``engine``.
        verdict: the verdict.
        detail: the observation.
        hint: how to fix it; empty if nothing is wrong.
    """

    what: str
    verdict: Verdict
    detail: str
    hint: str = ""

    @classmethod
    def of_error(cls, what: str, error: TorchxError) -> Finding:
        """Returns the finding that something cannot be used; ABSENT if it does not exist here."""
        if isinstance(error, AbsentError):
            verdict = Verdict.ABSENT
        else:
            verdict = Verdict.WRONG
        return cls(what, verdict, error.message, error.hint or "")
