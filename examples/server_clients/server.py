"""The server of the example: distributes parts of the work over HTTP and adds up the results."""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PARTS = 20


class Work(ThreadingHTTPServer):
    """The remaining parts, the sum of the results, and the number of clients that still work."""

    daemon_threads = True

    def __init__(self, port: int, upto: int, clients: int) -> None:
        size = -(-upto // PARTS)
        self.parts = [(first, min(first + size, upto)) for first in range(0, upto, size)]
        self.missing = len(self.parts)
        self.clients = clients
        self.total = 0
        self.lock = threading.Lock()
        self.done = threading.Event()
        super().__init__(("", port), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answers one client: GET returns a part of the work, POST receives a result."""

    server: Work

    def do_GET(self) -> None:
        """Answers with the next part, or null if none is left; every client receives null once."""
        with self.server.lock:
            part = self.server.parts.pop() if self.server.parts else None
        self.answer(part)
        if part is None:
            with self.server.lock:
                self.server.clients -= 1
                if self.server.clients == 0:
                    self.server.done.set()

    def do_POST(self) -> None:
        """Receives the number of primes in one part."""
        found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.total += found
            self.server.missing -= 1
        self.answer("thanks")

    def answer(self, value: object) -> None:
        """Sends a value as JSON."""
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


def main() -> None:
    """Serves until every client has received null, then prints the result."""
    parser = argparse.ArgumentParser(description="Distributes the numbers among which to count the primes.")
    parser.add_argument("--upto", type=int, required=True, help="count the primes below this number")
    parser.add_argument("--clients", type=int, required=True, help="number of clients")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for all results")
    arguments = parser.parse_args()

    port = int(os.environ.get("TORCHX_PORT_WORK", arguments.port))
    with Work(port, arguments.upto, arguments.clients) as work:
        print(f"serving {len(work.parts)} parts to {work.clients} clients", flush=True)
        threading.Thread(target=work.serve_forever, daemon=True).start()
        in_time = work.done.wait(arguments.patience)
        work.shutdown()
    if not in_time or work.missing:
        raise SystemExit(f"gave up: {work.missing} parts are missing")
    print(f"there are {work.total} primes below {arguments.upto}", flush=True)


if __name__ == "__main__":
    main()
