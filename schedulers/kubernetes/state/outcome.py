"""The noted outcome of an application, an annotation: pods that are removed later do not change it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from types import MappingProxyType, NoneType
from typing import NamedTuple

from torchx.end_causes import recorded_cause
from torchx.json_limits import compact_json
from torchx.json_shape import ANY_KEY, check
from torchx.schedulers.kubernetes.api.objects import Object, annotation, short, time_of
from torchx.schedulers.kubernetes.names import OUTCOME
from torchx.specs.status import AppState, FirstFailure, is_terminal

_FAILURE = {"role": str, "replica": int, "attempt": int, "msg": str}
_CODES = {"exit_code": (int, NoneType), "signal": (str, NoneType)}
_SHAPE = {
    "state": str,
    "msg": str,
    "ended_at": str,
    "failure": ({**_FAILURE, **_CODES}, NoneType),
    "failed": {ANY_KEY: str},
}


class Outcome(NamedTuple):
    """The decided part of the outcome of an application.

    Attributes:
        failure: the replica that failed first, without a retry that follows.
        state: the state of the application; UNKNOWN before its end.
        msg: the reason, one line.
        ended_at: its end.
        failed: the replicas that have failed at the end, as ``0-2,5``, by the names of their roles.
    """

    failure: FirstFailure | None = None
    state: AppState = AppState.UNKNOWN
    msg: str = ""
    ended_at: datetime | None = None
    failed: Mapping[str, str] = MappingProxyType({})

    def text(self) -> str:
        """Returns the outcome as an annotation."""
        data: Object = {"state": self.state.name, "msg": self.msg, "ended_at": "", "failure": None}
        data["failed"] = dict(self.failed)
        if self.ended_at is not None:
            data["ended_at"] = f"{self.ended_at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        if self.failure is not None:
            data["failure"] = asdict(self.failure)
        return compact_json(data)


def outcome_of(mains: Iterable[Object]) -> Outcome:
    """Returns the noted outcome of an application; an empty one without a note, or with a damaged one.

    Args:
        mains: its submitted objects.
    """
    text = next(filter(None, (annotation(main, OUTCOME) for main in mains)), "{}")
    try:
        data = json.loads(text)
        check(data, _SHAPE, "")
        state, failure = AppState[data["state"]], data["failure"]
        first = failure and FirstFailure(**{**failure, "cause": recorded_cause(failure)})
        ended_at = time_of(data["ended_at"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return Outcome()
    if not (is_terminal(state) or state is AppState.UNKNOWN):
        return Outcome()
    return Outcome(first, state, short(data.get("msg")), ended_at, data.get("failed", {}))
