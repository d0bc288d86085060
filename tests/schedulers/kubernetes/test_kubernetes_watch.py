"""A watch that stays true: broken connections, versions that are too old, a server that stumbles."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from fakecluster.store import Refused
from kubejobs import submit, until_ended, until_state
from program import torchx
from support import wait_until

from torchx.schedulers.kubernetes import watch as kubernetes_watch
from torchx.schedulers.kubernetes.api import client as kubernetes_client
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.schedulers.kubernetes.watch import Mirror
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.pace import LONGEST
from torchx.specs.status import AppState

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def still(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster in which nothing happens but what a test does."""
    with FakeCluster(run=False) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))  # type: ignore[operator]
        yield cluster


class Mirrored:
    """A mirror of all pods, and helpers to change them."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.changes = cluster, 0
        self.mirror = Mirror(Cluster(), PODS, {"labelSelector": "mine=yes"}, self._count)

    def _count(self) -> None:
        self.changes += 1

    def add(self, name: str, **labels: str) -> None:
        self.cluster.store.create(PODS, {"metadata": {"name": name, "labels": {"mine": "yes", **labels}}})

    def names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.mirror.objects())

    def until(self, *names: str) -> None:
        wait_until(lambda: self.names() == list(names), f"the mirror has {names}")


@pytest.fixture
def mirrored(still: FakeCluster) -> Iterator[Mirrored]:
    found = Mirrored(still)
    yield found
    found.mirror.close()


def watches(cluster: FakeCluster) -> int:
    return sum(requested.endswith("?watch") for requested in cluster.asked)


def test_what_comes_changes_and_goes_is_seen(mirrored: Mirrored) -> None:
    store = mirrored.cluster.store
    mirrored.add("a")
    mirrored.add("b", mine="no")
    mirrored.until("a")
    store.update(PODS, "a", lambda pod: pod.update(status={"phase": "Running"}))
    wait_until(lambda: mirrored.mirror.objects()[0].get("status") == {"phase": "Running"}, "it is changed")
    store.remove(PODS, "a")
    mirrored.until()
    assert mirrored.changes >= 3


def test_a_connection_that_breaks_loses_nothing(mirrored: Mirrored) -> None:
    for number in range(5):
        mirrored.add(f"before-{number}")
        mirrored.cluster.drop_streams()
        mirrored.add(f"after-{number}")
        mirrored.until(*sorted(f"{when}-{n}" for n in range(number + 1) for when in ("before", "after")))
    lists = [requested for requested in mirrored.cluster.asked if requested == f"GET {PODS}"]
    assert len(lists) == 1, "it goes on where it was: nothing is listed again"


def test_a_version_that_is_too_old_is_listed_again(mirrored: Mirrored) -> None:
    mirrored.add("a")
    mirrored.until("a")
    store = mirrored.cluster.store
    with store.changed:
        mirrored.cluster.drop_streams()
        store.remove(PODS, "a")
        mirrored.add("b")
        store.forget()
    mirrored.until("b")
    assert f"GET {PODS}" in mirrored.cluster.asked


@pytest.mark.parametrize("do", [410, 429, 500, 504, "drop"])
def test_a_server_that_stumbles_is_queried_again(mirrored: Mirrored, do: int | str) -> None:
    wait_until(lambda: mirrored.cluster.open, "it watches")
    mirrored.cluster.fault("GET", "pods", do, times=2)
    mirrored.cluster.drop_streams()
    mirrored.add("a")
    mirrored.until("a")


def test_the_end_of_a_round_is_no_end(still: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "ROUND", 1)
    found = Mirrored(still)
    wait_until(lambda: watches(still) >= 2, "the second round")
    found.add("a")
    found.until("a")
    found.mirror.close()


def test_who_may_not_watch_is_reported(mirrored: Mirrored) -> None:
    wait_until(lambda: mirrored.cluster.open, "it watches")
    refusal = Refused(403, "Forbidden", 'pods is forbidden: User "jane" cannot watch resource "pods" in')
    mirrored.cluster.fault("GET", "pods", 403, times=99, body=refusal.body())
    mirrored.cluster.drop_streams()
    error = wait_until(lambda: mirrored.mirror.error, "it gives up")
    assert "does not let jane watch pods" in str(error)


def test_a_cluster_that_stays_away_is_given_up(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "LOST", 0.3)
    wait_until(lambda: mirrored.cluster.open, "it watches")
    mirrored.cluster.fault("GET", "pods", "drop", times=10_000)
    mirrored.cluster.drop_streams()
    error = wait_until(lambda: mirrored.mirror.error, "it gives up")
    assert "no cluster answers" in str(error)


def test_closing_takes_no_time_and_leaves_no_thread(still: FakeCluster) -> None:
    found = Mirrored(still)
    wait_until(lambda: still.open, "it watches")
    begin = time.monotonic()
    found.mirror.close()
    assert time.monotonic() - begin < 10
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("watch")]


# --- waiting -------------------------------------------------------------------------------------


def test_waiting_survives_all_of_it(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, f"until [ -e {tmp_path}/gate ]; do sleep 0.02; done")
    until_state(scheduler, app_id, AppState.RUNNING)
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(scheduler.wait(app_id)))
    waiting.start()
    wait_until(lambda: len(cluster.open) >= 2, "it watches")
    cluster.drop_streams()
    cluster.fault("GET", "", 500, times=2)
    cluster.store.forget()
    (tmp_path / "gate").touch()
    waiting.join(20)
    assert ended == [True]
    assert until_ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_waiting_for_what_is_deleted_ends(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, "sleep 600")
    until_state(scheduler, app_id, AppState.RUNNING)
    threading.Timer(0.3, scheduler.delete, [app_id]).start()
    begin = time.monotonic()
    assert scheduler.wait(app_id, timeout=120) is True
    assert time.monotonic() - begin < 10


def test_waiting_without_the_right_to_watch_is_an_error(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, "sleep 600")
    until_state(scheduler, app_id, AppState.RUNNING)
    threading.Timer(0.3, cluster.fault, ["GET", "pods", 403, 99]).start()
    threading.Timer(0.5, cluster.drop_streams).start()
    with pytest.raises(ClusterError):
        scheduler.wait(app_id)


@pytest.mark.parametrize("lost", ["pods", "jobs", "both"])
def test_without_the_right_to_watch_it_is_polled(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path, lost: str
) -> None:
    resources = ["pods", "jobs"] if lost == "both" else [lost]
    cluster.denied |= {("watch", resource) for resource in resources}
    app_id = submit(scheduler, f"until [ -e {tmp_path}/gate ]; do sleep 0.02; done; echo done; exit 3")
    until_state(scheduler, app_id, AppState.RUNNING)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(scheduler.wait, app_id, 120)
        following = pool.submit(lambda: list(scheduler.log_chunks(app_id, LogQuery(follow=True))))
        wait_until(lambda: sum("?watch" in asked for asked in cluster.asked) >= 2, "both want to watch")
        cluster.fault("GET", "/(pods|jobs)$", 500, times=4)
        (tmp_path / "gate").touch()
        assert waiting.result() is True
        assert b"".join(chunk.data for chunk in following.result()) == b"done\n"
    assert until_ended(scheduler, app_id).first_failure is not None


def test_commands_without_the_right_to_watch_see_the_end(cluster: FakeCluster) -> None:
    """An attached run and `wait` end with the exit code of the program, not before it."""
    cluster.denied |= {("watch", "pods"), ("watch", "jobs")}
    words = ("--log", "utils.sh", "--image", "img", "sleep 2; echo done; exit 3")
    attached = torchx("run", "-s", "kubernetes", *words)
    assert attached.returncode == 3, attached.stderr
    assert "sh/0 │ done" in attached.stderr
    job = torchx("run", "-d", "-s", "kubernetes", "utils.sh", "--image", "img", "sleep 2; exit 4")
    assert torchx("wait", job.stdout.strip()).returncode == 4


class Quick(threading.Event):
    """Records the pauses of a mirror, and shortens them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return super().wait(0.001)


@pytest.mark.parametrize("how", [pytest.param("expires", marks=pytest.mark.long), "ends"])
def test_a_watch_without_events_is_restarted_rarely(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    wait_until(lambda: mirrored.cluster.open, "it watches")
    quick = mirrored.mirror._stop = Quick()
    store, oldest = mirrored.cluster.store, mirrored.cluster.store.oldest
    if how == "expires":
        store.oldest = 1 << 60
    else:
        monkeypatch.setattr(kubernetes_watch, "ROUND", 0)
    mirrored.cluster.drop_streams()
    wait_until(lambda: len(quick.pauses) > 9, "it is restarted")
    assert quick.pauses[1:] == sorted(quick.pauses[1:])
    assert quick.pauses[9] == kubernetes_watch.LONGEST_PAUSE >= LONGEST
    store.oldest = oldest
    monkeypatch.undo()
    mirrored.add("a")
    mirrored.until("a")
    mirrored.cluster.drop_streams()
    at = len(quick.pauses)
    wait_until(lambda: kubernetes_watch.FIRST_PAUSE in quick.pauses[at:], "an event makes it quick again")


def test_pauses_between_polls_grow_to_their_limit(mirrored: Mirrored) -> None:
    wait_until(lambda: mirrored.cluster.open, "it watches")
    quick = mirrored.mirror._stop = Quick()
    pauses = quick.pauses
    mirrored.cluster.denied.add(("watch", "pods"))
    mirrored.cluster.drop_streams()
    wait_until(lambda: len(pauses) > 12, "it polls")
    assert pauses[1:] == sorted(pauses[1:]) and sum(pauses[:10]) < 120
    assert pauses[12] == kubernetes_watch.LONGEST_POLL
    mirrored.mirror.close()


def test_list_that_expires_again_is_read_as_one_page(
    still: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/api/v1/namespaces/default/pods"
    for number in range(5):
        still.store.create(path, {"metadata": {"name": f"p{number}"}})
    still.page = 2
    call = Cluster.call

    def expiring(own: Cluster, method: str, path: str, query: Any = None, *args: Any, **more: Any) -> Any:
        if query and "continue" in query:
            raise ClusterError("The provided continue parameter is too old", status=410, reason="Expired")
        still.page = 2 if query and "limit" in query else 0
        return call(own, method, path, query, *args, **more)

    monkeypatch.setattr(Cluster, "call", expiring)
    still.asked.clear()
    assert len(Cluster().items(path)) == 5
    assert len(still.asked) == 2


def test_threads_share_the_connections_of_a_cluster(
    still: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    meeting = threading.Barrier(2, timeout=0.5)

    class Slow(Cluster):
        def __init__(self, *args: Any, **more: Any) -> None:
            with suppress(threading.BrokenBarrierError):  # a second one would be made meanwhile
                meeting.wait()
            super().__init__(*args, **more)
            made.append(self)

    monkeypatch.setattr(kubernetes_client, "Cluster", Slow)
    clusters = Clusters()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: clusters.select({}), range(2))
    assert first is second and len(made) == 1
