"""Evictions, lost nodes, deletions by hand, and ends by a pod's own deadline: named, survived, logs kept."""

from __future__ import annotations

import copy
import functools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster, node
from fakecluster.cluster import evict
from fakecluster.controllers import delete
from fakecluster.objects import ended
from kubejobs import role, submit, until, until_all_run, until_file, until_state
from program import torchx
from support import wait_until

from torchx.schedulers.kubernetes.api.objects import Object, time_of
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.names import CANCELLED, ENDED, NOTICE
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.schedulers.kubernetes.status import describe
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.logs import LogQuery
from torchx.specs.status import AppState, ReplicaStatus, is_terminal

RECORDED = Path(__file__).parents[2] / "resources" / "kubernetes" / "disruptions.json"
PODS = "/api/v1/namespaces/default/pods"
SAVES = "trap 'echo saved; exit 143' TERM; echo up; while true; do sleep 0.05; done"


@functools.cache
def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def facts_of(name: str) -> Facts:
    found = copy.deepcopy(recorded()[name])
    job = found["job"]
    name = job["metadata"]["name"]
    return Facts("research", name, "job", [job], [job], found["pods"], nodes=found.get("nodes", {}))


def at(facts: Facts, seconds: float) -> DescribeAppResponse:
    """Describes an application some seconds after the newest change of its pods or nodes."""
    things: list[Object] = [*facts.pods, *facts.nodes.values()]
    times = [time_of(c["lastTransitionTime"]) for t in things for c in t["status"]["conditions"]]
    return describe(facts, max(time.timestamp() for time in times if time is not None) + seconds)


def replicas(answer: DescribeAppResponse) -> list[ReplicaStatus]:
    return [replica for role in answer.roles_statuses for replica in role.replicas]


# --- what a real cluster has answered ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "replica", "msg"),
    [
        ("evicted", 1, "evicted from node node-1; it is being ended"),
        (
            "evicted-by-kubelet",
            1,
            "evicted from node node-1: Pod ephemeral local storage usage exceeds the total limit of "
            "containers 10Mi.",
        ),
        ("preempted", 0, "preempted on node node-1 by a pod of higher priority; it is being ended"),
        ("node-not-ready", 0, "node node-1 is not ready for 40 s"),
        (
            "node-lost",
            1,
            "node node-1 is not ready for 50 s; evicted from node node-1: a taint of the node, such as "
            "that of a lost one; it is being ended",
        ),
        ("deleted-by-hand", 1, "its pod was deleted by hand; it is being ended"),
    ],
)
def test_why_a_pod_was_taken_away(name: str, replica: int, msg: str) -> None:
    answer = at(facts_of(name), 40)
    last = replicas(answer)[replica].attempts[-1]
    assert last.msg == msg
    assert replicas(answer)[replica].hostname == "node-1"
    said = last.msg.partition("; ")[0]
    assert said in answer.msg or (answer.first_failure is not None and said in answer.first_failure.msg), (
        answer.msg
    )


def test_caller_without_nodes_hears_of_lost_one_by_events() -> None:
    facts = facts_of("node-not-ready")
    facts.nodes.clear()
    assert at(facts, 40).msg == ""
    event = {"reason": "NodeNotReady", "type": "Warning", "message": "Node is not ready"}
    facts.events.append({**event, "involvedObject": {"name": facts.pods[0]["metadata"]["name"]}})
    assert at(facts, 40).msg == "trainer/0: node node-1 is not ready for 40 s" or "for" in at(facts, 40).msg


@pytest.mark.parametrize("name", ["evicted-replaced", "evicted-done"])
def test_past_eviction_leaves_trace_and_uses_up_no_retry(name: str) -> None:
    answer = at(facts_of(name), 1)
    assert answer.state is (AppState.SUCCEEDED if name == "evicted-done" else AppState.RUNNING)
    assert answer.msg.endswith("/1: taken from its node once")
    assert [replica.attempt for replica in replicas(answer)] == [1, 1]


def cancelled(name: str) -> Facts:
    facts = facts_of(name)
    facts.mains[0]["metadata"].setdefault("annotations", {})[CANCELLED] = "2026-11-21T00:00:00Z"
    for pod in facts.pods:
        pod["metadata"].setdefault("annotations", {})[ENDED] = "2026-11-21T00:00:00Z"
    return facts


@pytest.mark.parametrize("notice", ["", "5"])
@pytest.mark.parametrize("name", ["ended-by-deadline", "ended-exit-0"])
def test_pods_ended_by_torchx_are_cancelled(name: str, notice: str) -> None:
    facts = cancelled(name)
    for pod in facts.pods:  # with the notice of a time limit, which the end precedes
        pod["metadata"]["annotations"][NOTICE] = notice
    answer = at(facts, 1)
    assert (answer.state, answer.first_failure) == (AppState.CANCELLED, None)
    assert {replica.state for replica in replicas(answer)} == {AppState.CANCELLED}


def test_deadline_of_users_is_failure_even_after_exit_0() -> None:
    answer = at(facts_of("ended-exit-0"), 1)
    assert answer.state is AppState.FAILED
    assert answer.first_failure is not None
    assert answer.first_failure.msg == "time limit reached"


def test_the_times_of_a_replica_stop_with_its_job() -> None:
    facts = facts_of("evicted-done")
    status = facts.pods[0]["status"]
    started = status["containerStatuses"][0]["state"]["terminated"]["startedAt"]
    # the kubelet has not reported the end, or is lost: the job has ended all the same
    running = {"name": "main", "state": {"running": {"startedAt": started}}}
    status.update(phase="Running", containerStatuses=[running])
    answer = at(facts, 1000)
    assert answer.state is AppState.SUCCEEDED
    assert replicas(answer)[0].state is AppState.SUCCEEDED
    assert replicas(answer)[0].ended_at == answer.ended_at is not None


# --- live: cancel and failure keep the logs ------------------------------------------------------


def lines(scheduler: KubernetesScheduler, app_id: str, replica: int) -> list[str]:
    found = scheduler.log_iter(app_id, "worker", replica)
    return [line for line in found if line != "Terminated\n"]  # the shell's remark about its `sleep`


def pods_of(cluster: FakeCluster, index: int) -> list[Object]:
    key = "batch.kubernetes.io/job-completion-index"
    return [pod for pod in cluster.objects("pods") if pod["metadata"]["annotations"][key] == str(index)]


@pytest.mark.parametrize("retries", [0, 2])
def test_cancel_gives_time_and_keeps_every_log(
    cluster: FakeCluster, scheduler: KubernetesScheduler, retries: int
) -> None:
    app_id = submit(scheduler, role(SAVES, num_replicas=2, max_retries=retries), grace_period=20.0)
    wait_until(lambda: all(lines(scheduler, app_id, n) for n in (0, 1)), "both are up")
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, timeout=120)
    answer = scheduler.glance(app_id)
    assert answer is not None
    assert (answer.state, answer.first_failure) == (AppState.CANCELLED, None)
    assert [lines(scheduler, app_id, n) for n in (0, 1)] == [["up\n", "saved\n"]] * 2
    assert len(cluster.objects("pods")) == 2, "none was deleted, none started again"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_failure_keeps_every_log(
    scheduler: KubernetesScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setattr(node, "LAG", 1.5)  # as recorded in 03f: a job reacts two seconds after the end
    gate = tmp_path / "gate"
    script = f'test "$ID" = 0 || {{ until [ -e {gate} ]; do sleep 0.05; done; exit 7; }}; {SAVES}'
    env = {"ID": "${replica_id}"}
    app_id = submit(scheduler, role(script, num_replicas=2, env=env, max_retries=retries), grace_period=20.0)
    until_all_run(scheduler, app_id)
    wait_until(lambda: lines(scheduler, app_id, 0), "the first is up")
    gate.touch()
    assert scheduler.wait(app_id, timeout=120)
    answer = scheduler.glance(app_id)
    assert answer is not None and answer.first_failure is not None
    assert (answer.state, answer.first_failure.replica, answer.first_failure.exit_code) == (
        AppState.FAILED,
        1,
        7,
    )
    assert replicas(answer)[0].state is AppState.CANCELLED
    assert lines(scheduler, app_id, 0) == ["up\n", "saved\n"] * (retries + 1), "of all attempts"


def test_queries_change_nothing(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("sleep 600", name="server"), role("exit 6", name="client"))
    answer = until(
        scheduler, app_id, lambda answer: answer.msg.startswith("a replica failed"), "the client failed"
    )
    assert answer.msg == "a replica failed, the others still run: `torchx wait` ends them"
    cluster.asked.clear()
    scheduler.describe(app_id)
    (line,) = scheduler.list()
    assert line.state is AppState.RUNNING
    assert {asked.partition(" ")[0] for asked in cluster.asked} == {"GET"}
    assert scheduler.wait(app_id, timeout=120)


def test_an_end_that_was_broken_off_is_completed(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role("sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    cluster.fault("PATCH", "/pods/", 422, times=4)  # the canceller is gone before it has come to the pods
    with pytest.raises(Exception, match="refuses"):
        scheduler.cancel(app_id)
    cluster.faults.clear()
    assert scheduler.wait(app_id, timeout=120)
    answer = scheduler.glance(app_id)
    assert answer is not None and answer.state is AppState.CANCELLED


def test_without_right_to_end_pods_cancel_ends_job(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, "sleep 600")
    until_all_run(scheduler, app_id)
    cluster.fault("PATCH", "/pods/", 403, times=99)
    scheduler.cancel(app_id)
    until_state(scheduler, app_id, AppState.CANCELLED)
    assert ended(cluster.objects("jobs")[0]), "a suspended job would keep its pods"


# --- live: what is taken away --------------------------------------------------------------------


def test_evicted_replica_runs_again_and_is_named_at_end(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    app_id = submit(scheduler, role(f"test -e {tmp_path}/again && exit 0; sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    (tmp_path / "again").touch()
    waiting = threading.Thread(target=scheduler.wait, args=[app_id, 30])
    waiting.start()
    wait_until(lambda: len(cluster.open) >= 2, "it is watched")
    for index in (0, 1):
        evict(cluster.store, PODS, pods_of(cluster, index)[0]["metadata"]["name"])
    waiting.join()
    answer = scheduler.glance(app_id)
    assert answer is not None
    assert answer.state is AppState.SUCCEEDED, answer.msg
    assert answer.msg == "worker/0: evicted from node node-1 (and 1 more replicas)"
    (line,) = scheduler.list()
    assert line.msg == answer.msg


def test_a_pod_deleted_by_hand_is_reported_as_such(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, role("sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    waiting = threading.Thread(target=scheduler.wait, args=[app_id, 120])
    waiting.start()
    wait_until(lambda: len(cluster.open) >= 2, "it is watched")
    delete(cluster.store, PODS, pods_of(cluster, 1)[0])
    waiting.join()
    answer = scheduler.glance(app_id)
    assert answer is not None and answer.first_failure is not None
    first = answer.first_failure
    assert (answer.state, first.replica, first.msg) == (AppState.FAILED, 1, "its pod was deleted by hand")
    (line,) = scheduler.list()
    assert "deleted by hand" in line.msg


def test_a_lost_node_is_named_while_it_is_lost(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, "sleep 600")
    until_all_run(scheduler, app_id)
    assert cluster.node is not None
    cluster.node.lose()
    answer = until(scheduler, app_id, lambda answer: answer.msg, "the node is named")
    assert answer.state is AppState.RUNNING
    assert answer.msg.startswith("worker/0: node node-1 is not ready for ")
    wait_until(lambda: "is not ready" in next(iter(scheduler.list())).msg, "in a listing, too")
    cluster.node.find()
    until(scheduler, app_id, lambda answer: not answer.msg, "all is well")


def test_stream_that_ends_before_its_pod_continues(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    app_id = submit(scheduler, "for i in $(seq 60); do echo $i; echo $i; sleep 0.05; done; printf end")
    assert cluster.node is not None
    found: list[bytes] = []
    for chunk in scheduler.log_chunks(app_id, LogQuery(follow=True)):
        found.append(chunk.data)
        if len(found) in (3, 12):
            cluster.node.lose()
            threading.Timer(0.4, cluster.node.find).start()
    assert b"".join(found) == b"".join(b"%d\n%d\n" % (n, n) for n in range(1, 61)) + b"end"


def test_line_cut_by_end_of_stream_comes_once(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    app_id = submit(scheduler, f"echo whole line; until [ -e {gate} ]; do sleep 0.05; done; echo last")
    until_all_run(scheduler, app_id)
    cluster.cut_line = b"whole line\n"
    found: list[bytes] = []

    def read() -> None:
        found.extend(chunk.data for chunk in scheduler.log_chunks(app_id, LogQuery(follow=True)))

    reading = threading.Thread(target=read)
    reading.start()
    wait_until(lambda: not cluster.cut_line, "the line was cut")
    gate.touch()
    reading.join(30)
    assert b"".join(found) == b"whole line\nlast\n"


SHOWS_IN_A_SHELL = 'echo "$$TORCHX_ATTEMPT of $$1"; test $$TORCHX_ATTEMPT = 2'
SHOWS_IN_PYTHON = """
import os, sys
print(os.environ["TORCHX_ATTEMPT"], "of", sys.argv[-1])
sys.exit(os.environ["TORCHX_ATTEMPT"] != "2")
"""


@pytest.mark.parametrize(
    ("entrypoint", "script"), [("sh", SHOWS_IN_A_SHELL), ("python3", SHOWS_IN_PYTHON)], ids=["sh", "python"]
)
def test_a_replica_counts_its_attempts(scheduler: KubernetesScheduler, entrypoint: str, script: str) -> None:
    again = role(script, entrypoint=entrypoint, max_retries=2)
    again.args += ["sh", "a b"]
    app_id = submit(scheduler, again)
    assert scheduler.wait(app_id, timeout=120)
    assert lines(scheduler, app_id, 0) == ["1 of a b\n", "2 of a b\n"]


# --- what passes by itself (facts 1.36) ----------------------------------------------------------


def test_a_mount_that_failed_briefly_is_not_a_cause(
    scheduler: KubernetesScheduler, cluster: FakeCluster, tmp_path: Path
) -> None:
    assert cluster.node is not None
    cluster.node.mounts.clear()
    fails = until_file(tmp_path / "go", "exit 3")
    script = f'[ "$JOB_COMPLETION_INDEX" = 0 ] || exec sleep 600; {fails}'
    app_id = submit(scheduler, role(script, num_replicas=2))
    until(scheduler, app_id, lambda s: "FailedMount: " in s.msg and "(2 of 2" in s.msg, "both wait")
    cluster.node.mounts.set()
    status = until_all_run(scheduler, app_id)
    assert [status.msg, *(r.attempts[-1].msg for r in replicas(status))] == ["", "", ""]
    pod = cluster.objects("pods")[1]["metadata"]["name"]
    cluster.store.update(PODS, pod, lambda found: found["status"].update(phase="Pending"))
    status = until(scheduler, app_id, lambda s: True, "its events are read again, as a pod waits")
    assert [r.attempts[-1].msg for r in replicas(status) if r.state is AppState.RUNNING] == [""] * 2
    cluster.store.update(PODS, pod, lambda found: found["status"].update(phase="Running"))
    (tmp_path / "go").touch()
    assert scheduler.wait(app_id, 120.0)
    found = json.loads(torchx("why", f"kubernetes://torchx/{app_id}", "-o", "json").stdout)
    assert found["cause"]["evidence"] == "exit code 3", found
    assert "Mount" not in json.dumps(found)


def test_a_jobset_that_restarts_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster(jobsets=True) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = KubernetesScheduler("torchx")
        script = f'test "$TORCHX_ATTEMPT" = 2 || exit 1; {until_file(tmp_path / "go", "true")}'
        app_id = submit(scheduler, role(script, num_replicas=2, max_retries=1), kind="jobset")
        status, seen = glance(scheduler, app_id), set()
        while [(r.state, r.attempt) for r in replicas(status)] != [(AppState.RUNNING, 2)] * 2:
            assert not scheduler.wait(app_id, 0.01)
            status = glance(scheduler, app_id)
            seen.add(status.state)
        assert not any(map(is_terminal, seen))
        (tmp_path / "go").touch()
        assert until_state(scheduler, app_id, AppState.SUCCEEDED).num_restarts == 1
        changes = [thing for _, _, path, thing in cluster.store.happened if path.endswith("/jobsets")]
        reported = [c["status"] for t in changes for c in conditions(t) if c["type"] == "RestartingJobSet"]
        assert (reported[0], reported[-1]) == ("True", "False")
        scheduler.close()


def conditions(thing: Object) -> list[Object]:
    return list((thing.get("status") or {}).get("conditions") or [])


def glance(scheduler: KubernetesScheduler, app_id: str) -> DescribeAppResponse:
    found = scheduler.glance(app_id)
    assert found is not None
    return found
