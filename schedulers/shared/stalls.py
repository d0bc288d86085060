"""The stalls of an application in containers, by its event log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torchx import json_shape
from torchx.jobs.events import read_events
from torchx.scheduling.stalls import StallReport, stalled_for

STALLED, PROGRESS, CANCEL = "stalled", "progress", "cancel"
"""The events about stalls."""

REPLICAS = 1 << 20
"""Exclusive limit of ordinals."""


class StallHistory(NamedTuple):
    """The recorded stalls of an application.

    Attributes:
        reports: a report for each stall.
        since: while it makes no progress: the time of the last progress.
        step: the last step, if it is known.
        cancelled: the reason if it was cancelled as it was stalled.
        folder: the folder of the application.
    """

    reports: tuple[StallReport, ...] = ()
    since: float | None = None
    step: int | None = None
    cancelled: str = ""
    folder: Path | None = None

    @property
    def message(self) -> str:
        """The message about a running application; empty while it makes progress."""
        if self.since is None:
            return ""
        return stalled_for(self.since, self.step, time.time())


class _Stalled(NamedTuple):
    """A stall in the event log: its time, that of the last progress, the last step."""

    t: float
    since: float
    step: int | None = None


def stall_of(event: Mapping[str, Any]) -> tuple[str, list[int]]:
    """Returns the message of a recorded stall, and the ordinals of the replicas that it names.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    message = json_shape.text(event.get("text", event["msg"]), "msg")
    return message, [json_shape.integer(ordinal, "rs") for ordinal in event.get("rs", [])]


def read_stalls(path: Path) -> StallHistory:
    """Returns the stalls in the event log of an application; skips damaged events."""
    reports: list[StallReport] = []
    since, step, cancelled = None, None, ""
    with suppress(OSError):
        for event in read_events(path):
            with suppress(KeyError, TypeError, ValueError):
                if event["e"] == STALLED:
                    at, since, step = json_shape.read(_Stalled, event, "event")
                    reports.append(StallReport(at, *stall_of(event)))
                elif event["e"] == PROGRESS:
                    since = step = None
                elif event["e"] == CANCEL:
                    cancelled = json_shape.text(event["why"], "why")
    return StallHistory(tuple(reports), since, step, cancelled, path.parent)
