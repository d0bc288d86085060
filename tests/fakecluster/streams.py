"""The streams of the fake cluster: watches, and logs that are followed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from fakecluster.node import Log
from fakecluster.store import Object, Refused, selected

if TYPE_CHECKING:
    from fakecluster.cluster import FakeCluster


class Streams(BaseHTTPRequestHandler):
    """Answers that go on."""

    server: Any

    def _stream(self, content_type: str) -> Callable[[bytes], None]:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.cluster.open.add(self.connection)

        def send(data: bytes) -> None:
            if data:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        return send

    def _end_stream(self) -> None:
        self.server.cluster.open.discard(self.connection)
        self.wfile.write(b"0\r\n\r\n")

    def watch(self, cluster: FakeCluster, collection: str, query: dict[str, str]) -> None:
        store, labels, fields = cluster.store, query.get("labelSelector", ""), query.get("fieldSelector", "")
        seen = int(query.get("resourceVersion") or 0)
        end = time.monotonic() + float(query.get("timeoutSeconds") or 300)
        send = self._stream("application/json")

        def emit(kind: str, thing: Object) -> None:
            send(json.dumps({"type": kind, "object": thing}).encode() + b"\n")

        try:
            while time.monotonic() < end and not cluster.stopping.is_set():
                with store.changed:
                    if seen < store.oldest:
                        old = f"too old resource version: {seen} ({store.oldest})"
                        emit("ERROR", Refused(410, "Expired", old).body())
                        break
                    found = [h for h in store.happened if h[0] > seen]
                    if not found:
                        store.changed.wait(0.2)
                        continue
                seen = found[-1][0]
                for _, kind, where, thing in found:
                    if where == collection and selected(thing, labels, fields):
                        emit(kind, thing)
        finally:
            self._end_stream()

    def log(self, cluster: FakeCluster, pod: Object, query: dict[str, str]) -> None:
        name, node = pod["metadata"]["name"], cluster.node
        container = query.get("container", "main")
        if container != "main":
            raise Refused(400, "BadRequest", f"container {container} is not valid for pod {name}")
        if "previous" in query:
            raise Refused(
                400, "BadRequest", f'previous terminated container "main" in pod "{name}" not found'
            )
        log = node.logs.get(pod["metadata"]["uid"]) if node is not None else None
        if log is None:
            waits = f'container "main" in pod "{name}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", waits)
        if node is not None and node.lost.is_set():
            message = 'Get "https://10.244.0.1:10250/containerLogs/": net/http: TLS handshake timeout'
            raise Refused(500, "", message)
        self._send_log(cluster, log, query, name)

    def _send_log(self, cluster: FakeCluster, log: Log, query: dict[str, str], name: str) -> None:
        since, stamps = query.get("sinceTime", "").rstrip("Z"), "timestamps" in query
        send = self._stream("text/plain")
        sent = 0

        def ends() -> bool:
            return log.closed and name not in cluster.silent

        if "tailLines" in query:
            sent = max(0, len(log.lines) - int(query["tailLines"]))
        try:
            while not cluster.stopping.is_set():
                if cluster.node is not None and cluster.node.lost.is_set():
                    break  # facts 14d: the stream ends cleanly although the pod runs on
                with log.changed:
                    if sent == len(log.lines) and "follow" in query and not ends():
                        log.changed.wait(0.2)
                    found, closed = log.lines[sent:], ends()
                sent += len(found)
                cut = cluster.cut_line
                if "follow" in query and cut and any(line == cut for _, line in found):
                    cluster.cut_line = b""
                    send(b"".join(at.encode() + b" " + line for at, line in found)[:-4])
                    break  # within a line, and cleanly
                lines = (at.encode() + b" " + line if stamps else line for at, line in found if at >= since)
                send(b"".join(lines))
                if "follow" not in query or (closed and sent == len(log.lines)):
                    break
        finally:
            self._end_stream()
