"""A server that receives notifications, for tests."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import wait_until
from tunnels import context_of


class Hooks:
    """Receives notifications.

    Attributes:
        answers: the status of each response in order; the last one repeats.
        requests: the path and the content of each request.
        release: responses wait for it.
    """

    def __init__(self, answers: tuple[int, ...] = (200,), certificates: Path | None = None) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()
        self.release.set()
        self._thread: threading.Thread | None = None
        hooks = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                hooks.headers.append(dict(self.headers))
                hooks.requests.append((self.path, json.loads(data)))
                hooks.release.wait(120)
                code = hooks.answers.pop(0) if len(hooks.answers) > 1 else hooks.answers[0]
                try:
                    self.send_response(code)
                    if 300 <= code < 400:
                        self.send_header("Location", "/elsewhere")
                    self.end_headers()
                except OSError:
                    pass  # the sender was killed

            do_GET = do_POST

            def log_message(self, *args: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass  # a client that does not trust the certificate

        self.server = Server(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.server.server_bind()  # until it listens, the port is reserved and refuses connections
        if certificates is not None:
            self.server.socket = context_of(certificates).wrap_socket(self.server.socket, server_side=True)
        self.port = int(self.server.server_address[1])
        scheme = "http" if certificates is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}/T00/secret-part?key=canary"

    def start(self) -> None:
        """Accepts connections."""
        self.server.server_activate()
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        """Ends all requests."""
        self.release.set()
        if self._thread is not None:
            self.server.shutdown()
            self._thread.join()
        self.server.server_close()

    def wait_for(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Returns the requests once there are this many."""
        wait_until(lambda: len(self.requests) >= count, f"{count} requests")
        return self.requests


@contextmanager
def hooks_at(*answers: int, certificates: Path | None = None, listening: bool = True) -> Iterator[Hooks]:
    """Runs a server; its requests have ended when the context has.

    Args:
        answers: the status of each response in order; the last one repeats.
        certificates: the folder of its certificate, for https.
        listening: start it; otherwise it refuses connections until the test starts it.
    """
    hooks = Hooks(answers or (200,), certificates)
    try:
        if listening:
            hooks.start()
        yield hooks
    finally:
        hooks.close()
