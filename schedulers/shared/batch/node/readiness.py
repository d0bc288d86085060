"""Checks on a node whether a replica of a service is ready.

The agent of the replica loads it as ``.node/readiness.py``, which begins with copies of the modules of torchx
that it imports. It needs Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from torchx.schedulers.shared.batch.node.program import Program
from torchx.services import ENDED_WHILE_NEEDED
from torchx.services.probe import Probe, ServiceRule
from torchx.supervisor.services.probes import Check, CommandCheck, port_of, start_check
from torchx.supervisor.services.watch import Watch

COMMAND_INTERVAL = 0.1
"""Seconds between two checks whether the program of a probe has ended."""
LONGEST = 60.0
SUSPENDED = 5.0
"""Seconds between two checks, from which on the job was suspended."""


class Service:
    """A replica of a service.

    Args:
        mark: the file that exists while it is ready, in a folder whose name ends with the number of its role.
        env: the environment of its program.

    Attributes:
        late: the message about a program that is ended because it was not ready in time; else empty.
    """

    def __init__(self, mark: str, env: dict[str, str]) -> None:
        self._mark, self._env = Path(mark), env
        self._job = self._mark.parents[1]
        number = self._mark.parent.name.rpartition("-")[2]
        rule = json.loads((self._job / ".node" / "services.json").read_text(encoding="utf-8"))[number]
        self._port: str = rule["port"]
        self._probe = Probe.of(rule["ready"])
        known = ServiceRule(rule["ready"], self._probe, rule["limit"], rule["within"])
        self._watch: Watch | None = Watch(known, self._start)
        self.late = ""
        self._ready_at: float | None = None
        self._command: tuple[subprocess.Popen[bytes], CommandCheck] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._checked_at = time.monotonic()
        self._unmark()

    def pause(self) -> float:
        """Returns the maximum seconds until the next call of :meth:`check`."""
        if self._watch is None:
            return LONGEST
        if self._command is None:
            longest = LONGEST
        else:
            longest = COMMAND_INTERVAL
        return min(self._watch.pause_from(time.monotonic()), longest)

    def feed(self, stream: int, data: bytes) -> None:
        """Handles output of the program."""
        if self._watch is not None:
            self._watch.feed(stream, data)

    def check(self, process: Program) -> None:
        """Checks whether the replica is ready; sends TERM to its program if it is not in time."""
        now = time.monotonic()
        between, self._checked_at = now - self._checked_at, now
        self._reap()
        if self._watch is not None and between > SUSPENDED:
            self._watch.extend(between)
        if self._watch is None:
            return
        if self._watch.is_ready(now):
            self._close()
            self._ready_at = time.time()
            with open(os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(f"{self._ready_at}\n")
        elif self._watch.is_late(now):
            self.late = self._watch.reason()
            self._close()
            process.terminate()

    def end(self, status: int, stopped: bool) -> dict[str, Any]:
        """Handles the end of the program; returns further facts on it.

        Args:
            status: its exit code, or the negative number of the signal that ended it.
            stopped: it was ended by a signal to the replica.
        """
        self._close()
        self._unmark()
        if self._ready_at is None:
            facts: dict[str, Any] = {}
        else:
            facts = {"ready_at": self._ready_at}
        if stopped or any((self._job / name).exists() for name in (".released", ".noticed")):
            return facts
        facts["needed"] = True
        if self.late:
            facts.update(signal="SIGTERM", msg=self.late, cause="not_ready")
        elif status != -9:
            facts.update(msg=ENDED_WHILE_NEEDED, cause="")
        return facts

    def _unmark(self) -> None:
        with contextlib.suppress(OSError):
            self._mark.unlink()

    def _start(self) -> Check | None:
        port = port_of(self._probe, self._env.get(self._port, "").encode())
        check = start_check(self._probe, port, self._spawn)
        if isinstance(check, CommandCheck) and self._process is not None:
            self._command = self._process, check
        return check

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        null = subprocess.DEVNULL
        self._process = None
        self._process = subprocess.Popen(
            command, env=self._env, stdin=null, stdout=null, stderr=null, start_new_session=True
        )
        return self._process

    def _reap(self) -> None:
        if self._command is not None:
            process, check = self._command
            code = process.poll()
            if code is not None:
                self._command = None
                check.reaped(-code if code < 0 else code << 8)

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
