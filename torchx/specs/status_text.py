"""The status of an application as text and as plain data."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from torchx.json_limits import Object, load_json
from torchx.json_shape import value_at
from torchx.specs.status import (
    NONE,
    AppState,
    AppStatus,
    AttemptStatus,
    ReplicaStatus,
    RoleStatus,
    is_terminal,
)

_UNKNOWN = "<N/A>"
_WIDTH = 80
# additions of RPC frameworks and c10 to the message of another process, once per hop
_NOISE = (
    re.compile(r"On WorkerInfo\([^)]*\):\s*"),
    re.compile(r"^\s*Exception raised from .*\(most recent call first\):\s*$\n?", re.MULTILINE),
    re.compile(r"^\s*frame #\d+: .*$\n?", re.MULTILINE),
)


@dataclass(frozen=True)
class ErrorFile:
    """The content of an error file: message, exit code and time, if present."""

    message: str
    exit_code: str = _UNKNOWN
    timestamp: str = _UNKNOWN

    @staticmethod
    def read(text: str) -> ErrorFile | None:
        """Parses an error file in one of its two layouts; None if it has neither.

        >>> ErrorFile.read('{"message": "boom", "errorCode": 3}').exit_code
        '3'
        """
        try:
            data = load_json(text)
        except ValueError:
            return None
        if not isinstance(data, dict) or "message" not in data:
            return None
        if not isinstance(data["message"], dict):
            return ErrorFile._of(data["message"], data.get("errorCode"), data.get("timestamp"))
        inner = data["message"]
        time = value_at(inner, "extraInfo", "timestamp")
        return ErrorFile._of(inner.get("message", ""), inner.get("errorCode"), time)

    @staticmethod
    def _of(message: object, code: object, time: object) -> ErrorFile:
        return ErrorFile(str(message), _UNKNOWN if code is None else str(code), _time(time))


def as_text(status: AppStatus, filter_roles: Sequence[str] | None) -> str:
    """Returns the status as text for display."""
    roles = "".join(
        f"\n{_replica(r, first=i == 0)}"
        for role in _wanted(status, filter_roles)
        for i, r in enumerate(sorted(role.replicas, key=lambda r: r.id))
    )
    rows = (
        ("State", status.state.name),
        ("Num Restarts", status.num_restarts),
        ("Roles", roles),
        ("Msg", status.msg),
        ("Structured Error Msg", status.structured_error_msg),
        ("UI URL", status.ui_url),
    )
    return "AppStatus:\n" + "".join(f"    {name}: {value}\n" for name, value in rows)


def as_json(status: AppStatus, filter_roles: Sequence[str] | None) -> Object:
    """Returns the status as plain data."""
    failure = status.first_failure
    return {
        "state": status.state.name,
        "num_restarts": status.num_restarts,
        "run": status.run,
        "roles": [role.to_json() for role in _wanted(status, filter_roles)],
        "msg": status.msg,
        "structured_error_msg": status.structured_error_msg,
        "url": status.ui_url,
        "submitted_at": iso(status.submitted_at),
        **_times_json(status.started_at, status.ended_at),
        "first_failure": None if failure is None else failure.as_data(),
        "log_dir": status.log_dir,
        "workspaces": dict(status.workspaces),
    }


def _wanted(status: AppStatus, filter_roles: Sequence[str] | None) -> list[RoleStatus]:
    return [role for role in status.roles if not filter_roles or role.role in filter_roles]


def _replica(replica: ReplicaStatus, first: bool) -> str:
    """Returns one line, followed by the content of the error file."""
    head = f" {'*' if first else ' '}{replica.role}[{replica.id}]:{replica.state.name}"
    text = replica.structured_error_msg
    if text == NONE:
        silent = is_terminal(replica.state) and replica.state is not AppState.SUCCEEDED
        if silent:
            return f"{head} (no reply file)"
        return head
    error = ErrorFile.read(text)
    if error is None:
        return f"{head}\n{text}"
    return (
        f"{head} (exitcode: {error.exit_code})\n"
        f"        timestamp: {error.timestamp}\n"
        f"        hostname: {replica.hostname}\n"
        f"        error_msg: {_wrapped(error.message)}"
    )


def _wrapped(message: str) -> str:
    """Wraps each line of a message, without the additions of frameworks."""
    for noise in _NOISE:
        message = noise.sub("", message)
    rows = [row for line in message.strip().split("\n") for row in textwrap.wrap(line, _WIDTH) or [""]]
    return "\n".join(f"{'' if i == 0 or not row else ' ' * 16}{row}" for i, row in enumerate(rows))


def _time(value: object) -> str:
    try:
        when = datetime.fromtimestamp(float(str(value)), tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return _UNKNOWN
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def replica_json(replica: ReplicaStatus) -> Object:
    """Returns the status of a replica as plain data."""
    return {
        "id": replica.id,
        "state": replica.state.name,
        "role": replica.role,
        "hostname": replica.hostname,
        "structured_error_msg": replica.structured_error_msg,
        "hostaddr": replica.hostaddr,
        "attempt": replica.attempt,
        "max_attempts": replica.max_attempts,
        "exit_code": replica.exit_code,
        "signal": replica.signal,
        "pid": replica.pid,
        **_times_json(replica.started_at, replica.ended_at),
        "attempts": [_attempt_json(attempt) for attempt in replica.attempts],
    }


def _attempt_json(attempt: AttemptStatus) -> Object:
    return {
        "number": attempt.number,
        "state": attempt.state.name,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "result": attempt.result,
        **_times_json(attempt.started_at, attempt.ended_at),
        "pid": attempt.pid,
        "msg": attempt.msg,
    }


def _times_json(started_at: datetime | None, ended_at: datetime | None) -> Object:
    duration = None
    if started_at is not None and ended_at is not None:
        duration = (ended_at - started_at).total_seconds()
    return {"started_at": iso(started_at), "ended_at": iso(ended_at), "duration": duration}


def iso(time: datetime | None) -> str | None:
    """Returns a time in JSON output."""
    if time is None:
        return None
    return time.isoformat()
