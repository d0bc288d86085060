"""The reasons for ends: causes that programs compare, and phrases for users, which no program reads.

A sentence is made last, from a reason. Only :func:`cause_in` reads sentences: those of engines and
plugins, and those in records of earlier versions, which have no causes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple


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
    IMAGE = "image"
    MISSING_PROGRAM = "missing_program"
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
        notes: further remarks about the end.
    """

    text: str = ""
    cause: EndCause | None = None
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The phrase and the notes in one line, as records and outputs have them."""
        return "; ".join(filter(None, (self.text, *self.notes)))

    @property
    def record(self) -> dict[str, str | None]:
        """The data of a record of the end, with the keys ``msg`` and ``cause``; empty without a reason."""
        if self.sentence:
            return {"msg": self.sentence, "cause": self.cause}
        return {}


def recorded_cause(record: Mapping[str, Any]) -> EndCause | None:
    """Returns the cause in the record of an end: that of its message, if it is of an earlier version.

    >>> recorded_cause({"msg": "evicted from node n1"}), recorded_cause({"msg": "evicted", "cause": None})
    (<EndCause.NODE_LOST: 'node_lost'>, None)
    """
    if "cause" in record:
        return EndCause.of(record["cause"])
    return cause_in(str(record.get("msg", "")))


def cause_in(message: str) -> EndCause | None:
    """Returns the cause in a message of an engine or a plugin, or in the record of an earlier version.

    >>> cause_in("its image cannot be pulled: nope:1")
    <EndCause.IMAGE: 'image'>
    """
    if not message:
        return None
    return EndCause.of(next((name for name, pattern in _MESSAGES.items() if re.search(pattern, message)), ""))


_MESSAGES = {
    "out_of_memory": r"^out of memory\b",
    "time_limit": r"^(time limit reached|the CPU time limit|it timed out|its deadline passed)",
    "preempted": r"^preempted\b",
    "node_lost": (
        r"^(a node (failed|could not be)|evicted\b|taken (from|before)|node \S+ no longer exists|"
        r"it was lost with its node|its pod no longer exists|the machine was restarted)"
    ),
    "supervisor_lost": r"^its supervisor (was killed|failed)",
    "not_ready": r"^not ready within ",
    "removed": r"^its (container was removed$|pod was deleted by hand)",
    "image": r"image cannot be pulled|\b(ErrImagePull|ImagePullBackOff|InvalidImageName)\b",
    "missing_program": (
        r"executable file not found|[Ee]xec format error|^cannot be started: |"
        r"^\S+: (No such file or directory|Permission denied)$"
    ),
    "not_started": r"^it could not be started|could not be started: |^its init container .* ended with",
}
