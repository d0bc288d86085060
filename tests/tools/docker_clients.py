"""Compares the client in `schedulers/docker/engine` with the `docker` package: time, memory, log throughput.

Needs an engine: python tests/tools/docker_clients.py. The logs come from a thread that answers as an engine
does, since an engine reads its log files more slowly than either client receives them.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PIECE = (b"\1\0\0\0\0\0\0\x64" + b"x" * 99 + b"\n") * 300
PIECES = 2_000
ROUNDS = 10

OWN = "from torchx.schedulers.docker.engine.client import Engine; engine = Engine()"
PACKAGE = "import docker; client = docker.from_env()"
LISTED = {
    "own client": f"{OWN}; engine.call('GET', '/containers/json', {{'all': 1}})",
    "package": f"{PACKAGE}; client.api.containers(all=True)",
}
OWN_LOGS = """
connection, rest = engine.stream("/containers/a/logs", {"stdout": 1})
size = len(rest)
while piece := connection.recv(1 << 18):
    size += len(piece)
"""
RAW_LOGS = """
answer = client.api._get(client.api._url("/containers/{0}/logs", "a"), params={"stdout": 1}, stream=True)
size = 0
while piece := answer.raw.read(1 << 18):
    size += len(piece)
"""
PACKAGE_LOGS = """
client.api._check_is_tty = lambda container: False
size = sum(map(len, client.api.logs("a", stdout=True, stderr=False, stream=True)))
"""
LOGS = {
    "own client": OWN + OWN_LOGS,
    "package, raw response": PACKAGE + RAW_LOGS,
    "package, logs()": PACKAGE + PACKAGE_LOGS,
}
USAGE = """
import resource
usage = resource.getrusage(resource.RUSAGE_SELF)
rss = int(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0])
print(usage.ru_utime + usage.ru_stime, rss / 1024)
"""
TIMED = "{}\nimport time; began = time.process_time()\n{}\nprint(time.process_time() - began, size)"


def run(code: str, **env: str) -> list[float]:
    """Runs Python code in a new process and returns the numbers it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=env
    )
    return [float(number) for number in re.findall(r"[\d.]+", done.stdout)]


def serve(server: socket.socket) -> None:
    """Answers requests for a version and for logs."""
    while True:
        client, _ = server.accept()
        threading.Thread(target=answer, args=[client], daemon=True).start()


def answer(client: socket.socket) -> None:
    """Answers the requests of one connection."""
    with client:
        while head := client.recv(1 << 16):
            client.sendall(b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\n")
            if b"/logs" not in head:
                client.sendall(b'Content-Length: 22\r\n\r\n{"ApiVersion": "1.41"}')
                continue
            old = b"HTTP/1.0" in head
            client.sendall(b"\r\n" if old else b"Transfer-Encoding: chunked\r\n\r\n")
            piece = PIECE if old else b"%x\r\n%s\r\n" % (len(PIECE), PIECE)
            for _ in range(PIECES):
                client.sendall(piece)
            if old:
                return
            client.sendall(b"0\r\n\r\n")


def show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Prints the minimum of several rounds for each client."""
    for client, code in LISTED.items():
        used = [run(code + USAGE) for _ in range(ROUNDS)]
        cpu, memory = (min(row[column] for row in used) for column in (0, 1))
        show(f"a listing, {client}: {cpu * 1000:.0f} ms of CPU, {memory:.0f} MB")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder) / "docker.sock"
        server.bind(str(path))
        server.listen()
        threading.Thread(target=serve, args=[server], daemon=True).start()
        for client, code in LOGS.items():
            setup, _, rest = code.partition("\n")
            rates = [run(TIMED.format(setup, rest), DOCKER_HOST=f"unix://{path}") for _ in range(3)]
            show(f"logs, {client}: {max(size / time for time, size in rates) / 1e6:.0f} MB per second of CPU")


if __name__ == "__main__":
    main()
