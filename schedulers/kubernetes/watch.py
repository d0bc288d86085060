"""Watches an application on a cluster: keeps a copy of its objects up to date over broken connections.

Without the right to watch, the objects are listed again and again, after pauses that grow.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from torchx.json_shape import typed_at
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.client import Cluster, Listing, Object, hang_up, lines_of, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import created, deleted, owned_pods
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.facts import BATCH, Facts, main_path, newest_attempts, originals
from torchx.schedulers.kubernetes.names import split_run
from torchx.schedulers.kubernetes.objects import find, is_owned, listing_of, main_selector, pod_selector
from torchx.schedulers.kubernetes.reconcile import note_outcome, reconcile_objects
from torchx.schedulers.kubernetes.state.run_view import run_facts
from torchx.schedulers.kubernetes.status import describe
from torchx.scheduling.pace import LONGEST, deadline, pause_after, sharing
from torchx.specs.status import is_terminal

with lazy_imports:
    import urllib3

ROUND = 50
"""Seconds after which a watch is restarted, to detect dead connections."""
LOST = 300.0
"""Seconds without a response after which a watch gives up."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, LONGEST
"""Seconds before a watch is restarted; the pause grows while its connections end without an event."""
LONGEST_POLL = 30.0
"""Maximum seconds between two lists without the right to watch; the pods and the jobs are two lists."""
GONE, FORBIDDEN = 410, 403


class Mirror:
    """The objects of one list, kept up to date by a thread.

    Args:
        cluster: the cluster.
        path: path of the list.
        query: query that selects objects.
        changed: called by the thread after each change.
        first: the objects so far, if they were read.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        query: dict[str, str],
        changed: Callable[[], None],
        first: Listing | None = None,
    ) -> None:
        self._cluster, self._path, self._query, self._changed = cluster, path, query, changed
        self._objects: dict[str, Object] = {}
        self._version = ""
        self._response: Any = None
        self._polls = False
        self._pause = FIRST_PAUSE
        self._stop = threading.Event()
        self._last_response = time.monotonic()
        self.error: ClusterError | None = None
        self._read(first or cluster.list_with_version(path, query))
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self._thread.start()

    def objects(self) -> list[Object]:
        """Returns the current objects."""
        return list(self._objects.values())

    def close(self) -> None:
        """Ends the watch."""
        self._stop.set()
        response = self._response
        if response is not None:
            hang_up(response)
        self._thread.join(timeout=5)

    def _read(self, listing: Listing) -> None:
        self._version = listing.version
        self._objects = {each["metadata"]["uid"]: each for each in listing.objects}
        self._last_response = time.monotonic()

    def _run(self) -> None:
        longest = LONGEST_PAUSE
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                if not self._version:
                    self._read(self._cluster.list_with_version(self._path, self._query))
                    self._changed()
                if self._polls:
                    self._version = ""  # read again after the pause
                else:
                    self._follow()
            except ClusterError as error:
                if error.status == GONE:
                    self._version = ""
                elif error.status == FORBIDDEN and self._version:
                    self._polls, self._version, longest = True, "", LONGEST_POLL
                elif not error.passes or time.monotonic() - self._last_response > LOST:
                    self.error = error
                    self._changed()
                    return
                self._pause = max(self._pause, min(error.retry_after or 0.0, LONGEST_PAUSE))
            if time.monotonic() > begun + LONGEST_PAUSE and not self._polls:
                self._pause = FIRST_PAUSE
            self._stop.wait(self._pause)
            self._pause = min(self._pause * 2, longest)

    def _follow(self) -> None:
        """Applies events until the connection ends."""
        params = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": ROUND,
            "resourceVersion": self._version,
        }
        response = self._cluster.stream(self._path, params, silence=ROUND + 10)
        self._response = response
        self._last_response = time.monotonic()
        try:
            if self._stop.is_set():
                return  # closed before the response was known
            for line in lines_of(response):
                if self._stop.is_set():
                    return
                self._apply(json.loads(line))
        except (urllib3.exceptions.HTTPError, OSError, ValueError, RecursionError):
            return  # broken connection: the next one resumes at the last version
        finally:
            self._response = None
            response.close()

    def _apply(self, event: Object) -> None:
        self._last_response = time.monotonic()
        kind, thing = (event.get("type"), event.get("object")) if isinstance(event, dict) else ("", None)
        if not isinstance(thing, dict):
            return
        if kind == "ERROR":
            code = typed_at(thing, int, "code")
            # the known version cannot be resumed from
            self._version = ""
            raise ClusterError(str(thing.get("message")), status=code if code == GONE else 504)
        self._pause = FIRST_PAUSE
        metadata = typed_at(thing, dict, "metadata")
        self._version = str(metadata.get("resourceVersion") or self._version)
        if kind == "BOOKMARK" or shaped(thing) is None:
            return
        objects = dict(self._objects)  # others read it meanwhile
        if kind == "DELETED":
            objects.pop(str(metadata.get("uid")), None)
        else:
            objects[str(metadata["uid"])] = thing
        self._objects = objects
        self._changed()


class Watch:
    """Watches the objects of one application; a context manager.

    Args:
        cluster: the cluster.
        facts: the known objects of the application.
        changed: called by a thread after each change.
        since: it begins with an answer from then on, which other watches may have got; None: with its own.
    """

    def __init__(
        self, cluster: Cluster, facts: Facts, changed: Callable[[], None], since: float | None = None
    ) -> None:
        self._first = facts
        queries = {"pods": pod_selector(facts.name, facts.run)}
        self._mirrors: dict[str, Mirror] = {}
        paths = {
            "pods": path_of("v1", "pods", facts.namespace),
            "mains": main_path(facts.kind, facts.namespace),
        }
        if facts.kind == "jobset":
            paths["jobs"] = path_of(BATCH, "jobs", facts.namespace)
        try:
            for name, path in paths.items():
                query = queries.get(name) or main_selector(facts.name, facts.run)
                first = None
                if facts.run is None and since is not None:
                    with sharing(since):
                        first = listing_of(cluster, path, facts.name, small=name == "pods")
                self._mirrors[name] = Mirror(cluster, path, query, changed, first)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch."""
        for mirror in self._mirrors.values():
            mirror.close()

    def facts(self) -> Facts | None:
        """Returns the current objects of the application, without events, or None if it was deleted.

        Raises:
            ClusterError: the watch has failed.
        """
        for mirror in self._mirrors.values():
            if mirror.error is not None:
                raise mirror.error
        mains = [main for main in self._mirrors["mains"].objects() if not deleted(main)]
        if not mains:
            return None
        first = self._first
        earlier: list[Object] = []
        if first.kind == "job":
            mains, earlier = newest_attempts(mains)
        else:
            mains = originals(mains)
        mains.sort(key=lambda main: str(main["metadata"]["name"]))
        pods = self._mirrors["pods"].objects()
        jobs = mains if first.kind == "job" else []
        if "jobs" in self._mirrors:
            jobs = [job for job in self._mirrors["jobs"].objects() if is_owned(job)]
        pods = owned_pods([*mains, *jobs, *earlier], pods)
        if first.run is not None:
            pods.sort(key=created)
            whole = Facts(first.namespace, split_run(first.name)[0], "job", mains, mains, pods)
            return run_facts(whole, first.run)
        return Facts(first.namespace, first.name, first.kind, mains, jobs, pods, earlier=earlier)


POLL_INTERVAL = 30.0
"""Seconds after which an application is checked even without an event."""


def wait(clusters: Clusters, app_id: str, timeout: float | None) -> bool:
    """Blocks until an application has ended; returns False after ``timeout`` seconds."""
    begun = time.monotonic()
    with sharing(begun):  # with other threads that begin to wait
        facts = find(clusters, app_id)
    return facts is None or _wait(clusters.of(app_id), facts, timeout, begun)


def _wait(cluster: Cluster, facts: Facts, timeout: float | None, since: float) -> bool:
    """Blocks until an application has ended or was deleted; returns False after ``timeout`` seconds.

    Raises:
        ClusterError: the watch has failed.
    """
    end = deadline(timeout)
    if is_terminal(describe(facts, cluster.clock.now()).state):
        note_outcome(cluster, facts)
        return True
    changed, quiet_since = threading.Event(), time.monotonic()
    with Watch(cluster, facts, changed.set, since) as watch:
        while True:
            changed.clear()
            current = watch.facts()
            if current is None or is_terminal(describe(current, cluster.clock.now()).state):
                note_outcome(cluster, current or facts)
                return True
            if reconcile_objects(cluster, current):
                pause = POLL_INTERVAL
            else:
                pause = pause_after(time.monotonic() - quiet_since)
            left = min(end - time.monotonic(), pause)
            if left <= 0:
                return False
            if changed.wait(left):
                quiet_since = time.monotonic()
