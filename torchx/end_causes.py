"""The causes of ends that engines and supervisors know."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class EndCause(str, Enum):
    """The cause of an end or of a state, if the engine or the supervisor of an application knows it."""

    STALLED = "stalled"
    NOT_READY = "not_ready"
    TIME_LIMIT = "time_limit"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    REMOVED = "removed"
    DEPENDENCY_FAILED = "dependency_failed"
    SERVICE_ENDED = "service_ended"
    NOT_STARTED = "not_started"

    @classmethod
    def of(cls, value: object) -> EndCause | None:
        """Returns the cause with a recorded name; None for another value, perhaps of a newer version."""
        return next((cause for cause in cls if cause.value == value), None)


class Reason(NamedTuple):
    """The reason for an end.

    Attributes:
        text: a phrase for the user.
        cause: its cause; None if it is not known.
    """

    text: str
    cause: EndCause | None = None
