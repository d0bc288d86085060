"""The inference server: answers `/predict?x=NUMBER` with the prediction of its model, a line."""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SLOPE, OFFSET = 3.0, -1.0


class Handler(BaseHTTPRequestHandler):
    """Answers requests for a prediction, and for the health of the server."""

    def do_GET(self) -> None:
        """Handles a request."""
        url = urlsplit(self.path)
        answer = "ok"
        if url.path == "/predict":
            answer = str(SLOPE * float(parse_qs(url.query)["x"][0]) + OFFSET)
        self.send_response(200 if url.path in ("/health", "/predict") else 404)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Prints no line for a request."""


if __name__ == "__main__":
    replica = int(os.environ["TORCHX_REPLICA"].rpartition("/")[2])
    host = os.environ["TORCHX_HOSTS_TEACHER"].split(",")[replica]
    port = int(os.environ["TORCHX_PORT_MODEL"])
    print(f"serving at port {port}", flush=True)
    ThreadingHTTPServer((host, port), Handler).serve_forever()
