"""Logs of pods: in order, in part, over restarts and broken connections, from before the start to the end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from fakecluster import FakeCluster
from fakecluster.objects import INDEX
from kubejobs import role, submit, until_all_run, until_ended, until_state
from kubesteps import PODS
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.schedulers.kubernetes import log_follow
from torchx.schedulers.kubernetes import logs as kubernetes_logs
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.app import RetryPolicy
from torchx.specs.status import AppState

EVERY_SECOND = "for i in 1 2 3; do echo line $i; sleep 0.3; done"


def text(chunks: Iterable[LogChunk]) -> str:
    return b"".join(chunk.data for chunk in chunks).decode()


def read(scheduler: KubernetesScheduler, app_id: str, query: LogQuery | None = None) -> list[LogChunk]:
    return list(scheduler.log_chunks(app_id, query or LogQuery()))


def ended(scheduler: KubernetesScheduler, command: str, **changes: object) -> str:
    app_id = submit(scheduler, role(command, **changes))
    until_ended(scheduler, app_id)
    return app_id


def test_lines_have_their_times(scheduler: KubernetesScheduler) -> None:
    app_id = ended(scheduler, EVERY_SECOND)
    chunks = read(scheduler, app_id)
    assert text(chunks) == "line 1\nline 2\nline 3\n"
    assert [chunk.stream for chunk in chunks] == [Stream.COMBINED] * 3
    now = datetime.now(timezone.utc).timestamp()
    assert all(now - 60 < chunk.time <= now for chunk in chunks)
    assert chunks[2].time - chunks[0].time > 0.5


def test_a_part_by_time(scheduler: KubernetesScheduler) -> None:
    app_id = ended(scheduler, EVERY_SECOND)
    second = datetime.fromtimestamp(read(scheduler, app_id)[1].time, timezone.utc)
    early, late = second - timedelta(milliseconds=50), second + timedelta(milliseconds=50)
    assert text(read(scheduler, app_id, LogQuery(since=early))) == "line 2\nline 3\n"
    assert text(read(scheduler, app_id, LogQuery(until=late))) == "line 1\nline 2\n"
    assert text(read(scheduler, app_id, LogQuery(since=early, until=late))) == "line 2\n"
    assert text(read(scheduler, app_id, LogQuery(since=early, until=late, follow=True))) == "line 2\n"


def test_the_last_lines_of_all_replicas(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = ended(
        scheduler, "echo a$JOB_COMPLETION_INDEX; sleep 0.3; echo b$JOB_COMPLETION_INDEX", num_replicas=2
    )
    assert sorted(text(read(scheduler, app_id, LogQuery(tail=2))).split()) == ["b0", "b1"]
    assert text(read(scheduler, app_id, LogQuery(tail=1, regex="a0"))) == "a0\n"
    assert text(read(scheduler, app_id, LogQuery(tail=0))) == ""


def test_more_replicas_than_are_read_at_once(
    scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_logs, "MAX_PARALLEL", 2)
    monkeypatch.setattr("torchx.schedulers.shared.logs.BLOCK", 10)
    app_id = ended(scheduler, "seq 20; printf end", num_replicas=5)
    chunks = read(scheduler, app_id)
    assert [chunk.time for chunk in chunks] == sorted(chunk.time for chunk in chunks)
    for number in range(5):
        mine = text(chunk for chunk in chunks if chunk.replica == number)
        assert mine.split() == [*map(str, range(1, 21)), "end"]
    last = read(scheduler, app_id, LogQuery(tail=7))
    assert text(chunks).endswith(text(last))
    assert sum(len(chunk.data.splitlines()) for chunk in last) == 7


def test_unfinished_last_line_does_not_join_another_replica(scheduler: KubernetesScheduler) -> None:
    app_id = ended(scheduler, "printf no-end", num_replicas=2)
    assert [chunk.data.rstrip(b"\n") for chunk in read(scheduler, app_id)] == [b"no-end"] * 2


def test_one_stream_cannot_be_had_alone(scheduler: KubernetesScheduler) -> None:
    app_id = ended(scheduler, "true")
    with pytest.raises(UsageError, match="keeps stdout and stderr in one log"):
        scheduler.log_chunks(app_id, LogQuery(stream=Stream.STDERR))
    with pytest.raises(StateError, match="knows no application"):
        scheduler.log_chunks("default:nosuch", LogQuery())


def test_every_attempt_has_its_own(scheduler: KubernetesScheduler) -> None:
    again = {"max_retries": 2, "retry_policy": RetryPolicy.REPLICA, "num_replicas": 2}
    app_id = ended(scheduler, "echo $JOB_COMPLETION_INDEX; test $JOB_COMPLETION_INDEX = 0", **again)
    described = scheduler.describe(app_id)
    assert described is not None
    assert [r.attempt for r in described.roles_statuses[0].replicas] == [1, 3]
    chunks = read(scheduler, app_id)
    assert [(chunk.replica, chunk.attempt) for chunk in chunks if chunk.replica == 1] == [
        (1, 1),
        (1, 2),
        (1, 3),
    ]


# --- following -----------------------------------------------------------------------------------


class Following:
    """Follows a log in a thread."""

    def __init__(self, scheduler: KubernetesScheduler, app_id: str, query: LogQuery) -> None:
        self.chunks: list[LogChunk] = []
        self.error: ClusterError | None = None
        self._thread = threading.Thread(target=self._read, args=(scheduler, app_id, query))
        self._thread.start()

    def _read(self, scheduler: KubernetesScheduler, app_id: str, query: LogQuery) -> None:
        try:
            for chunk in scheduler.log_chunks(app_id, query):
                self.chunks.append(chunk)
        except ClusterError as error:
            self.error = error

    def until(self, expected: str) -> None:
        wait_until(lambda: expected in text(self.chunks), f"{expected!r} is read")

    def end(self) -> str:
        self._thread.join(20)
        assert not self._thread.is_alive(), "it does not end"
        if self.error is not None:
            raise self.error
        return text(self.chunks)


def test_it_is_followed_from_before_the_start(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, EVERY_SECOND)
    assert text(read(scheduler, app_id, LogQuery(follow=True))) == "line 1\nline 2\nline 3\n"


def test_it_is_followed_over_attempts(scheduler: KubernetesScheduler) -> None:
    again = {"max_retries": 2, "retry_policy": RetryPolicy.REPLICA}
    app_id = submit(scheduler, role("echo again; exit 1", **again))
    chunks = read(scheduler, app_id, LogQuery(follow=True))
    assert [(chunk.attempt, chunk.data) for chunk in chunks] == [(n, b"again\n") for n in (1, 2, 3)]


def test_broken_connections_lose_and_repeat_nothing(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(
        scheduler, role("for i in $(seq 40); do echo $i; echo $i; sleep 0.05; done", num_replicas=2)
    )
    following = Following(scheduler, app_id, LogQuery(follow=True))
    for number in (3, 10, 20, 30):
        following.until(f"\n{number}\n")
        cluster.drop_streams()
        cluster.fault("GET", "/log$", 500)
    following.end()
    expected = [str(n) for n in range(1, 41) for _ in "ab"]
    for replica in (0, 1):
        assert text(c for c in following.chunks if c.replica == replica).split() == expected


def test_the_last_lines_first_then_what_comes(scheduler: KubernetesScheduler, tmp_path: Path) -> None:
    app_id = submit(scheduler, f"seq 10; until [ -e {tmp_path}/gate ]; do sleep 0.02; done; echo end")
    wait_until(lambda: text(read(scheduler, app_id)).endswith("10\n"), "the first ten lines")
    following = Following(scheduler, app_id, LogQuery(tail=2, follow=True))
    following.until("10")
    (tmp_path / "gate").touch()
    assert following.end() == "9\n10\nend\n"


def test_it_ends_with_a_cancel(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, "echo there; sleep 60")
    following = Following(scheduler, app_id, LogQuery(follow=True))
    following.until("there")
    scheduler.cancel(app_id)
    assert following.end() == "there\n"


def test_what_never_starts_is_followed_until_it_is_cancelled(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("echo", image="registry.example.com/nosuch"))
    following = Following(scheduler, app_id, LogQuery(follow=True))
    result = until_state(scheduler, app_id, AppState.PENDING)
    wait_until(lambda: "cannot be pulled" in (scheduler.glance(app_id) or result).msg, "why it waits")
    scheduler.cancel(app_id)
    assert following.end() == ""


def test_who_may_not_read_is_reported(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.fault(
        "GET", "/log$", 403, times=99, body={"message": 'User "jane" cannot get resource "pods/log" in'}
    )
    app_id = submit(scheduler, "sleep 60")
    with pytest.raises(ClusterError, match="does not let jane get pods/log in namespace `default`"):
        read(scheduler, app_id, LogQuery(follow=True))


def test_who_stops_reading_leaves_nothing_behind(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role("while true; do echo more; sleep 0.05; done", num_replicas=3))
    chunks = scheduler.log_chunks(app_id, LogQuery(follow=True))
    assert next(chunks).data.startswith(b"more")
    chunks.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name.startswith(("log", "watch /"))]


def test_many_lines_at_once(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("seq 30000", num_replicas=2))
    chunks = read(scheduler, app_id, LogQuery(follow=True))
    for replica in (0, 1):
        assert text(c for c in chunks if c.replica == replica).split() == [str(n) for n in range(1, 30001)]


# --- a node that does not answer -----------------------------------------------------------------

HUNG = {
    "kind": "Status",
    "status": "Failure",
    "message": 'Get "https://10.255.0.2:10250/containerLogs/default/P/main": net/http: TLS handshake timeout',
    "code": 500,
}
"""The answer to a request for a log, after ten seconds (facts 1.36)."""


def index_of(pod: Object) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


def hang(cluster: FakeCluster, *replicas: int, after: float = 0.2) -> list[str]:
    """Has the node of some replicas hang; returns the paths of their logs."""
    paths = []
    for pod in cluster.objects("pods"):
        if index_of(pod) in replicas:
            name = pod["metadata"]["name"]
            cluster.store.update(PODS, name, lambda found: found["spec"].update(nodeName="node-2"))
            cluster.fault("GET", f"/pods/{name}/log", 500, times=10**6, body=HUNG, after=after)
            paths.append(f"GET {PODS}/{name}/log")
    return paths


@pytest.mark.parametrize("tail", [None, 1])
def test_lines_of_other_nodes_are_shown(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch, tail: int | None
) -> None:
    if tail:
        monkeypatch.setattr(kubernetes_logs, "MAX_PARALLEL", 2)  # the last lines of many replicas
    app_id = submit(scheduler, role("echo hi $JOB_COMPLETION_INDEX", num_replicas=4))
    until_ended(scheduler, app_id)
    paths = hang(cluster, 1, 2)
    cluster.asked.clear()
    chunks = scheduler.log_chunks(app_id, LogQuery(tail=tail))
    lines: list[LogChunk] = []
    with pytest.raises(
        ClusterError, match=r"lines of worker/1, worker/2 are missing: the node of .* does not"
    ):
        lines.extend(chunks)
    found = sorted(chunk.replica for chunk in lines)
    assert found == [0, 3] or (tail and found in ([0], [3]))
    asked = sum(cluster.asked.count(path) for path in paths)
    assert asked == 1 or (tail and asked == 2), "once per node; the last lines are read in parallel"


@pytest.mark.long
def test_a_hung_node_holds_other_lines_up_once(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("echo up $JOB_COMPLETION_INDEX; sleep 600", num_replicas=4))
    until_all_run(scheduler, app_id)
    paths = hang(cluster, 1, 2, after=10.0)
    cluster.asked.clear()
    lines: list[LogChunk] = []
    with pytest.raises(ClusterError, match=r"lines of worker/1, worker/2 are missing: the node of"):
        lines.extend(scheduler.log_chunks(app_id, LogQuery()))
    assert sorted(chunk.replica for chunk in lines) == [0, 3]
    assert sum(cluster.asked.count(path) for path in paths) == 1, "10 s, not 20 s"
    cluster.faults.clear()
    hang(cluster, 1, 2, after=2.0)
    following = Following(scheduler, app_id, LogQuery(follow=True))
    following.until("up 0")
    following.until("up 3")
    scheduler.cancel(app_id)
    with pytest.raises(ClusterError, match=r"lines of worker/1, worker/2 are missing"):
        following.end()


def test_a_lost_node_does_not_end_following(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("echo up; sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    hang(cluster, 1)
    following = Following(scheduler, app_id, LogQuery(follow=True))
    following.until("up")
    scheduler.cancel(app_id)
    with pytest.raises(ClusterError, match=r"lines of worker/1 are missing"):
        following.end()


def test_a_silent_node_ends_following_after_the_application(
    cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follow, "LAST_SILENCE", 2.0)
    monkeypatch.setattr(log_follow, "LONGEST", 0.5)
    app_id = submit(scheduler, role("echo up; sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    cluster.silent = {pod["metadata"]["name"] for pod in cluster.objects("pods") if index_of(pod) == 1}
    following = Following(scheduler, app_id, LogQuery(follow=True))
    following.until("up")
    scheduler.cancel(app_id)
    with pytest.raises(ClusterError, match=r"lines of (worker/0, )?worker/1 are missing: their nodes"):
        following.end()


def test_a_node_that_answers_again_is_read(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("echo up $JOB_COMPLETION_INDEX; sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    for _ in range(2):  # it hangs twice
        hang(cluster, 1)
        following = Following(scheduler, app_id, LogQuery(follow=True))
        following.until("up 0")
        cluster.faults.clear()
        following.until("up 1")
    scheduler.cancel(app_id)
    assert "up 1" in following.end()
