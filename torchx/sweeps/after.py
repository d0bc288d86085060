"""Applications that others wait for: the conditions of `--after`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torchx.errors import UsageError
from torchx.specs.handles import parse_app_handle

OK, ANY, FAILED = "ok", "any", "failed"
CONDITIONS = (OK, ANY, FAILED)

_EXPECTED = {OK: "to succeed", ANY: "to end", FAILED: "to fail"}

After = Sequence[str]
"""The handle of an application, and the condition of its end."""


def split(text: str) -> After:
    """Returns the application and the condition of a text.

    >>> split("train-x7k2"), split("slurm://torchx/12:any")
    (['train-x7k2', 'ok'], ['slurm://torchx/12', 'any'])

    Raises:
        UsageError: it does not name an application.
    """
    name, colon, condition = text.rpartition(":")
    if colon and condition in CONDITIONS:
        found = [name, condition]
    else:
        found = [text, OK]
    if not found[0]:
        raise UsageError(f"--after takes APP[:ok|any|failed], got `{text}`", code="invalid_value")
    return found


def is_met(condition: str, state: str) -> bool:
    """Returns True if an application that has ended meets a condition.

    >>> is_met("ok", "SUCCEEDED"), is_met("ok", "CANCELLED"), is_met("any", "CANCELLED")
    (True, False, True)
    """
    return condition == ANY or state == ("SUCCEEDED" if condition == OK else "FAILED")


def waiting(after: Sequence[After], met: Collection[int]) -> str:
    """Returns the reason for waiting; empty if all conditions are met.

    Args:
        after: the applications.
        met: the positions of those whose condition is met.

    >>> waiting([["local_cwd://torchx/a", "ok"], ["local_cwd://torchx/b", "any"]], {1})
    'waiting for a to succeed'
    """
    left = [each for number, each in enumerate(after) if number not in met]
    parts = [f"{parse_app_handle(handle).app_id} {_EXPECTED.get(how, how)}" for handle, how in left]
    if parts:
        return f"waiting for {', '.join(parts)}"
    return ""


def unmet(handle: str, condition: str, state: str) -> str:
    """Returns the reason why nothing is started after an application has ended."""
    expected = _EXPECTED.get(condition, condition)
    return f"not started: it waited for {parse_app_handle(handle).app_id} {expected}, which is {state}"
