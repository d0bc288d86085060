"""Findings about an engine: its address, its abilities, its problems and their fixes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
