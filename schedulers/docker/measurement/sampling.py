"""Measure the running containers of an application at intervals, as the supervisor of a local job does.

The control groups of the containers are read if they are on this machine, which needs no engine; otherwise
the statistics of the engine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torchx.jobs.events import Clock
from torchx.jobs.measurement import Row
from torchx.lazy import lazy_imports
from torchx.machine.cgroups import Cgroup, Totals, cgroup_of
from torchx.machine.files import make_folder
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.measurement.statistics import measure
from torchx.schedulers.docker.policies import ContainerPolicy
from torchx.schedulers.docker.replay import Progress
from torchx.supervisor.measurement.file import UsageFile
from torchx.supervisor.measurement.samples import Meter
from torchx.supervisor.policies import Order

with lazy_imports:
    import traceback

    from torchx.supervisor import gpus as supervisor_gpus

FIRST_AFTER = 1.0
"""Seconds between the start of a container and the first pass."""

INTERVAL = 5.0
"""Minimum seconds between two passes."""

SHORTEST_SPAN = 0.5
"""Seconds that a sample covers at least."""

SHARE = 0.01
"""Maximum share of a core that the passes use."""

PATIENCE = 5.0
"""Maximum seconds to wait for the statistics of a container."""

NO_GPU = (None, None)

ENGINE_COST = 0.002
"""CPU seconds that an engine uses for the statistics of a container."""


class _Attempt(Meter):
    """The measurements of a running container."""

    __slots__ = ("cgroup", "container", "ordinal")

    def __init__(self, container: Container, ordinal: int, at: float) -> None:
        super().__init__(at)
        self.container, self.ordinal = container, ordinal
        self.cgroup: Cgroup | None = None

    def totals(self) -> Totals | None:
        """Returns the totals of its control group; None if it is unknown here, or has ended."""
        if self.cgroup is None:
            self.cgroup = cgroup_of(self.container.pid, self.container.id)
        if self.cgroup is None:
            return None
        return self.cgroup.read()


class Sampler(ContainerPolicy):
    """Measures the running containers of an application.

    A defect or an error here never affects the application: it ends the measurements.

    Args:
        engine: the engine.
        path: the file of the samples.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine, self._path = engine, path
        self._clock = Clock()
        self._file: UsageFile | None = None
        self._attempts: dict[tuple[str, float], _Attempt] = {}
        self._gpus: supervisor_gpus.GpuMonitor | None = None
        self._next = math.inf

    def follow(self, progress: Progress) -> None:
        """Measures the containers that are running now, until the next call."""
        if self._file is None:
            self._file = UsageFile(self._path, len(progress.replicas))
        before, self._attempts = self._attempts, {}
        now = self._clock.now()
        for ordinal, container in progress.running.items():
            if container.started is None:
                continue
            key = (container.id, container.started)
            attempt = before.get(key)
            if attempt is None:
                # the clock of another machine may be ahead
                attempt = _Attempt(container, ordinal, min(container.started, now))
                first = max(attempt.seen_at + FIRST_AFTER - now, 0.0)
                self._next = min(self._next, time.monotonic() + first)
            attempt.container = container
            self._attempts[key] = attempt
        has_gpus = any(one.container.gpus for one in self._attempts.values())
        if has_gpus and self._gpus is None and self._engine.address.path:
            self._gpus = supervisor_gpus.GpuMonitor()
            self._gpus.start(INTERVAL)

    def pause(self) -> float | None:
        """Returns the seconds until the next pass, or None if nothing runs."""
        if self._attempts:
            return self._next - time.monotonic()
        return None

    def due(self) -> Sequence[Order]:
        """Makes a pass if it is due; returns no orders."""
        if not self._attempts or time.monotonic() < self._next:
            return ()
        used = time.thread_time()
        try:
            queried = self._sample()
        except Exception:
            self._next, self._attempts = math.inf, {}
            traceback.print_exc()  # into the supervisor's log
            return ()
        cost = time.thread_time() - used + queried * ENGINE_COST
        self._next = time.monotonic() + max(INTERVAL, cost / SHARE)
        return ()

    def close(self) -> None:
        """Ends the measurements."""
        if self._gpus is not None:
            self._gpus.close()

    def _sample(self) -> int:
        """Makes a pass; returns the number of containers whose statistics the engine was queried for."""
        now = self._clock.now()
        due = [one for one in self._attempts.values() if now - one.seen_at >= SHORTEST_SPAN]
        totals: dict[_Attempt, object] = {one: one.totals() for one in due}
        others = [one for one in due if one.cgroup is None]
        totals.update(zip(others, in_parallel(self._query, others), strict=True))
        gpus = None
        if self._gpus is not None:
            gpus = self._gpus.read()
        rows = []
        for one in due:
            found = totals[one]
            if not isinstance(found, Totals) or found.cpu is None:
                continue  # it has just ended
            container = one.container
            # those of another machine are not ours
            gpu = gpus.of(container.gpus) if gpus is not None and one.cgroup is not None else NO_GPU
            number = container.attempt + container.restarts
            rows.append(Row(one.ordinal, number, one.sample(now, found, gpu)))
        if rows and self._file is not None:
            with suppress(OSError):
                make_folder(self._path.parent)
            self._file.add(rows)
        return len(others)

    def _query(self, attempt: _Attempt) -> Totals | None:
        return measure(self._engine, attempt.container, PATIENCE)
