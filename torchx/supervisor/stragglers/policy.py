"""Finds the stragglers of a running application; a supervisor, of processes or of containers, calls it."""

from __future__ import annotations

import json
import mmap
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from resource import struct_rusage

from torchx.jobs.paths import JobPaths
from torchx.json_limits import Data, Object
from torchx.machine import files
from torchx.scheduling.patterns import SearchTooLongError, limited_cpu
from torchx.stragglers import slots
from torchx.stragglers.record import MEMORY, PROGRESS, STRAGGLER, StragglerRule, reports_in
from torchx.stragglers.watch import Watch
from torchx.supervisor.policies import Interest, Order, Policy, Replica
from torchx.torchrun import rank_of

PAUSE = 2.0
"""Seconds between two checks."""

LONGEST_LINE = 1 << 16
"""Bytes of a line that are searched for a step."""

SHARE = 0.02
"""Largest share of a core for checks: a check that takes longer is followed by a longer pause."""


def policies_of(
    cfg: Data,
    paths: JobPaths,
    replicas: Sequence[tuple[str, int]],
    note: Callable[..., None],
    now: Callable[[], float],
    notify: Callable[[str], object] = lambda kind: None,
) -> list[Policy[Replica]]:
    """Returns the policy of an application; none if it does not request it, or without memory for the steps.

    Args:
        cfg: its run options.
        paths: its folder.
        replicas: the role and the id of each replica, by ordinal.
        note: records an event with its details.
        now: returns the time of the record's clock.
        notify: sends the notification of a straggler.
    """
    rule = StragglerRule.recorded(cfg)
    if rule is None:
        return []
    try:
        return [Stragglers(rule, paths, replicas, note, now, notify)]
    except OSError:  # the application runs without
        return []


class Stragglers(Policy[Replica]):
    """Reports ranks that are slower than the others of their role.

    Args:
        rule: its rule.
        paths: the folder of the application.
        replicas: the role and the id of each replica, by ordinal.
        note: records an event with its details.
        now: returns the time of the record's clock.
        notify: sends the notification of a straggler.

    Raises:
        OSError: the memory for the steps cannot be created.
    """

    def __init__(
        self,
        rule: StragglerRule,
        paths: JobPaths,
        replicas: Sequence[tuple[str, int]],
        note: Callable[..., None],
        now: Callable[[], float],
        notify: Callable[[str], object],
    ) -> None:
        self._paths, self._note, self._now, self._notify = paths, note, now, notify
        self._roles = sorted({role for role, _ in replicas})
        self._pattern = re.compile(rule.pattern.encode()) if rule.pattern else None
        self._path = paths.folder / MEMORY
        reports = [each._asdict() for each in reports_in(paths.folder)]  # of a supervisor that died
        self._watch = Watch(replicas, rule.steps, reports=reports)
        self._running: dict[int, float] = {}  # ordinals: the starts of their attempts
        self._lines: dict[int, dict[int, deque[tuple[float, int]]]] = {}  # steps in the output
        self._rest: dict[tuple[int, int], bytes] = {}
        self._next_at = 0.0
        self._is_whole = False  # no attempt has ended since the last start
        self._last = b""
        if not self._path.exists():  # containers of any user write to one that exists
            files.write_file(self._path, b"")
        descriptor = files.open_file(self._path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, slots.PAGE * len(replicas))
            self._memory = mmap.mmap(descriptor, slots.PAGE * len(replicas))
        finally:
            os.close(descriptor)

    def interest(self, ordinal: int) -> Interest:
        """Returns LATER if steps are read in the output."""
        if self._pattern is not None:
            return Interest.LATER
        return Interest.NOTHING

    def variables(self, ordinal: int) -> Mapping[str, str]:
        """Returns the variable with the place of the steps."""
        return {slots.VARIABLE: f"{ordinal * slots.PAGE}:{self._path}"}

    def started(self, replica: Replica) -> None:
        """Handles the start of an attempt."""
        self._running[replica.ordinal] = replica.began
        self._is_whole = True

    def output(self, ordinal: int, stream: int, data: bytes, at: float) -> None:
        """Handles output of a replica: a line may name a step, and the rank that has printed it."""
        if self._pattern is None or ordinal not in self._running:
            return
        *lines, rest = (self._rest.pop((ordinal, stream), b"") + data).split(b"\n")
        self._rest[ordinal, stream] = rest[-LONGEST_LINE:]
        ranks = self._lines.setdefault(ordinal, {})
        try:
            with limited_cpu():
                for rank, step in self._steps_in(lines).items():
                    ranks.setdefault(rank, deque(maxlen=slots.KEPT)).append((at, step))
        except SearchTooLongError:
            self._pattern = None

    def _steps_in(self, lines: Sequence[bytes]) -> dict[int, int]:
        """Returns the last step of each rank in some lines."""
        found: dict[int, int] = {}
        for line in lines:
            match = self._pattern and self._pattern.search(line[:LONGEST_LINE])
            number = (match and match[1]) or b""
            if number.isdigit() and len(number) < 19:
                found[rank_of(line[:200].decode("utf-8", "replace"), self._roles) or 0] = int(number)
        return found

    def ended(self, replica: Replica, usage: struct_rusage | None) -> Object:
        """Handles the end of an attempt."""
        ordinal = replica.ordinal
        if self._is_whole:  # the last steps of all
            self._is_whole = False
            self._check(time.monotonic())
        self._running.pop(ordinal, None)
        self._lines.pop(ordinal, None)
        self._rest = {key: rest for key, rest in self._rest.items() if key[0] != ordinal}
        self._watch.forget(ordinal)
        return {}

    def pause(self) -> float | None:
        """Returns the seconds until the next check, None if nothing runs."""
        if not self._running:
            return None
        return max(self._next_at - time.monotonic(), 0.0)

    def due(self) -> Sequence[Order]:
        """Compares the ranks, and reports new stragglers."""
        now = time.monotonic()
        if self._running and now >= self._next_at:
            self._check(now)
            self._next_at = now + max(PAUSE, (time.monotonic() - now) / SHARE)
        return ()

    def _check(self, now: float) -> None:
        beats = {ordinal: self._beats_of(ordinal, since) for ordinal, since in self._running.items()}
        for ordinal, text in self._watch.update(beats, self._now()):
            self._note(STRAGGLER, rs=[ordinal], msg=text)
            self._notify(STRAGGLER)
        data = json.dumps(self._watch.data()).encode()
        if data != self._last and b'"role"' in data:
            self._last = data
            with suppress(OSError):  # a full disk
                files.write_file(self._paths.folder / PROGRESS, data)

    def _beats_of(self, ordinal: int, since: float) -> dict[int, list[tuple[float, int]]]:
        found = slots.read_page(self._memory[ordinal * slots.PAGE : (ordinal + 1) * slots.PAGE], since)
        for rank, last in self._lines.get(ordinal, {}).items():
            found.setdefault(rank, slots.since_last_reset(list(last)))
        return found

    def close(self) -> None:
        """Releases the shared memory."""
        self._memory.close()
        with suppress(OSError):
            self._path.unlink()
