"""Single checks of services in containers; each is polled until it has an answer."""

from __future__ import annotations

import errno
import os
import shlex
import socket
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from torchx.errors import TorchxError
from torchx.schedulers.docker.containers import Container, mapping_in, text_in
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.exec import addresses_of
from torchx.services.probe import CMD, Probe
from torchx.supervisor.services.probes import LONGEST_CHECK, Check, PortCheck

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
        code = exit_code(self._engine, self.id) if self._ended else None
        if code in NOT_STARTED and NOT_RUN in self._output:
            return _reason(self._output.decode("utf-8", "replace"))
        if code is not None:
            return f"exit {code}" if code else ""
        return f"it did not end in {LONGEST_CHECK:g} s" if time.monotonic() > self._until else None

    def close(self) -> None:
        """Closes the connection; a program that runs continues, as an engine cannot end it."""
        self._connection.close()


def exit_code(engine: Engine, program: str) -> int | None:
    """Returns the exit code of a program in a container; None while it runs, or if it is unknown."""
    with suppress(TorchxError):
        state = engine.call("GET", f"/exec/{program}/json")
        if not state.get("Running"):
            code = state.get("ExitCode")
            return code if isinstance(code, int) else None
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


def is_reachable(found: Mapping[str, Any]) -> bool:
    """Returns True if this machine has the gateway of a container's network, or the network is its own.

    Otherwise the engine has networks of its own, in a virtual machine or without root, and reaches this
    machine by published ports.

    Args:
        found: the engine's description of the container.
    """
    if mapping_in(found, "HostConfig").get("NetworkMode") == "host":
        return True
    settings = mapping_in(found, "NetworkSettings")
    networks = mapping_in(settings, "Networks")
    gateways = [text_in(mapping_in(networks, name), "Gateway") for name in networks]
    return any(map(_has_address, filter(None, [text_in(settings, "Gateway"), *gateways])))


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
    missing = "executable file not found" in low or "no such file or directory" in low
    number = errno.ENOENT if missing else errno.EACCES if "permission denied" in low else 0
    return os.strerror(number) if number else text
