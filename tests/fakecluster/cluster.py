"""The API server of the fake cluster, and the errors that it can make on demand."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fakecluster.controllers import Controllers, delete
from fakecluster.forwarding import connect
from fakecluster.node import Node
from fakecluster.objects import checked, pod_metrics
from fakecluster.store import Object, Refused, Store, clock, condition, merge, selected
from fakecluster.streams import Streams

TOKEN = "token-of-the-fake-cluster"
KINDS = {
    "pods": ("Pod", "v1"),
    "services": ("Service", "v1"),
    "configmaps": ("ConfigMap", "v1"),
    "secrets": ("Secret", "v1"),
    "events": ("Event", "v1"),
    "jobs": ("Job", "batch/v1"),
    "jobsets": ("JobSet", "jobset.x-k8s.io/v1alpha2"),
    "workloads": ("Workload", "kueue.x-k8s.io/v1beta1"),
    "localqueues": ("LocalQueue", "kueue.x-k8s.io/v1beta1"),
}
_PATH = re.compile(
    r"(?P<collection>/apis?/(?:[^/]+/)?v\w+/namespaces/[^/]+/\w+)(?:/(?P<name>[^/]+))?(?P<sub>/log|/exec|/portforward|/eviction)?"
)


@dataclass
class Fault:
    """Something that goes wrong with some requests.

    Attributes:
        method: of which method; any when empty.
        path: whose path this pattern is found in.
        do: a status to answer with, or ``drop``, ``lose`` (do it, and drop the answer) or ``hang``.
        times: how often.
        body: what is answered.
        headers: further headers of the answer.
        after: seconds until it is answered.
    """

    method: str
    path: str
    do: int | str
    times: int = 1
    body: Object | None = None
    headers: tuple[tuple[str, str], ...] = ()
    after: float = 0.0


class FakeCluster:
    """A cluster for tests; a context manager.

    Args:
        jobsets: whether it has JobSets.
        run: whether its controllers and its node run; else objects only change by requests.
    """

    def __init__(self, *, jobsets: bool = False, run: bool = True) -> None:
        self.store = Store()
        self.namespaces = {"default", "research"}
        self.jobsets = jobsets
        self.faults: list[Fault] = []
        self.asked: list[str] = []
        self.page = 0
        self.hung = False
        self.silent: set[str] = set()  # pods whose followed logs do not end
        self.reaches_node_first = True  # before it accepts a websocket
        self.absent_programs: set[str] = set()
        self.longest_piece = 30_000  # of the output of a program
        self.kueue = True
        self.denied: set[tuple[str, str]] = set()
        self.metrics: dict[str, str] | None = None
        for namespace in self.namespaces:
            path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{namespace}/localqueues"
            self.store.create(path, {"metadata": {"name": "team"}})
        self.cut_line = b""
        self.open: set[socket.socket] = set()
        self.stopping = threading.Event()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.cluster = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.node = Node(self.store) if run else None
        self._controllers = Controllers(self.store) if run else None

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.stopping.set()
        for part in (self._controllers, self.node):
            if part is not None:
                part.stop.set()
        with self.store.changed:
            self.store.changed.notify_all()
        if self._controllers is not None:
            self._controllers.close()
        if self.node is not None:
            self.node.close()
        self.drop_streams()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def kubeconfig(self, path: Path, *, namespace: str = "", token: str = TOKEN) -> Path:
        """Writes a kubeconfig for this cluster."""
        context = {"cluster": "fake", "user": "me", **({"namespace": namespace} if namespace else {})}
        data = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "fake", "context": context}],
        }
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    def fault(self, method: str, path: str, do: int | str, times: int = 1, **more: Any) -> None:
        """Has something go wrong with the next requests of a kind."""
        self.faults.append(Fault(method, path, do, times, **more))

    def drop_streams(self) -> None:
        """Breaks all watches and followed logs off."""
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def objects(self, resource: str, namespace: str = "default") -> list[Object]:
        """Returns all objects of a kind in a namespace."""
        root = "/apis/batch/v1" if resource == "jobs" else "/api/v1"
        root = "/apis/jobset.x-k8s.io/v1alpha2" if resource == "jobsets" else root
        return self.store.list(f"{root}/namespaces/{namespace}/{resource}")

    def running(self) -> list[int]:
        """Returns the processes of pods that have not ended."""
        assert self.node is not None
        return [process.pid for process in list(self.node.processes.values()) if process.poll() is None]


def evict(store: Store, collection: str, name: str) -> Object:
    """Evicts a pod as recorded in 12: a condition, then the deletion with its time of grace."""
    reported = condition("DisruptionTarget", "EvictionByEvictionAPI", "Eviction API: evicting")

    def change(pod: Object) -> None:
        pod["status"].setdefault("conditions", []).append(reported)

    delete(store, collection, store.update(collection, name, change))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    cluster: FakeCluster


class Handler(Streams):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(clock() if timestamp is None else timestamp)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(OSError):  # the client has gone, or a test broke the connection off
            super().handle()

    def _any(self) -> None:
        cluster = self.server.cluster
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        cluster.asked.append(f"{self.command} {url.path}" + ("?watch" if "watch" in query else ""))
        fault = next((f for f in cluster.faults if self._hit(f, url.path)), None)
        if fault is not None:
            fault.times -= 1
            if fault.times <= 0:
                cluster.faults.remove(fault)
            cluster.stopping.wait(fault.after)
            if isinstance(fault.do, int):
                self._answer(
                    fault.do,
                    {"kind": "Status", "message": "on demand"} if fault.body is None else fault.body,
                    fault.headers,
                )
                return
            if fault.do == "hang":
                cluster.stopping.wait(30)
            if fault.do in ("drop", "hang"):
                self._hang_up()
                return
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            found = self._do(cluster, unquote(url.path), query, body)
        except Refused as error:
            self._answer(error.code, error.body())
            return
        if fault is not None and fault.do == "lose":
            self._hang_up()
        elif found is not None:
            self._answer(201 if self.command == "POST" else 200, found)

    do_GET = do_POST = do_PATCH = do_DELETE = _any

    def _hit(self, fault: Fault, path: str) -> bool:
        return fault.method in ("", self.command) and bool(re.search(fault.path, path))

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, code: int, body: Object, headers: tuple[tuple[str, str], ...] = ()) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    # --- requests --------------------------------------------------------------------------------

    def _do(self, cluster: FakeCluster, path: str, query: dict[str, str], body: Any) -> Object | None:
        if path == "/version":
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.9"}
        if path == "/apis/jobset.x-k8s.io/v1alpha2" and cluster.jobsets:
            return {"kind": "APIResourceList", "groupVersion": "jobset.x-k8s.io/v1alpha2", "resources": []}
        if path == "/apis/kueue.x-k8s.io" and cluster.kueue:
            return {"kind": "APIGroup", "preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta1"}}
        if path.startswith("/apis/metrics.k8s.io/") and cluster.metrics is not None:
            pods = self._chosen(cluster, path.replace("/apis/metrics.k8s.io/v1beta1", "/api/v1"), query)
            return pod_metrics(pods, cluster.metrics)
        if path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            wanted = body["spec"]["resourceAttributes"]
            allowed = (wanted["verb"], wanted["resource"]) not in cluster.denied
            return {**body, "metadata": {}, "status": {"allowed": allowed}}
        if path.startswith("/api/v1/nodes/"):
            return cluster.store.get("/api/v1/nodes", path.rpartition("/")[2])
        if path.startswith("/api/v1/namespaces") and path.count("/") <= 4:
            return self._namespace(cluster, path.rpartition("/")[2], body)
        match = _PATH.fullmatch(path)
        absent = match is None or ("jobset.x-k8s.io" in path and not cluster.jobsets) or "volcano" in path
        if match is None or absent:
            raise Refused(404, "", "404 page not found")
        collection, name = match["collection"], match["name"]
        if match["sub"] in ("/exec", "/portforward"):
            connect(self, cluster.store.get(collection, name), match["sub"])
            return None
        if match["sub"] == "/eviction":
            return evict(cluster.store, collection, name)
        if match["sub"]:
            self.log(cluster, cluster.store.get(collection, name), query)
            return None
        if self.command == "POST":
            return self._create(cluster, collection, query, body)
        if self.command == "PATCH":
            return cluster.store.update(collection, name, lambda found: merge(found, checked(found, body)))
        if self.command == "DELETE":
            return self._delete(cluster, collection, name, query)
        if name:
            return cluster.store.get(collection, name)
        if "watch" in query:
            resource = collection.rsplit("/", 1)[1]
            if ("watch", resource) in cluster.denied:
                who = (
                    f'{resource} is forbidden: User "jane" cannot watch resource "{resource}" in API group ""'
                )
                raise Refused(403, "Forbidden", who, kind=resource)
            self.watch(cluster, collection, query)
            return None
        return self._list(cluster, collection, query)

    def _namespace(self, cluster: FakeCluster, name: str, body: Any) -> Object:
        if self.command == "POST":
            name = body["metadata"]["name"]
            cluster.namespaces.add(name)
            account = {"metadata": {"name": "default"}}
            cluster.store.create(f"/api/v1/namespaces/{name}/serviceaccounts", account)
        elif self.command == "DELETE":
            cluster.namespaces.discard(name)
        elif name not in cluster.namespaces:
            raise Refused(404, "NotFound", f'namespaces "{name}" not found', name=name, kind="namespaces")
        return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}

    def _create(self, cluster: FakeCluster, collection: str, query: dict[str, str], body: Object) -> Object:
        namespace = collection.split("/namespaces/")[1].split("/")[0]
        if namespace not in cluster.namespaces:
            raise Refused(
                404, "NotFound", f'namespaces "{namespace}" not found', name=namespace, kind="namespaces"
            )
        kind, version = KINDS[collection.rsplit("/", 1)[1]]
        body = {"kind": kind, "apiVersion": version, **body, "status": {}}
        if query.get("dryRun") == "All":
            return body
        return cluster.store.create(collection, body)

    def _delete(
        self, cluster: FakeCluster, collection: str, name: str | None, query: dict[str, str]
    ) -> Object:
        grace = int(query["gracePeriodSeconds"]) if "gracePeriodSeconds" in query else None
        policy = query.get("propagationPolicy", "Orphan")
        found = [cluster.store.get(collection, name)] if name else self._chosen(cluster, collection, query)
        for each in found:
            delete(cluster.store, collection, each, policy, grace)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _chosen(self, cluster: FakeCluster, collection: str, query: dict[str, str]) -> list[Object]:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return [each for each in cluster.store.list(collection) if selected(each, labels, fields)]

    def _list(self, cluster: FakeCluster, collection: str, query: dict[str, str]) -> Object:
        with cluster.store.changed:
            found, version = self._chosen(cluster, collection, query), cluster.store.version
        kind, api = KINDS[collection.rsplit("/", 1)[1]]
        for each in found:
            each.pop("kind", None)
            each.pop("apiVersion", None)
        metadata: Object = {"resourceVersion": str(version)}
        limit = min(int(query.get("limit") or 10**9), cluster.page or 10**9)
        begin = int(query.get("continue") or 0)
        if begin + limit < len(found):
            metadata["continue"] = str(begin + limit)
        return {
            "kind": f"{kind}List",
            "apiVersion": api,
            "metadata": metadata,
            "items": found[begin : begin + limit],
        }
