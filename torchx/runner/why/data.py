"""The explanation of an application as plain data, small whatever the number of its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx.lazy import lazy_imports
from torchx.printable import shortened
from torchx.runner.why.explain import LONGEST_LINE
from torchx.specs.handles import parse_app_handle
from torchx.specs.status_text import iso

with lazy_imports:
    import json

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.why.explain import Difference, Explanation
    from torchx.scheduling.measurement import AppUsage
    from torchx.specs.status import AppStatus

LARGEST = 4000
"""Maximum size of the data as JSON, in bytes."""

MOST_DIFFERENCES = 8
"""Differences from the last success that are shown."""

_VALUE = 120
"""Maximum characters of a name or a value."""


def as_data(made: Explanation) -> Object:
    """Returns an explanation as plain data of at most :data:`LARGEST` bytes of JSON."""
    status = made.status
    scheduler, _, app_id = parse_app_handle(made.handle)
    cause = made.cause
    data = {
        "handle": made.handle,
        "app_id": app_id,
        "name": shortened(made.name, _VALUE),
        "scheduler": scheduler,
        "state": status.state.name,
        "replicas": _counts(status),
        "submitted_at": iso(status.submitted_at),
        "started_at": iso(status.started_at),
        "ended_at": iso(status.ended_at),
        "cause": {
            "class": cause.name,
            "source": cause.source,
            "evidence": shortened(cause.evidence, 2 * LONGEST_LINE),
            "advice": shortened(_advice(made), 2 * LONGEST_LINE) or None,
        },
        "first_failure": _failure(made),
        "last_output_at": iso(made.last_output),
        "lines": [vars(line) for line in made.lines],
        "usage": _usage(made.usage),
        "last_success": made.success,
        "differences": [_difference(each) for each in made.differences[:MOST_DIFFERENCES]],
        "more_differences": max(0, len(made.differences) - MOST_DIFFERENCES),
        "commands": made.commands,
    }
    return _limited(data)


def _advice(made: Explanation) -> str:
    found = made.evidence
    return (found.advice if found is not None else "") or made.cause.advice


def _counts(status: AppStatus) -> dict[str, int]:
    """Returns the number of replicas in each state."""
    states = [replica.state.name for replica in status.replicas]
    return {state: states.count(state) for state in sorted(set(states))}


def _failure(made: Explanation) -> Object | None:
    status, first = made.status, made.status.first_failure
    if first is None:
        return None
    rank = None
    if made.evidence is not None:
        rank = made.evidence.rank
    replica = next((r for r in status.replicas if (r.role, r.id) == (first.role, first.replica)), None)
    return {
        "role": first.role,
        "replica": first.replica,
        "run": first.run,
        "handle": first.handle or None,
        "attempt": first.attempt,
        "max_attempts": None if replica is None else max(replica.max_attempts, first.attempt),
        "host": None if replica is None else replica.hostname or None,
        "exit_code": first.exit_code,
        "signal": first.signal,
        "rank": None if rank is None else rank.rank,
        "msg": shortened(first.msg or made.cause.line, 2 * LONGEST_LINE),
    }


def _usage(usage: AppUsage | None) -> Object | None:
    if usage is None or (total := usage.total) is None:
        return None
    largest, requested = usage.largest, usage.replicas[0].requested
    return {
        "peak_memory": total.memory,
        "requested_memory": largest.requested.memory if largest is not None else requested.memory,
        "largest": None if largest is None else largest.name,
        "mean_cpu": _rounded(total.cpu),
        "requested_cpu": requested.cpu,
        "mean_gpu": _rounded(total.gpu),
        "peak_gpu_memory": total.gpu_memory,
    }


def _rounded(value: float | None) -> float | None:
    if value is None:
        return None
    return round(value, 3)


def _difference(each: Difference) -> dict[str, str | None]:
    values = (None if value is None else shortened(value, _VALUE) for value in (each.before, each.now))
    return dict(zip(("part", "before", "now"), (shortened(each.part, _VALUE), *values), strict=True))


def _limited(data: Object) -> Object:
    """Removes the least important lines and differences until the data is small enough."""
    for key, kept in (("lines", 4), ("differences", 3), ("lines", 1), ("differences", 0)):
        while len(data[key]) > kept and _is_large(data):
            if key == "lines":
                del data[key][0]
            else:
                data["more_differences"] += 1
                del data[key][-1]
    failure, cause = data["first_failure"] or {}, data["cause"]
    for width in (_VALUE, _VALUE // 3):
        for part, key in ((failure, "msg"), (cause, "evidence"), (cause, "advice")):
            if part.get(key) and _is_large(data):
                part[key] = shortened(part[key], width)
    return data


def _is_large(data: Object) -> bool:
    return len(json.dumps(data, indent=2)) > LARGEST
