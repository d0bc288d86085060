"""Rows of ``torchx list`` from the statuses of applications."""

from __future__ import annotations

from collections.abc import Iterable

from torchx import settings
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.responses import NOT_SET
from torchx.specs.app_metadata import tags_of
from torchx.specs.status import AppState, code_of


def row_of(
    status: DescribeAppResponse,
    *,
    exit_code: int | None = None,
    is_own: bool = True,
    app_handle: str = NOT_SET,
) -> ListAppResponse:
    """Returns the row of an application; by default with the message of the first failure.

    Args:
        status: the application.
        exit_code: its exit code if it has failed (default: that of the first failure).
        is_own: whether the current user submitted it.
        app_handle: its handle (default: the runner sets it).
    """
    first = status.first_failure
    if status.state is not AppState.FAILED or exit_code is None:
        failed = None
        if status.state is AppState.FAILED:
            failed = first
        exit_code = code_of(status.state, status.cause, failed)
    return ListAppResponse(
        app_id=status.app_id,
        app_handle=app_handle,
        state=status.state,
        name=status.name,
        submitted_at=status.submitted_at,
        started_at=status.started_at,
        ended_at=status.ended_at,
        exit_code=exit_code,
        msg=status.msg or (first.msg if first is not None else ""),
        needs_reconcile=status.needs_reconcile,
        is_own=is_own,
        tags=tags_of(status.metadata),
        run=str(status.metadata.get(settings.RUN) or ""),
    )


def newest_first(rows: Iterable[ListAppResponse]) -> list[ListAppResponse]:
    """Returns rows by the time of their submission; those without a time come last."""
    return sorted(
        rows, key=lambda row: (row.submitted_at is not None, row.submitted_at, row.app_id), reverse=True
    )
