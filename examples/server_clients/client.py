"""A client of the example: requests parts of the work from the server until none is left."""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.error
import urllib.request


def primes_in(first: int, end: int) -> int:
    """Returns how many of the numbers from first to end (not included) are prime.

    >>> primes_in(0, 20)
    8
    """
    return sum(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(first, end))


def request_part(url: str, result: int | None = None) -> list[int] | None:
    """Sends a result, or requests the next part of the work: its two ends, or None if nothing is left."""
    data = None if result is None else json.dumps(result).encode()
    with urllib.request.urlopen(url, data, timeout=30) as answer:
        part = json.load(answer)
    return part if isinstance(part, list) else None


def wait_for(url: str, patience: float) -> list[int] | None:
    """Requests the first part, and retries until the server answers."""
    end = time.monotonic() + patience
    while True:
        try:
            return request_part(url)
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise SystemExit(f"no server at {url}") from None
            time.sleep(0.05)


def main() -> None:
    """Works until no part is left."""
    parser = argparse.ArgumentParser(description="Counts primes for a server.")
    parser.add_argument("--host-in", required=True, help="environment variable with the server's host")
    parser.add_argument("--port", type=int, required=True, help="port of the server")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for the server")
    arguments = parser.parse_args()

    host = os.environ.get(arguments.host_in, "localhost")
    url = f"http://{host}:{os.environ.get('TORCHX_PORT_WORK', arguments.port)}"
    parts = 0
    part = wait_for(url, arguments.patience)
    while part is not None:
        request_part(url, primes_in(*part))
        parts += 1
        part = request_part(url)
    print(f"client {os.environ['CLIENT']} counted {parts} parts", flush=True)


if __name__ == "__main__":
    main()
