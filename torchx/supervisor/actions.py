"""The actions that the policy of a set of replicas returns."""

from __future__ import annotations

from typing import Any, NamedTuple

REPLICA, ROLE, APPLICATION = "REPLICA", "ROLE", "APPLICATION"
"""The scopes of a restart."""


class Start(NamedTuple):
    """Start these replicas, each as its next attempt, ``delay`` seconds from now."""

    replicas: tuple[int, ...]
    delay: float = 0.0


class Stop(NamedTuple):
    """End these running replicas; ``why`` is recorded."""

    replicas: tuple[int, ...]
    why: str


class Retry(NamedTuple):
    """A retry after a failure, to be recorded.

    Attributes:
        scope: REPLICA, ROLE or APPLICATION.
        failed: ordinal of the replica that failed.
        number: number of the retry within its scope, from 1.
        allowed: maximum number of retries.
        delay: seconds until the restart.
    """

    scope: str
    failed: int
    number: int
    allowed: int
    delay: float

    def facts(self) -> dict[str, Any]:
        """Returns the data of its event."""
        scope, failed, number, allowed, delay = self
        return {"scope": scope, "r": failed, "n": number, "of": allowed, "delay": delay}


class Requeue(NamedTuple):
    """The end of a run by the time limit, to be recorded; all replicas start again.

    Attributes:
        number: number of the requeue, from 1.
        allowed: maximum number of requeues.
    """

    number: int
    allowed: int


class End(NamedTuple):
    """The end of the application.

    Attributes:
        state: SUCCEEDED, FAILED or CANCELLED.
        first_failure: ordinal of the replica that failed permanently first, or None.
    """

    state: str
    first_failure: int | None = None


Action = Start | Stop | Retry | Requeue | End
