"""Progress of the layers of an image that an engine pulls or pushes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

from torchx.json_limits import Data
from torchx.scheduling.progress import Part

_MOVES = {"Downloading": "downloading", "Extracting": "extracting", "Pushing": "pushing"}
_WAITS = ("Pulling fs layer", "Preparing", "Waiting")
_DOWNLOADED = ("Download complete", "Verifying Checksum")
_DONE = ("Pull complete", "Already exists", "Layer already exists", "Pushed")


class Layers:
    """The layers of an image while it is transferred."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._done: set[str] = set()

    def add(self, line: Data) -> None:
        """Processes one line of the engine's response."""
        name, status = str(line.get("id") or ""), str(line.get("status") or "")
        detail = line.get("progressDetail") or {}
        known = self._parts.get(name, Part(name))
        if status in _MOVES:
            # the engine counts from 0 again while it extracts a layer
            total = max(known.total, int(detail.get("total") or 0))
            if status == "Extracting":
                done = total
            else:
                done = int(detail.get("current") or 0)
            self._parts[name] = Part(name, _MOVES[status], min(done, total), total)
        elif status in _WAITS:
            self._parts.setdefault(name, Part(name, "waiting"))
        elif status in _DOWNLOADED:
            self._parts[name] = Part(name, "downloaded", known.total, known.total)
        elif status in _DONE or status.startswith("Mounted from"):
            self._parts[name] = Part(name, "", known.total, known.total)
            self._done.add(name)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The layers, in the engine's order."""
        return tuple(self._parts.values())

    @property
    def size(self) -> int:
        """Total bytes of the transferred layers."""
        return sum(part.total for part in self._parts.values())

    @property
    def text(self) -> str:
        """The number of finished layers, as text.

        >>> layers = Layers()
        >>> layers.add({"id": "x", "status": "Downloading", "progressDetail": {"current": 4, "total": 31}})
        >>> layers.add({"id": "y", "status": "Already exists"})
        >>> layers.text, layers.size
        ('1 of 2 layers', 31)
        """
        if len(self._parts) > 1:
            return f"{len(self._done)} of {len(self._parts)} layers"
        return ""


def lines_of(connection: socket.socket, rest: bytes) -> Iterator[Data]:
    """Yields the JSON lines of a streamed response."""
    while True:
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
        more = connection.recv(1 << 16)
        if not more:
            if rest.strip():
                yield json.loads(rest)
            return
        rest += more
