"""Watches the services of an application in containers, in a thread: marks ready ones, ends late ones.

The marks are in the names of the containers, so they outlive the supervisor, and every query sees them.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress

from torchx.errors import TorchxError
from torchx.json_limits import Data
from torchx.json_shape import typed_at
from torchx.machine.polling import readable
from torchx.schedulers.docker.cancel import end_all, mark_ready
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.exec import addresses_of
from torchx.schedulers.docker.logs import FollowedLog
from torchx.schedulers.docker.marks import unready
from torchx.schedulers.docker.policies import ContainerPolicy
from torchx.schedulers.docker.probes import with_probes
from torchx.schedulers.docker.replay import Progress
from torchx.services.probe import CMD, LOG, Probe, ServiceRule
from torchx.supervisor.services.probes import LONGEST_CHECK, Check, PortCheck
from torchx.supervisor.services.watch import Watch

READ_SIZE = 1 << 16
AGAIN_AFTER = 1.0
"""Seconds until a container is checked again after an error of the engine."""


class Watched:
    """A container of a service that is not ready yet.

    Args:
        engine: the engine.
        container: the container.
        rule: the rule of its service.
    """

    def __init__(self, engine: Engine, container: Container, rule: ServiceRule) -> None:
        self.container = container
        now = engine.clock.now()
        age = max(now - (container.started or now), 0.0)
        self.watch = Watch(rule, Checks(engine, container, rule.probe).start, age)
        self.log: FollowedLog | None = None
        if rule.probe.kind == LOG:
            self.log = FollowedLog(engine, container)

    def pause_from(self, now: float) -> float:
        """Returns the seconds until the next check, or until its log is to be opened."""
        pause = self.watch.pause_from(now)
        if self.log is not None:
            return min(pause, self.log.pause())
        return pause

    def read(self) -> None:
        """Reads the new output if its probe needs it."""
        if self.log is not None:
            for _, (_, stream), data in self.log.read():
                self.watch.feed(stream, data)

    def close(self) -> None:
        """Gives up the watch."""
        self.watch.close()
        if self.log is not None:
            self.log.close()


class Readiness(ContainerPolicy):
    """Watches the services of one application.

    Args:
        engine: the engine.
        report: called with a line about an unexpected error.
    """

    def __init__(self, engine: Engine, report: Callable[[str], None]) -> None:
        self._engine, self._report = engine, report
        self._rules: Mapping[str, ServiceRule] | None = None
        self._lock = threading.Lock()
        self._wanted: dict[str, Container] = {}
        self._thread: threading.Thread | None = None
        self._grace = 0.0
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def follow(self, progress: Progress) -> None:
        """Watches the containers of services that run and are not ready, until the next call."""
        if self._rules is None:
            self._rules = {
                r.name: r.service for r in with_probes(progress.job).roles if r.service is not None
            }
            self._grace = progress.job.grace
        wanted = {}
        if not progress.cancelled and progress.end is None:
            for ordinal, container in progress.running.items():
                is_service = progress.job.members[ordinal][0].service is not None
                if is_service and not container.mark and not progress.is_ready(ordinal):
                    wanted[container.id] = container
        with self._lock:
            changed = wanted.keys() != self._wanted.keys()
            self._wanted = wanted
        if wanted and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        elif changed:
            with suppress(BlockingIOError):
                os.write(self._wake, b"x")

    def _run(self) -> None:
        watched: dict[str, Watched] = {}
        done: set[str] = set()
        while True:
            with self._lock:
                wanted = dict(self._wanted)
            done &= wanted.keys()
            for gone in watched.keys() - wanted.keys():
                watched.pop(gone).close()
            for new in wanted.keys() - watched.keys() - done:
                watched[new] = Watched(self._engine, wanted[new], self._rule_of(wanted[new]))
            for key, one in list(watched.items()):
                try:
                    over = self._is_over(one)
                except Exception as error:  # the engine does not answer
                    self._report(f"{one.container.name} could not be checked: {error}")
                    watched.pop(key).close()  # begins again
                    time.sleep(AGAIN_AFTER)
                    continue
                if over:
                    done.add(key)
                    watched.pop(key).close()
            self._wait(watched.values())

    def _rule_of(self, container: Container) -> ServiceRule:
        rules = self._rules or {}
        return rules.get(container.role) or ServiceRule()

    def _is_over(self, one: Watched) -> bool:
        """Checks a container; returns True if it is ready, or was ended as it was not ready in time."""
        now = time.monotonic()
        one.read()
        if one.watch.is_ready(now):
            mark_ready(self._engine, one.container)
            return True
        if one.watch.is_late(now):
            end_all(self._engine, [one.container], unready(one.watch.answer), self._grace)
            return True
        return False

    def _wait(self, watched: Collection[Watched]) -> None:
        """Waits until a check is due, output arrives, or other containers are to be watched."""
        now = time.monotonic()
        pauses = [one.pause_from(now) for one in watched]
        logs = [one.log for one in watched if one.log is not None and one.log.is_open]
        if self._woken in readable([self._woken, *logs], min(pauses, default=None)):
            os.read(self._woken, READ_SIZE)


STAYS_OPEN = 0.5
"""Seconds for which a connection to a published port must stay open: the engine's proxy accepts each."""
LONGEST_OUTPUT = 4096
"""Bytes that are kept of the output of a program."""

NOT_STARTED = (126, 127)
NOT_RUN = b"exec failed: unable to start container process"
"""In the output of a program that the engine could not start, with one of these exit codes."""


class ExecCheck:
    """Runs a program in a container, without a shell.

    Args:
        engine: the engine.
        container: the id of the container.
        command: its command line.

    Raises:
        OSError: it cannot be started.
    """

    interval = 0.1

    def __init__(self, engine: Engine, container: str, command: str) -> None:
        self._engine = engine
        self._until = time.monotonic() + LONGEST_CHECK
        self._output, self._ended = b"", False
        body = {"AttachStdout": True, "AttachStderr": True, "Cmd": shlex.split(command)}
        try:
            self.id = str(engine.call("POST", f"/containers/{container}/exec", body=body)["Id"])
            # attached, as Podman does not report the end of a detached program
            self._connection, _ = engine.exchange(f"/exec/{self.id}/start", {"Detach": False, "Tty": False})
        except TorchxError as error:
            raise OSError(_reason(str(error))) from error

    def poll(self) -> str | None:
        """Returns None until it has ended, then an empty text if the replica is ready, else the answer."""
        if not self._ended:
            try:
                data, self._ended = self._connection.receive()
                self._output = (self._output + data)[:LONGEST_OUTPUT]
            except OSError:
                self._ended = True
        code = None
        if self._ended:
            code = exit_code(self._engine, self.id)
        if code in NOT_STARTED and NOT_RUN in self._output:
            return _reason(self._output.decode("utf-8", "replace"))
        if code is not None:
            if code:
                return f"exit {code}"
            return ""
        if time.monotonic() > self._until:
            return f"it did not end in {LONGEST_CHECK:g} s"
        return None

    def close(self) -> None:
        """Closes the connection; a program that runs continues, as an engine cannot end it."""
        self._connection.close()


def exit_code(engine: Engine, program: str) -> int | None:
    """Returns the exit code of a program in a container; None while it runs, or if it is unknown."""
    with suppress(TorchxError):
        state = engine.call("GET", f"/exec/{program}/json")
        if not state.get("Running"):
            code = state.get("ExitCode")
            if isinstance(code, int):
                return code
            return None
    return None


class Checks:
    """Starts the checks of one container.

    Args:
        engine: the engine.
        container: the container.
        probe: the probe; not one of lines.
    """

    def __init__(self, engine: Engine, container: Container, probe: Probe) -> None:
        self._engine, self._container, self._probe = engine, container, probe
        self._program = ""

    def start(self) -> Check:
        """Starts a check.

        Raises:
            OSError: it cannot be started; the text is the answer.
        """
        if self._probe.kind != CMD:
            return self._port_check()
        if self._program and exit_code(self._engine, self._program) is None:
            raise OSError(f"it did not end in {LONGEST_CHECK:g} s")
        check = ExecCheck(self._engine, self._container.id, self._probe.text)
        self._program = check.id
        return check

    def _port_check(self) -> Check:
        name = f"{self._container.role}/{self._container.replica}"
        try:
            found = self._engine.call("GET", f"/containers/{self._container.id}/json")
            addresses = addresses_of(self._engine, found, name, self._probe.port)
        except TorchxError as error:
            raise OSError(str(error)) from error
        if self._engine.address.path and is_reachable(found):
            host, port = addresses[0]
            return PortCheck(port, self._probe.text, host)
        host, port = addresses[-1]  # the published one, if there is one
        return PortCheck(port, self._probe.text, host, STAYS_OPEN)


def is_reachable(found: Data) -> bool:
    """Returns True if this machine has the gateway of a container's network, or the network is its own.

    Otherwise the engine has networks of its own, in a virtual machine or without root, and reaches this
    machine by published ports.

    Args:
        found: the engine's description of the container.
    """
    if typed_at(found, dict, "HostConfig").get("NetworkMode") == "host":
        return True
    settings = typed_at(found, dict, "NetworkSettings")
    networks = typed_at(settings, dict, "Networks")
    gateways = [typed_at(networks, str, name, "Gateway") for name in networks]
    return any(map(_has_address, filter(None, [typed_at(settings, str, "Gateway"), *gateways])))


def _has_address(address: str) -> bool:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as bound:
        try:
            bound.bind((address, 0))
        except OSError:
            return False
    return True


def _reason(text: str) -> str:
    """Returns the reason why the engine cannot start a program.

    >>> _reason('exec failed: exec: "ping": executable file not found in $PATH: unknown')
    'No such file or directory'
    """
    low = text.lower()
    if "executable file not found" in low or "no such file or directory" in low:
        return os.strerror(errno.ENOENT)
    if "permission denied" in low:
        return os.strerror(errno.EACCES)
    return text
