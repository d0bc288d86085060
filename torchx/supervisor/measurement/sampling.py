"""Measure the replicas of a job at intervals, each with all of its processes.

A pass reads the process table once, whatever the number of replicas. The pause after it is so long that all
passes together use at most :data:`SHARE` of a core.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence

from torchx import settings
from torchx.jobs.events import Clock
from torchx.jobs.measurement import Row
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.json_limits import Object, without_none
from torchx.lazy import lazy_imports
from torchx.machine.cgroups import Totals
from torchx.machine.marks import environment_of
from torchx.machine.processes import Entry, read_proc, table
from torchx.scheduling.measurement import Sample
from torchx.supervisor.measurement.file import UsageFile
from torchx.supervisor.measurement.samples import NOTHING, Meter, most, rate
from torchx.supervisor.policies import Order, Policy
from torchx.supervisor.replicas import Replicas, Running

with lazy_imports:
    import traceback

    from torchx.supervisor import gpus as supervisor_gpus

FIRST_AFTER = 1.0
"""Seconds between the start of the last replica and the first pass."""

INTERVAL = 5.0
"""Minimum seconds between two passes, and maximum until the first."""

AFTER_ERROR = 60.0
"""Seconds after which measurements continue that have failed."""

SHORTEST_SPAN = 0.5
"""Seconds that a sample covers at least: the kernel counts CPU time in hundredths of a second."""

SHARE = 0.01
"""Maximum share of a core that the passes use."""

OWN_SHARE = 1.25
"""Multiple of the supervisor's memory below which the memory of an ended process may be the supervisor's."""

TICK = 1 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512
"""Bytes of the blocks that the kernel counts for an ended process."""


class Attempt(Meter):
    """The measurements of one running attempt.

    Args:
        running: the attempt.
        at: its start, seconds since the epoch.
        gpus: its GPUs, by number or id.
    """

    __slots__ = ("_begin", "_busy", "_busy_span", "_gpu_memory", "_memory", "adopted", "gpus", "running")

    def __init__(self, running: Running, at: float, gpus: tuple[str, ...]) -> None:
        super().__init__(at)
        self.running = running
        self.gpus = gpus
        self.adopted = 0.0  # CPU seconds of orphans that the supervisor has reaped
        self._begin = at
        # the peaks so far, and the sum of the utilisation of its GPUs
        self._memory: int | None = None
        self._gpu_memory: int | None = None
        self._busy = self._busy_span = 0.0

    def measure(self, now: float, use: Totals, gpu: tuple[float | None, int | None]) -> Sample:
        """Returns the sample of the time since the last one; see :meth:`Meter.sample`."""
        use = use._replace(cpu=(use.cpu or 0.0) + self.adopted)
        sample = self.sample(now, use, gpu, self.running.output.received)
        self._memory = most(sample.memory, self._memory)
        self._gpu_memory = most(sample.gpu_memory, self._gpu_memory)
        if sample.gpu is not None:
            self._busy += sample.gpu * sample.span
            self._busy_span += sample.span
        return sample

    def total(self, now: float, ended: resource.struct_rusage | None) -> dict[str, float]:
        """Returns the measurements of the whole attempt for its event.

        Args:
            now: its end.
            ended: the resources that its main process used with its children, if known.
        """
        span, memory = max(now - self._begin, 1e-3), self._memory
        cpu, _, read, write = self.before
        if ended is not None:
            cpu = max(cpu or 0.0, ended.ru_utime + ended.ru_stime + self.adopted)
            read, write = most(ended.ru_inblock * BLOCK, read), most(ended.ru_oublock * BLOCK, write)
            # Linux counts a new process before it begins its program, as large as the supervisor
            if ended.ru_maxrss > OWN_SHARE * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
                memory = most(ended.ru_maxrss << 10, memory)
        values = {
            "span": span,
            "cpu": (cpu or 0.0) / span,
            "memory": memory,
            "gpu": self._busy / self._busy_span if self._busy_span else None,
            "gpu_memory": self._gpu_memory,
            "output": self.running.output.received / span,
            "read": rate(read, span),
            "write": rate(write, span),
        }
        return {name: round(value, 3) for name, value in values.items() if value is not None}


class Sampler(Policy[Running]):
    """Measures the running replicas of a job.

    A defect or an error here never affects the job: it ends the measurements.

    Args:
        record: the job.
        paths: its record.
        clock: the job's clock.
        replicas: its replicas.
    """

    def __init__(self, record: JobRecord, paths: JobPaths, clock: Clock, replicas: Replicas) -> None:
        self._handle = record.handle
        self._gpus = [
            _gpus_of({**role.env, **role.replicas[n].env}.get("CUDA_VISIBLE_DEVICES"))
            for _, role, n in record.replicas()
        ]
        self._monitor = supervisor_gpus.GpuMonitor() if any(self._gpus) else None
        self._file = UsageFile(paths.usage, len(self._gpus))
        self._clock = clock
        self._replicas = replicas
        self._attempts: dict[int, Attempt] = {}  # by pid of the main process
        self._owners: dict[int, Attempt] = {}  # of each process of the job, by pid, in the last pass
        self._first_by: float | None = None
        self._next: float | None = None
        self._sampled = False

    def started(self, running: Running) -> None:
        """Measures an attempt from now on."""
        gpus = self._gpus[running.ordinal]
        self._attempts[running.process.pid] = Attempt(running, self._clock.now(), gpus)
        now = time.monotonic()
        if self._first_by is None:
            self._first_by = now + INTERVAL
            if self._monitor is not None:
                self._monitor.start(INTERVAL)
        if not self._sampled:  # a pass would delay further starts
            self._next = min(now + FIRST_AFTER, self._first_by)

    def ended(self, running: Running, usage: resource.struct_rusage | None) -> Object:
        """Returns the facts about an ended attempt for its event.

        Args:
            running: the attempt.
            usage: the resources that its main process used; None if it cannot be ended.
        """
        attempt = self._attempts.pop(running.process.pid, None)
        if attempt is None:
            return {}
        return {"usage": attempt.total(self._clock.now(), usage)}

    def reaped(self, pid: int, status: int, usage: resource.struct_rusage) -> bool:
        """Counts the CPU time of an ended process that the supervisor had adopted."""
        owner = self._owners.pop(pid, None)
        if owner is not None:
            owner.adopted += usage.ru_utime + usage.ru_stime
        return False

    def pause(self) -> float | None:
        """Returns the seconds until the next pass, or None if no replica is running."""
        if self._next is None or not self._attempts:
            return None
        return self._next - time.monotonic()

    def due(self) -> Sequence[Order]:
        """Makes a pass if it is due; returns no orders."""
        if self._next is None or not self._attempts or time.monotonic() < self._next:
            return ()
        used = time.thread_time()
        try:
            self._sample()
        except Exception:
            self._next = time.monotonic() + AFTER_ERROR
            traceback.print_exc()  # into the supervisor's log
            return ()
        self._next = time.monotonic() + max(INTERVAL, (time.thread_time() - used) / SHARE)
        return ()

    def close(self) -> None:
        """Ends the measurements."""
        self._next = None
        if self._monitor is not None:
            self._monitor.close()

    def _sample(self) -> None:
        self._sampled = True
        now = self._clock.now()
        gpus = None
        if self._monitor is not None:
            gpus = self._monitor.read()
        entries = {entry.process.pid: entry for entry in table(zombies=True)}
        self._owners = self._find_owners(entries)
        uses: dict[int, Totals] = {}
        for pid, owner in self._owners.items():
            if now - owner.seen_at >= SHORTEST_SPAN:
                leader = owner.running.process.pid
                uses[leader] = _plus(uses.get(leader, NOTHING), entries[pid])
        rows = []
        for pid, use in uses.items():
            attempt = self._attempts[pid]
            gpu = (None, None) if gpus is None else gpus.of(attempt.gpus)
            running = attempt.running
            rows.append(Row(running.ordinal, running.attempt, attempt.measure(now, use, gpu)))
        self._file.add(rows)

    def _find_owners(self, entries: dict[int, Entry]) -> dict[int, Attempt]:
        """Returns the attempt that each process of the job belongs to."""
        me = os.getpid()
        owners: dict[int, Attempt | None] = {}  # None: not of this job, or being looked up
        for pid in entries:
            chain = []
            owner = None
            while pid not in owners and (entry := entries.get(pid)) is not None:
                chain.append(pid)
                owners[pid] = None
                owner = self._attempts.get(entry.session)
                if owner is None and entry.parent == me:
                    owner = self._owner_of_orphan(entry)
                if owner is not None or entry.parent == me:
                    break
                pid = entry.parent
            owners.update(dict.fromkeys(chain, owner or owners.get(pid)))
        return without_none(owners)

    def _owner_of_orphan(self, entry: Entry) -> Attempt | None:
        """Returns the attempt of an adopted process, from the last pass or by its environment."""
        known = self._owners.get(entry.process.pid)
        if known is not None:
            if known.running.process.pid in self._attempts:
                return known
            return None
        env = environment_of(entry.process)
        if _mark(settings.TORCHX_JOB_ID, self._handle) not in env:
            return None
        return next((a for a in self._attempts.values() if self._replica_mark(a) in env), None)

    def _replica_mark(self, attempt: Attempt) -> bytes:
        return _mark(settings.TORCHX_REPLICA, self._replicas.label(attempt.running.ordinal))


def _mark(name: str, value: str) -> bytes:
    return f"{name}={value}".encode("utf-8", "surrogateescape")


def _gpus_of(visible: str | None) -> tuple[str, ...]:
    devices = (device.strip() for device in (visible or "").split(","))
    return tuple(device for device in devices if device not in ("", "-1"))


def _plus(use: Totals, entry: Entry) -> Totals:
    """Adds a process to the resources of its replica."""
    cpu, memory = (use.cpu or 0.0) + entry.ticks * TICK, use.memory + entry.pages * PAGE
    read, write = _storage(entry.process.pid)
    return Totals(cpu, memory, _sum(use.read, read), _sum(use.write, write))


def _storage(pid: int) -> tuple[int | None, int | None]:
    """Returns the bytes that a process, and the children it has reaped, read and wrote; None if unknown."""
    values: dict[bytes, int] = {}
    for line in read_proc(f"/proc/{pid}/io").split(b"\n"):
        name, _, value = line.partition(b": ")
        if value.isdigit():
            values[name] = int(value)
    return values.get(b"read_bytes"), values.get(b"write_bytes")


def _sum(one: int | None, other: int | None) -> int | None:
    if other is None:
        return one
    return (one or 0) + other
