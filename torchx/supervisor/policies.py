"""Policies: the features of a running application, one object each; a supervisor calls them in a list.

A supervisor, of processes or of containers, reports the replicas to each policy, and carries out the orders
that a policy returns. It knows no policy by name. It runs without site packages, so this module imports none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from resource import struct_rusage
from typing import Generic, NamedTuple, TypeVar

from torchx.end_causes import Reason
from torchx.json_limits import Data, Object
from torchx.supervisor.actions import Action, Requeue
from torchx.supervisor.policy import COUNTED


class Interest(IntEnum):
    """The output of a replica that a policy needs. An engine that keeps the logs reads no more than that."""

    NOTHING = 0
    TIME = 1
    """The last line, when the policy is due."""
    LATER = 2
    """All output, when the policy is due."""
    LINES = 3
    """All output, when it is written."""


class Fail(NamedTuple):
    """End these running replicas as failed ones; the reason is recorded, and retries follow the rules."""

    replicas: tuple[int, ...]
    reason: Reason


class Cancel(NamedTuple):
    """Cancel the application; the reason continues "cancelled, as it was"."""

    reason: Reason


Order = Action | Fail | Cancel


@dataclass
class Replica:
    """A running attempt of a replica.

    Attributes:
        ordinal: its ordinal within the application.
        attempt: from 1.
        began: the time of its start by ``time.monotonic()``.
    """

    ordinal: int
    attempt: int
    began: float


class Application(NamedTuple):
    """The application that a policy of another package belongs to.

    Attributes:
        app_id: its id.
        replicas: its replicas as ``role/id``, by ordinal.
        cfg: the run options.
        metadata: its metadata; :func:`torchx.features.values_of` returns the flags of a feature.
    """

    app_id: str
    replicas: Sequence[str]
    cfg: Data
    metadata: Data = {}  # noqa: RUF012  # never changed


R = TypeVar("R", bound=Replica, contravariant=True)


class Policy(Generic[R]):
    """A feature of a running application. Each method has a default that does nothing.

    A policy of another package is created with an :class:`Application`.

    Attributes:
        before_ends: it is due before the ends of replicas are handled, as it may have caused them.
    """

    before_ends = False

    def interest(self, ordinal: int) -> Interest:
        """Returns the output of a replica that :meth:`output` gets."""
        return Interest.NOTHING

    def variables(self, ordinal: int) -> Mapping[str, str]:
        """Returns variables for a replica that is about to start."""
        return {}

    def started(self, replica: R) -> None:
        """Handles the start of an attempt."""

    def output(self, ordinal: int, stream: int, data: bytes, at: float) -> None:
        """Handles output of a replica.

        Args:
            ordinal: the replica.
            stream: 1 for stdout or 2 for stderr.
            data: the output, which may end within a line.
            at: its time by ``time.monotonic()``.
        """

    def verdict(self, replica: R, facts: Object) -> str:
        """Returns how a failure is retried: COUNTED, FREE or NEVER.

        Args:
            replica: the attempt that has failed.
            facts: its exit code, its signal and the known reason; a reason against a retry is added.
        """
        return COUNTED

    def ended(self, replica: R, usage: struct_rusage | None) -> Object:
        """Handles the end of an attempt; returns further facts to record.

        Args:
            replica: the attempt.
            usage: the resources that its main process used, if known.
        """
        return {}

    def reaped(self, pid: int, status: int, usage: struct_rusage) -> bool:
        """Handles the end of another child of the supervisor; returns True if the policy has started it."""
        return False

    def requeued(self, requeue: Requeue) -> None:
        """Handles the end of a run by the time limit; all replicas start again."""

    def pause(self) -> float | None:
        """Returns the seconds until the policy is due; None if only an event makes it due."""
        return None

    def due(self) -> Sequence[Order]:
        """Returns the orders to carry out now; called in each pass, which may be before it is due."""
        return ()

    @property
    def reason(self) -> Reason | None:
        """The reason for the end of the application, if this policy has caused it."""
        return None

    def close(self) -> None:
        """Releases its resources, when the application has ended."""


def pause_of(policies: Iterable[Policy[R]]) -> float | None:
    """Returns the seconds until the first of some policies is due, None if none will be."""
    return min((pause for policy in policies if (pause := policy.pause()) is not None), default=None)


def verdict_of(policies: Iterable[Policy[R]], replica: R, facts: Object) -> str:
    """Returns the first verdict of some policies on a failure that is not COUNTED; see ``Policy.verdict``."""
    for policy in policies:
        verdict = policy.verdict(replica, facts)
        if verdict != COUNTED:
            return verdict
    return COUNTED
