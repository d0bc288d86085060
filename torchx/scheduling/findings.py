"""What a look at an engine has found: how it is reached, what it can do, what is wrong and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """What a finding means for somebody who wants to run something there."""

    GOOD = "ok"
    """It is there and works."""

    ABSENT = "none"
    """It is not there, and need not be."""

    WRONG = "wrong"
    """It keeps applications from running."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: what was looked at, a word or two.
        verdict: what it means.
        detail: what was found.
        hint: how to mend it; empty where there is nothing to mend.
    """

    what: str
    verdict: Verdict
    detail: str
    hint: str = ""
