"""The context of a real `docker build`: the command runs, and a server keeps what it sends to the engine."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

NOT_COMPARED = {"Dockerfile", ".dockerignore"}
"""The command sends these in any case, and the engine removes them."""


class _Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Prints nothing."""

    def address_string(self) -> str:
        return "a unix socket"

    def do_HEAD(self) -> None:
        self._answer(b"")

    do_GET = do_HEAD

    def do_POST(self) -> None:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.server.contexts.append(body)  # type: ignore[attr-defined]
        self._answer(json.dumps({"stream": "Successfully built\n"}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Builder:
    """Runs `docker build`.

    Args:
        socket: where the server in place of the engine listens.
        contexts: what it has received.
    """

    def __init__(self, socket: Path, contexts: list[bytes]) -> None:
        self._contexts = contexts
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(socket.parent),
            "DOCKER_HOST": f"unix://{socket}",
            "DOCKER_API_VERSION": "1.41",
            "DOCKER_BUILDKIT": "0",
        }

    def sent(self, folder: Path) -> set[str] | None:
        """Returns the paths that a build of a folder sends, with all folders; None if it refuses to."""
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
        done = subprocess.run(
            ["docker", "build", "-q", str(folder)],
            env=self._env, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        (folder / "Dockerfile").unlink()
        if done.returncode:
            assert "syntax error in pattern" in done.stderr or "exclusion pattern" in done.stderr, done.stderr
            return None
        with tarfile.open(fileobj=io.BytesIO(self._contexts.pop())) as tar:
            return with_parents(member.name for member in tar)


def with_parents(paths: Any) -> set[str]:
    """Returns paths with all folders on the way to them."""
    found: set[str] = set()
    for path in paths:
        parts = path.rstrip("/").split("/")
        found |= {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return found - NOT_COMPARED


@contextmanager
def builder(folder: Path) -> Iterator[Builder]:
    """Starts the server, and stops it at the end."""
    socket = folder / "engine.sock"
    with ThreadingUnixStreamServer(str(socket), _Engine) as server:
        server.contexts = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Builder(socket, server.contexts)  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


def docker_version() -> int:
    """Returns the first number of the version of the `docker` command; 0 where there is none."""
    if shutil.which("docker") is None:
        return 0
    output = subprocess.run(["docker", "--version"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"Docker version (\d+)", output)
    return int(found[1]) if found else 0
