"""Events of an application, from its submission to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from torchx.json_limits import Data

KINDS = (
    "submitted", "waiting", "started", "ready", "retry", "notice", "requeued", "stalled", "straggler",
    "cancelled", "measured", "ended",
)  # fmt: skip
"""The kinds of events. A newer version, or the scheduler of a plugin, may report others."""

OBSERVED: Data = {"time": "observed"}
"""The details of an event whose time the engine did not record."""


@dataclass(frozen=True)
class AppEvent:
    """An event of an application or of one of its replicas.

    ========= ==============================================================================================
    kind      meaning
    ========= ==============================================================================================
    submitted the application was submitted
    waiting   it waits, with the reason that the engine reports
    started   an attempt of a replica has started
    ready     all replicas have started and services are ready; again after a retry. With a replica: this one
              of a service is ready
    retry     a replica has failed, and is started again
    notice    the programs were notified of the end of their run
    requeued  a run has ended by a time limit or a preemption, and the next one begins
    stalled   the replica makes no progress
    straggler a rank of the replica is slower than the others
    cancelled its cancellation was requested
    measured  the largest peak memory of a replica, if one was measured
    ended     with a replica: an attempt has ended; without: the application has ended
    ========= ==============================================================================================

    Attributes:
        time: when it happened.
        kind: its kind.
        role: the role; empty for an event of the whole application.
        replica: the id of the replica within its role.
        attempt: the number of the attempt, from 1.
        message: one line for the user; may be empty.
        details: further data by name: ``state``, ``exit_code``, ``signal``, ``memory`` (peak, in bytes),
            ``cpu`` (mean cores), ``reason`` (of an end), ``pid``, ``service`` (it is to become ready),
            ``number``, ``allowed``, ``delay``, ``scope``, ``run``. ``time`` is ``observed`` if the engine did
            not record the time, and ``unknown`` if it was not observed either: then it is the earliest one.
        app_handle: the handle of the application; set by the runner.
    """

    time: datetime
    kind: str
    role: str = ""
    replica: int | None = None
    attempt: int | None = None
    message: str = ""
    details: Data = field(default_factory=dict)
    app_handle: str = ""

    @property
    def is_last(self) -> bool:
        """Whether the application has ended; no event follows."""
        return self.kind == "ended" and self.replica is None


class Readiness:
    """Reports when all replicas of an application have started.

    Args:
        replicas: the number of replicas.
    """

    def __init__(self, replicas: int) -> None:
        self._missing = set(range(replicas))
        if replicas > 1:
            self.message = f"all {replicas} replicas"
        else:
            self.message = ""

    def started(self, ordinal: int) -> bool:
        """Handles the start of a replica; returns True if it was the last missing one.

        >>> ready = Readiness(2)
        >>> ready.started(0), ready.started(1), ready.started(1)
        (False, True, False)
        """
        before = len(self._missing)
        self._missing.discard(ordinal)
        return before > 0 and not self._missing

    def ended(self, ordinal: int, *, succeeded: bool) -> None:
        """Handles the end of a replica; one that has succeeded is not missing."""
        if not succeeded:
            self._missing.add(ordinal)
