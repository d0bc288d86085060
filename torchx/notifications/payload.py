"""The content of a notification."""

from __future__ import annotations

from datetime import datetime, timezone

from torchx.jobs.record import register_secrets
from torchx.jobs.view import JobView
from torchx.json_limits import Object
from torchx.masking import mask_text
from torchx.printable import one_line
from torchx.specs.status import FirstFailure

LONGEST_MESSAGE = 2000
"""Maximum characters of a message."""


def payload_of_job(view: JobView, message: str = "") -> Object:
    """Returns the content of a notification about a local job.

    Args:
        view: the job.
        message: the reason (default: that of its state, or of its first failure).
    """
    record = view.record
    register_secrets(record)
    return make(
        name=record.name,
        handle=record.handle,
        state=view.state,
        message=message or view.msg,
        exit_code=view.exit_code,
        failure=view.failure,
        times=(record.submitted_at, view.started_at, view.ended_at),
    )


def make(
    *,
    name: str,
    handle: str,
    state: str,
    message: str,
    exit_code: int | None,
    failure: FirstFailure | None,
    times: tuple[float | None, float | None, float | None],
) -> Object:
    """Returns the content of a notification; secrets are masked.

    Args:
        name: the name of the application.
        handle: its handle.
        state: its state.
        message: the reason for the state (default: that of the first failure).
        exit_code: its exit code.
        failure: the first failure.
        times: of its submission, start and end, in seconds since the epoch.
    """
    app = handle.rpartition("/")[2]
    first = None
    if failure is not None:
        first = {"role": failure.role, "replica": failure.replica, "attempt": failure.attempt}
        message = message or failure.msg or f"{failure.role}/{failure.replica} failed first"
    message = one_line(mask_text(message))[:LONGEST_MESSAGE]
    if not exit_code:
        code = ""
    else:
        code = f" (exit code {exit_code})"
    submitted, started, ended = map(_iso, times)
    return {
        "text": f"{app} {state}{code}" + (f": {message}" if message else ""),
        "name": name,
        "state": state,
        "handle": handle,
        "app": app,
        "message": message,
        "exit_code": exit_code,
        "first_failure": first,
        "submitted_at": submitted,
        "started_at": started,
        "ended_at": ended,
    }


def _iso(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, timezone.utc).isoformat()
