"""The time limit of an application in containers: its clock, and the notice to the programs."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.replay import Progress
from torchx.schedulers.shared.notice import NOTICE_SCRIPT


class Notices:
    """Applies the time limit, and sends the notice, once to each container.

    Args:
        engine: the engine.
        report: called with a line about a container that cannot be notified.
    """

    def __init__(self, engine: Engine, report: Callable[[str], None]) -> None:
        self._engine, self._report = engine, report
        self._notified: set[str] = set()

    def apply_limit(self, progress: Progress) -> None:
        """Applies the time limit to an application if it is reached while containers run."""
        if progress.ends_at and progress.end is None and time.time() >= progress.ends_at and _live(progress):
            progress.expire()

    def send_due(self, progress: Progress) -> float:
        """Sends the notice if it is due; returns the seconds until the notice or the limit."""
        rule, left = progress.job.limits, progress.ends_at - time.time()
        if not progress.ends_at or progress.gang.expired or progress.cancelled:
            return float("inf")
        if not rule.notice or left <= 0:
            return max(left, 1.0)
        if left > rule.notice:
            return left - rule.notice
        new = [container for container in _live(progress) if container.id not in self._notified]
        self._notified.update(container.id for container in new)
        number = signal.Signals[f"SIG{rule.signal}"].value
        command = ["sh", "-c", NOTICE_SCRIPT, "sh", rule.signal, str(number), "1", str(math.ceil(left))]
        for container, result in zip(new, in_parallel(lambda c: self._run(c, command), new), strict=True):
            if isinstance(result, Exception):
                self._report(f"{container.name} was not notified: {result}")
        return left

    def _run(self, container: Container, command: list[str]) -> None:
        """Starts a program in a container.

        Raises:
            StateError: the engine cannot start it, for example since the image has no shell.
        """
        made = self._engine.call("POST", f"/containers/{container.id}/exec", body={"Cmd": command})
        self._engine.call("POST", f"/exec/{made['Id']}/start", body={"Detach": True})


def _live(progress: Progress) -> list[Container]:
    return [c for mine in progress.replicas for c in mine[-1:] if c.live]
