"""CPU time and memory of queries about 10,000 pods, on a cluster that answers from memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from measure import NOT_MEASURED, Place, Row, limited, main

PAGE = 500
AT = "2026-01-01T00:00:05Z"
APP = "kubernetes://torchx/default:train-b1"
QUERIES = (
    ("list", "-s", "kubernetes"),
    ("status", APP),
    ("status", APP, "-o", "json"),
    ("log", "-n", "5", APP),
)


def rows(place: Place) -> Iterator[Row]:
    """Measures each query once, as a process of its own."""
    count = place.size(10_000, 20)
    config = place.folder / "kubeconfig"
    processes = multiprocessing.get_context("spawn")
    ready = processes.Event()
    # not in this process: the peak of a command begins with the memory of the process that starts it
    server = processes.Process(target=serve, args=(count, str(config), ready), daemon=True)
    server.start()
    try:
        ready.wait(120)
        env = {**os.environ, **place.env, "KUBECONFIG": str(config)}
        for query in QUERIES:
            seconds, megabytes = measured(place.torchx(*query), env)
            name = f"`torchx {' '.join(word for word in query if word != APP)}`, {count:,} pods"
            yield limited(f"{name}: CPU time", seconds, "s", 3, floor="", peer=NOT_MEASURED)
            yield limited(f"{name}: memory", megabytes, "MB", 150, floor="", peer=NOT_MEASURED)
    finally:
        server.terminate()
        server.join()


def serve(count: int, config: str, ready: Any) -> None:
    """Runs the cluster until it is terminated."""
    cluster = Cluster(count)
    cluster.config(Path(config))
    ready.set()
    cluster.run()


def measured(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Returns the CPU time and the peak memory of a command."""
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def a_job(count: int) -> dict[str, Any]:
    """Returns the job, with a record that names its role."""
    role = {
        "name": "worker",
        "image": "img",
        "entrypoint": "sh",
        "num_replicas": count,
        "args": [],
        "env": {},
    }
    record = {"schema": 2, "app": {"name": "train", "roles": [role]}, "cfg": {}}
    prefix = "torchx.pytorch.org/"
    labels = {f"{prefix}app-id": "train-b1", f"{prefix}role-index": "0", f"{prefix}role-name": "worker"}
    metadata = {"name": "train-b1-worker", "namespace": "default", "uid": "u1", "creationTimestamp": AT}
    return {
        "metadata": {**metadata, "labels": labels, "annotations": {f"{prefix}app": json.dumps(record)}},
        "spec": {"completions": count, "parallelism": count, "backoffLimitPerIndex": 0},
        "status": {"active": count, "ready": count, "startTime": AT},
    }


def a_pod(job: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns a running pod, of the size that pods have in a cluster."""
    index = {"batch.kubernetes.io/job-completion-index": str(number)}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train-b1-worker",
        "uid": "u1",
        "controller": True,
    }
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    env = [{"name": f"VARIABLE_{n}", "value": "x" * 60} for n in range(30)]
    container = {"name": "main", "image": "img", "command": ["sh"], "env": env, "resources": {}}
    state = {"state": {"running": {"startedAt": AT}}, "lastState": {}, "ready": True, "restartCount": 0}
    return {
        "metadata": {
            "name": f"train-b1-worker-{number}-abcde",
            "namespace": "default",
            "uid": f"p{number}",
            "creationTimestamp": AT,
            "labels": {**job["metadata"]["labels"], **index},
            "annotations": {**index, "batch.kubernetes.io/job-index-failure-count": "0"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": f"node-{number % 1000}", "containers": [container], "restartPolicy": "Never"},
        "status": {
            "phase": "Running",
            "startTime": AT,
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": AT} for kind in kinds],
            "containerStatuses": [
                {"name": "main", "image": "img", "imageID": "img@sha256:" + "a" * 64, **state}
            ],
        },
    }


class Cluster:
    """An API server with one application.

    Args:
        count: the number of its pods.
    """

    def __init__(self, count: int) -> None:
        job = a_job(count)
        self.jobs = listed([job])
        pods = [a_pod(job, number) for number in range(count)]
        starts = range(0, count, PAGE)
        self.pages = [
            listed(pods[at : at + PAGE], str(at + PAGE) if at + PAGE < count else "") for at in starts
        ]
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.cluster = self  # type: ignore[attr-defined]

    def run(self) -> None:
        """Answers requests until the process ends."""
        self._server.serve_forever()

    def config(self, path: Path) -> Path:
        """Writes a kubeconfig."""
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        data = {
            "current-context": "many",
            "clusters": [{"name": "many", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [{"name": "many", "context": {"cluster": "many", "user": "me"}}],
        }
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    def answer(self, path: str, query: dict[str, str]) -> bytes | None:
        """Returns the body of a response; None if the path does not exist."""
        if path.endswith("/log"):
            return f"{AT[:-1]}.5Z one line\n".encode()
        if path.startswith("/api/v1/namespaces/default/pods"):
            return (
                listed([]) if "fieldSelector" in query else self.pages[int(query.get("continue", 0)) // PAGE]
            )
        if path == "/apis/batch/v1/namespaces/default/jobs":
            return self.jobs
        return None


def listed(items: list[dict[str, Any]], following: str = "") -> bytes:
    """Returns a page of a list."""
    metadata = {"resourceVersion": "1", **({"continue": following} if following else {})}
    return json.dumps({"metadata": metadata, "items": items}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers from memory."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""

    def do_GET(self) -> None:
        """Answers a request."""
        url = urlsplit(self.path)
        found = self.server.cluster.answer(url.path, dict(parse_qsl(url.query)))  # type: ignore[attr-defined]
        body = found if found is not None else b'{"kind": "Status", "code": 404, "reason": "NotFound"}'
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    main(__doc__ or "", rows)
