"""Runs a program in a running container; connects to its ports."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

from torchx.errors import StateError
from torchx.machine import polling
from torchx.machine.polling import HasDescriptor
from torchx.machine.port_names import resolve_port
from torchx.machine.relay import connect
from torchx.schedulers.docker import frames
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.duplex import Duplex
from torchx.schedulers.docker.unstarted import readable
from torchx.schedulers.shared.exec import POLL_INTERVAL, Caller, not_running
from torchx.schedulers.shared.exec_guard import Guard, new_mark
from torchx.scheduling.checks import require_replicas
from torchx.scheduling.streams import Streams

STDERR = 2
LAST_PATIENCE = 2.0
"""Seconds for a program to end after its input, or after its connection was reset."""


def execute(
    engine: Engine, app_id: str, role: str, replica: int, command: Sequence[str], streams: Streams
) -> int:
    """Runs a program in the container of a replica and returns its exit code.

    The program ends with this process, however that ends, if the image has a shell, grep and tr.

    Raises:
        StateError: the replica does not run, or its container has no such program.
    """
    container = container_of(readable(engine, app_id), app_id, role, replica)
    mark = new_mark()
    with Guard(mark, lambda guard: _Input(engine, container, guard)):
        return execute_in(engine, container, command, streams, [mark])


def container_of(containers: Sequence[Container], app_id: str, role: str, replica: int) -> str:
    """Returns the id of the container in which a replica runs.

    Raises:
        StateError: the replica does not exist or does not run.
    """
    replicas: dict[str, list[int]] = {}
    for container in containers:
        replicas.setdefault(container.role, []).append(container.replica)
    require_replicas(app_id, replicas, role, [replica])
    mine = [c for c in containers if (c.role, c.replica) == (role, replica)]
    paused = [c for c in mine if c.status == "paused"]
    if paused:
        raise StateError(
            f"{role}/{replica} of {app_id} is paused",
            hint=f"resume it: docker unpause {paused[0].full_name}",
            code="not_running",
            facts={"replica": f"{role}/{replica}"},
        )
    running = [c for c in mine if c.status == "running"]
    if not running:
        raise not_running(app_id, role, replica)
    return max(running, key=lambda c: c.attempt).id


def execute_in(
    engine: Engine, container: str, command: Sequence[str], streams: Streams, env: Sequence[str] = ()
) -> int:
    """Runs a program in a container and returns its exit code.

    Args:
        engine: the engine.
        container: the container.
        command: the program and its arguments.
        streams: its input and output.
        env: variables that are added to the environment of the container, as ``NAME=value``.

    Raises:
        StateError: the engine refuses it, or the container has no such program.
    """
    body = {
        "AttachStdin": streams.stdin is not None,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": streams.terminal,
        "Cmd": list(command),
        "Env": list(env),
    }
    made = engine.call("POST", f"/containers/{container}/exec", body=body)["Id"]
    try:
        connection, data = engine.exchange(f"/exec/{made}/start", {"Detach": False, "Tty": streams.terminal})
    except EngineError as error:
        raise StateError(f"`{command[0]}` could not be run in the container: {error.message}") from None
    with closing(connection):
        _Exchange(engine, made, connection, streams).run(data)
    return _exit_code(engine, made, command[0])


class _Input:
    """The input of a program in a container that writes nothing.

    Args:
        engine: the engine.
        container: the container.
        command: the program and its arguments.

    Raises:
        StateError: the engine refuses it.
    """

    def __init__(self, engine: Engine, container: str, command: Sequence[str]) -> None:
        body = {"AttachStdin": True, "Cmd": list(command)}
        made = engine.call("POST", f"/containers/{container}/exec", body=body)["Id"]
        self._connection, _ = engine.exchange(f"/exec/{made}/start", {"Detach": False, "Tty": False})

    def finish(self, data: bytes) -> None:
        """Sends data, and returns when the program has ended or after a short time."""
        self._connection.send(data)
        self._connection.finish()
        self._connection.rest(LAST_PATIENCE)

    def close(self) -> None:
        """Ends the connection, and with it the input."""
        self._connection.close()


class _Exchange:
    """Forwards input and output, in one thread, until the program has ended.

    Args:
        engine: the engine.
        made: the engine's id of the program.
        connection: the connection to the program.
        streams: its input and output.
    """

    def __init__(self, engine: Engine, made: str, connection: Duplex, streams: Streams) -> None:
        self._engine, self._made = engine, made
        self._connection, self._caller = connection, Caller(streams)
        self._terminal = streams.terminal
        self._data = b""

    def run(self, data: bytes) -> None:
        """Runs until the program has ended.

        Args:
            data: the output received so far.

        Raises:
            StateError: the connection was lost.
        """
        self._show(data)
        while True:
            self._resize()
            sent = self._connection.is_sent
            masks: dict[int | HasDescriptor, int] = {
                self._connection: select.POLLIN | (0 if sent else select.POLLOUT)
            }
            source = self._caller.source
            if source is not None and sent:
                masks[source] = select.POLLIN
            ready = polling.ready(masks, POLL_INTERVAL)
            if self._connection.fileno() in ready and self._receive():
                return
            try:
                self._connection.flush()
                if source in ready:
                    self._feed()
            except (BrokenPipeError, ConnectionResetError):
                # it no longer reads; there may still be output
                self._caller.source = None
                self._connection.discard()

    def _receive(self) -> bool:
        """Shows the received output; returns True at its end."""
        try:
            data, ended = self._connection.receive()
        except OSError as error:
            if isinstance(error, ConnectionResetError) and self._has_ended():
                return True
            raise StateError(
                f"the connection to the program was lost: {error.strerror or error}",
                hint="it may still run in the container",
            ) from error
        self._show(data)
        return ended

    def _has_ended(self) -> bool:
        """Returns True if the program has ended: the engine resets a connection whose input was not read."""
        end = time.monotonic() + LAST_PATIENCE
        while time.monotonic() < end:
            if not self._engine.call("GET", f"/exec/{self._made}/json").get("Running"):
                return True
            time.sleep(POLL_INTERVAL)
        return False

    def _feed(self) -> None:
        """Sends the available input, or closes the program's input at its end."""
        data = self._caller.read()
        if data:
            self._connection.send(data)
        else:
            self._connection.finish()

    def _resize(self) -> None:
        """Sends the size of the terminal if it has changed."""
        size = self._caller.new_size()
        if size is not None:
            with suppress(StateError):  # it has ended
                self._engine.call("POST", f"/exec/{self._made}/resize", {"h": size[0], "w": size[1]})

    def _show(self, data: bytes) -> None:
        if self._terminal:
            self._caller.show(data)
            return
        pieces, self._data = frames.split(self._data + data if self._data else data)
        for stream, piece in pieces:
            self._caller.show(piece, error=stream == STDERR)


def _exit_code(engine: Engine, made: str, program: str) -> int:
    """Waits for a program to end, as it may still run with closed outputs, and returns its exit code.

    Raises:
        StateError: the engine does not know it.
    """
    pause = 0.01
    while True:
        state = engine.call("GET", f"/exec/{made}/json")
        if not state.get("Running"):
            code = state.get("ExitCode")
            if isinstance(code, int):
                return code
            raise StateError(f"the engine does not know the exit code of `{program}`")
        time.sleep(pause)
        pause = min(pause * 2, POLL_INTERVAL)


def port_connector(
    engine: Engine, app_id: str, role: str, replica: int, port: str
) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a container.

    Raises:
        StateError: the replica is not running or has no such port, or the container cannot be reached.
    """

    def addresses() -> list[tuple[str, int]]:
        found = container_of(readable(engine, app_id), app_id, role, replica)
        described = engine.call("GET", f"/containers/{found}/json")
        return addresses_of(engine, described, f"{role}/{replica}", port)

    def connected() -> socket.socket:
        *others, last = addresses()
        for each in others:
            with suppress(StateError):
                return connect(*each, f"{role}/{replica}")
        return connect(*last, f"{role}/{replica}")

    addresses()
    return connected


def addresses_of(engine: Engine, found: Any, replica: str, port: str) -> list[tuple[str, int]]:
    """Returns the addresses of a port of a container, in the order in which they are tried.

    They are that of the container, if its engine is on this machine, and the published one.

    Args:
        engine: the engine.
        found: the container, as the engine describes it.
        replica: the replica, for the message.
        port: the port.

    Raises:
        StateError: the container has no such port, or it cannot be reached.
    """
    variables = (found.get("Config") or {}).get("Env") or []
    number = resolve_port(port, dict(text.split("=", 1) for text in variables if "=" in text), replica)
    settings = found.get("NetworkSettings") or {}
    networks = settings.get("Networks") or {}
    is_local = bool(engine.address.path)
    hosts = [settings.get("IPAddress"), *(each.get("IPAddress") for each in networks.values())]
    if (found.get("HostConfig") or {}).get("NetworkMode") == "host":
        hosts.append("localhost")
    addresses = [(text, number) for text in dict.fromkeys(filter(None, hosts)) if is_local]
    for published in (settings.get("Ports") or {}).get(f"{number}/tcp") or []:
        addresses.append((engine.address.host or "localhost", int(published["HostPort"])))
    if not addresses:
        raise StateError(
            f"port {number} of {replica} cannot be reached: it is not published by its engine",
            hint="publish it with a port_map, or run a program there: torchx exec",
        )
    return addresses
