"""Readiness probes of the fake cluster's node: checks of the real processes of its pods."""

from __future__ import annotations

import http.client
import socket
import subprocess
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fakecluster.store import Object, Refused, Store, condition, now

HERE = "127.0.0.1"
PERIOD = 0.1
"""Seconds between two checks; those of a pod may be whole seconds only."""


def checked(probe: Object, environment: dict[str, str], words: list[str], cwd: str | None) -> str:
    """Returns why a check fails, in the words of a kubelet; empty when it succeeds."""
    limit = float(probe.get("timeoutSeconds", 1))
    if "exec" in probe:
        try:
            found = subprocess.run(
                words, env=environment, cwd=cwd, timeout=limit, capture_output=True, text=True, check=False
            )
        except OSError as error:
            return f"Readiness probe errored: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"Readiness probe failed: command timed out after {limit:g}s"
        return f"Readiness probe failed: {found.stdout}{found.stderr}" if found.returncode else ""
    kind = "httpGet" if "httpGet" in probe else "tcpSocket"
    port = int(probe[kind]["port"])
    try:
        if kind == "tcpSocket":
            socket.create_connection((HERE, port), limit).close()
            return ""
        connection = http.client.HTTPConnection(HERE, port, timeout=limit)
        connection.request("GET", probe[kind].get("path") or "/")
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"Readiness probe failed: dial tcp {HERE}:{port}: {str(error).lower()}"
    return (
        "" if 200 <= status < 400 else f"Readiness probe failed: HTTP probe failed with statuscode: {status}"
    )


class Prober:
    """Checks one pod until it ends, and reports changes of its readiness."""

    def __init__(self, store: Store, collection: str, name: str, probe: Object) -> None:
        self._store, self._collection, self._name, self._probe = store, collection, name, probe
        self._told = ""

    def report(self, ready: bool) -> None:
        reason = "" if ready else "ContainersNotReady"
        message = "" if ready else "containers with unready status: [main]"
        reported = condition("Ready", reason, message, str(ready))

        def change(pod: Object) -> None:
            statuses = pod["status"].get("containerStatuses") or []
            if ready and not any("running" in status["state"] for status in statuses):
                return
            for status in statuses:
                status["ready"] = ready
            others = [c for c in pod["status"].get("conditions") or [] if c["type"] != "Ready"]
            pod["status"]["conditions"] = [*others, reported]

        with suppress(Refused):  # it was deleted
            self._store.update(self._collection, self._name, change)

    def run(self, ended: Callable[[float], bool], *check: Any) -> None:
        """Checks until the process has ended.

        Args:
            ended: waits for some seconds; returns True if the process has ended.
            check: the arguments of a check after the probe.
        """
        ready, failures = False, 0
        while not ended(PERIOD):
            why = checked(self._probe, *check)
            failures = failures + 1 if why else 0
            if why:
                self._tell(why)
            if ready is (not why) or (ready and failures < self._probe.get("failureThreshold", 3)):
                continue
            ready = not why
            self.report(ready)

    def _tell(self, why: str) -> None:
        """Makes an event; the same one counts on, on a real cluster."""
        if why == self._told:
            return
        self._told = why
        event = {
            "metadata": {"name": f"{self._name}.{uuid.uuid4().hex[:8]}"},
            "involvedObject": {"kind": "Pod", "name": self._name},
            "type": "Warning",
            "reason": "Unhealthy",
            "message": why,
            "lastTimestamp": now(),
        }
        self._store.create(f"{self._collection[: -len('pods')]}events", event)
