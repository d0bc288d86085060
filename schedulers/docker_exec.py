"""Runs a program in a container, beside what runs there."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from torchx.errors import StateError
from torchx.execution import Streams
from torchx.schedulers.docker_engine import Engine, EngineError
from torchx.schedulers.docker_facts import Container

HEAD = 8
"""Bytes before each piece of output: which stream, and its length; on a terminal there are none."""
STDERR = 2
LOOK_EVERY = 0.5
"""Seconds after which the size of the terminal is looked at."""


def container_of(containers: Sequence[Container], app_id: str, role: str, replica: int) -> str:
    """Returns the id of the container in which a replica runs now.

    Raises:
        StateError: there is no such replica, or it does not run.
    """
    mine = [c for c in containers if (c.role, c.replica) == (role, replica)]
    if not mine:
        raise StateError(f"{app_id} has no replica {role}/{replica}")
    paused = [c for c in mine if c.status == "paused"]
    if paused:
        name = ".".join(filter(None, (paused[0].name, paused[0].mark)))
        raise StateError(
            f"{role}/{replica} of {app_id} is paused", hint=f"let it go on: docker unpause {name}"
        )
    running = [c for c in mine if c.status == "running"]
    if not running:
        raise StateError(f"{role}/{replica} of {app_id} does not run any more, or not yet")
    return max(running, key=lambda c: c.attempt).id


def execute(engine: Engine, container: str, command: Sequence[str], streams: Streams) -> int:
    """Runs a program in a container to its end, and returns its exit code.

    Raises:
        StateError: the engine refuses it, or there is no such program in the container.
    """
    wanted = {
        "AttachStdin": streams.stdin is not None,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": streams.terminal,
        "Cmd": list(command),
    }
    made = engine.call("POST", f"/containers/{container}/exec", body=wanted)["Id"]
    begin = {"Detach": False, "Tty": streams.terminal}
    try:
        connection, data = engine.stream(f"/exec/{made}/start", method="POST", body=begin)
    except EngineError as error:
        raise StateError(f"`{command[0]}` could not be run there: {error.message}") from None
    over = threading.Event()
    feeder = threading.Thread(target=_feed, args=(engine, made, connection, streams, over), daemon=True)
    feeder.start()
    try:
        _receive(connection, data, streams)
    finally:
        over.set()
        feeder.join(timeout=2)
        connection.close()
    return int(engine.call("GET", f"/exec/{made}/json").get("ExitCode") or 0)


def _receive(connection: socket.socket, data: bytes, streams: Streams) -> None:
    """Hands on what comes until the program has ended."""
    while True:
        if streams.terminal:
            _show(streams, 1, data)
            data = b""
        while len(data) >= HEAD:
            stop = HEAD + int.from_bytes(data[4:HEAD], "big")
            if len(data) < stop:
                break
            _show(streams, data[0], data[HEAD:stop])
            data = data[stop:]
        more = connection.recv(1 << 16)
        if not more:
            return
        data += more


def _show(streams: Streams, stream: int, data: bytes) -> None:
    if data:
        output = streams.stderr if stream == STDERR else streams.stdout
        output.write(data)
        output.flush()


def _feed(
    engine: Engine, made: str, connection: socket.socket, streams: Streams, over: threading.Event
) -> None:
    """Sends what is typed, and the size of the terminal whenever it changes."""
    size: tuple[int, int] | None = None
    source = streams.stdin
    with suppress(OSError, StateError):  # it has ended: who receives knows how
        while not over.is_set():
            if streams.terminal and streams.size() != size:
                size = streams.size()
                engine.call("POST", f"/exec/{made}/resize", {"h": size[0], "w": size[1]})
            if source is None:
                over.wait(LOOK_EVERY)
                continue
            if not select.select([source], [], [], LOOK_EVERY)[0]:
                continue
            data = os.read(source, 1 << 16)
            if data:
                connection.sendall(data)
                continue
            source = None
            connection.shutdown(socket.SHUT_WR)
