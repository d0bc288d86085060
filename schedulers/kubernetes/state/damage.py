"""Status of applications with malformed objects or records: UNKNOWN with a reason, never an exception."""

from __future__ import annotations

from dataclasses import replace

from torchx.schedulers.kubernetes.api.objects import short
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.owner import is_own
from torchx.schedulers.kubernetes.status import describe, list_row
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.specs.status import AppState


def describe_safely(facts: Facts, now: float) -> DescribeAppResponse:
    """Returns the status of an application; UNKNOWN with a reason if its data is malformed.

    Args:
        facts: its objects.
        now: seconds since the epoch.
    """
    try:
        response = describe(facts, now)
    except Exception as error:  # one malformed application must not prevent a listing of the others
        return DescribeAppResponse(facts.app_id, AppState.UNKNOWN, msg=_defect(error), name=facts.name)
    if facts.damage:
        return replace(
            response, state=AppState.UNKNOWN, msg=_reason(facts, response.state), first_failure=None
        )
    return response


def list_safely(facts: Facts, now: float) -> ListAppResponse:
    """Returns the row of an application in a listing; see :func:`describe_safely`."""
    try:
        line = list_row(facts, now)
    except Exception as error:
        line = ListAppResponse(facts.app_id, AppState.UNKNOWN, name=facts.name, msg=_defect(error))
    else:
        if facts.damage:
            line = replace(line, state=AppState.UNKNOWN, msg=_reason(facts, line.state), exit_code=None)
    return replace(line, is_own=is_own(facts))


def _reason(facts: Facts, state: AppState) -> str:
    """Returns why the state is unknown, with the state of its objects if these are valid."""
    return short(facts.damage if facts.malformed else f"{facts.damage}; its {facts.kind} is {state.name}")


def _defect(error: Exception) -> str:
    return short(f"its objects cannot be read: {type(error).__name__}: {error}")
