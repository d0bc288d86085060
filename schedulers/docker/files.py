"""Files of containers, running or ended, as tar archives."""

from __future__ import annotations

import posixpath
import socket
from collections.abc import Callable

from torchx.errors import StateError
from torchx.json_limits import Data
from torchx.json_shape import typed_at
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.unstarted import readable
from torchx.scheduling.checks import require_replicas

HEADER = 512
"""Bytes of the header of a file in an archive."""
PATIENCE = 300.0
"""Seconds without data from an engine that reads files."""
MOST_LINKS = 20
"""Maximum number of links that a path leads through."""
LINK, FOLDER = b"2", b"5"
"""Kinds of files, in their header."""


class Archive:
    """An archive that an engine sends.

    Args:
        connection: the connection.
        start: the data received so far.
    """

    def __init__(self, connection: socket.socket, start: bytes) -> None:
        self._connection, self._start = connection, start

    def read(self, size: int, /) -> bytes:
        """Returns up to so many bytes; none at the end.

        Raises:
            StateError: the connection was lost.
        """
        if self._start:
            data, self._start = self._start[:size], self._start[size:]
            return data
        try:
            return self._connection.recv(size)
        except OSError as error:
            raise StateError(f"the engine does not send the files: {error}") from error

    def header(self) -> bytes:
        """Returns the header of the first file, which is read again."""
        while len(self._start) < HEADER:
            data = self._connection.recv(HEADER)
            if not data:
                raise StateError("the engine sent no file")
            self._start += data
        return self._start[:HEADER]

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


class ContainerFiles:
    """The files of the newest container of a replica.

    Args:
        engine: the engine.
        app_id: the application.
        role: the name of its role.
        replica: its id within the role.

    Raises:
        StateError: the replica does not exist or has no container.
    """

    def __init__(self, engine: Engine, app_id: str, role: str, replica: int) -> None:
        containers = readable(engine, app_id)
        replicas: dict[str, list[int]] = {}
        for container in containers:
            replicas.setdefault(container.role, []).append(container.replica)
        require_replicas(app_id, replicas, role, [replica])
        own = [c for c in containers if (c.role, c.replica) == (role, replica) and not c.removed]
        if not own:
            raise StateError(
                f"the container of {role}/{replica} of {app_id} was removed, with its files", code="no_files"
            )
        self._engine = engine
        self._url = f"/containers/{max(own, key=lambda c: c.attempt).id}"

    def kind(self, path: str) -> str:
        """Returns ``folder`` or ``file``; an empty string if the path does not exist."""
        try:
            archive = self.read(path)
        except EngineError as error:
            if error.status == 404:
                return ""
            raise
        kind = archive.header()[156:157]
        archive.close()
        if kind == FOLDER:
            return "folder"
        return "file"

    def read(self, path: str) -> Archive:
        """Returns an archive with a file or folder; links at the top are followed.

        Raises:
            EngineError: the path does not exist.
            StateError: the engine sends no file.
        """
        path = posixpath.join(self._folder(), path)
        for _ in range(MOST_LINKS):
            connection, start = self._engine.stream(f"{self._url}/archive", {"path": path}, patience=PATIENCE)
            archive = Archive(connection, start)
            header = archive.header()
            if header[156:157] != LINK:
                return archive
            archive.close()
            target = header[157:257].rstrip(b"\0").decode("utf-8", "surrogateescape")
            path = posixpath.join(posixpath.dirname(path.rstrip("/")), target)
        raise StateError(f"{path} leads through too many links")

    def write(self, folder: str, send: Callable[[Callable[[bytes], None]], None]) -> None:
        """Unpacks an archive in a folder; with the numeric user of the container as the owner."""
        user = str(typed_at(self._config(), str, "User") or "")
        query = {"path": posixpath.join(self._folder(), folder), "noOverwriteDirNonDir": "1"}
        if user.partition(":")[0].isdecimal():
            query["copyUIDGID"] = "1"
        with self._engine.upload(f"{self._url}/archive", query, send, "PUT") as lines:
            for _ in lines:
                pass

    def _config(self) -> Data:
        config: Data = typed_at(self._engine.call("GET", f"{self._url}/json"), dict, "Config")
        return config

    def _folder(self) -> str:
        """Returns the working directory of the container."""
        return typed_at(self._config(), str, "WorkingDir") or "/"
