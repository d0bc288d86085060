"""Time limits on a cluster: the deadline of pods, whose hook notifies the programs, and the next runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from fakecluster.cluster import evict
from fakecluster.controllers import delete
from fakecluster.objects import index
from fakecluster.store import condition
from kubejobs import app, role, submit, until, until_all_run, until_ended
from support import wait_until

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.limits import check_limits
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs import RetryPolicy
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState

PODS = "/api/v1/namespaces/default/pods"
SAVES = """
place=$TORCHX_CHECKPOINT_DIR/$TORCHX_REPLICA
mkdir -p "$place"
n=$(cat "$place/n" 2> /dev/null || echo 0)
echo "run $TORCHX_RUN from $n"
[ $n -lt 2 ] || exit 0
trap 'echo $((n + 1)) > "$place/n"; echo saved; exit 75' USR1
while :; do sleep 0.05; done
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        yield cluster


@pytest.fixture
def scheduler(cluster: FakeCluster) -> Iterator[KubernetesScheduler]:
    scheduler = create_scheduler("torchx")
    yield scheduler
    scheduler.close()


def lines(scheduler: KubernetesScheduler, app_id: str, replica: int = 0) -> list[str]:
    """The log of a replica, without the remark of a shell about `sleep`: the node ends a process group."""
    chunks = scheduler.log_chunks(app_id, LogQuery())
    text = b"".join(chunk.data for chunk in chunks if chunk.replica == replica).decode()
    return [line for line in text.splitlines() if line != "Terminated"]


@contextmanager
def waiting(scheduler: KubernetesScheduler, app_id: str) -> Iterator[threading.Thread]:
    """Another thread waits for the end of an application, and carries out its restarts."""
    thread = threading.Thread(target=scheduler.wait, args=(app_id, 240), daemon=True)
    thread.start()
    yield thread
    thread.join(240)
    assert not thread.is_alive()


def pod_of(cluster: FakeCluster, number: int) -> dict[str, Any]:
    """The pod of a replica that runs."""
    found = [pod for pod in cluster.objects("pods") if pod["status"]["phase"] == "Running"]
    return next(pod for pod in found if index(pod) == number)


def disrupt(cluster: FakeCluster, number: int, reason: str) -> None:
    """Deletes a pod as the cluster does after a disruption."""
    name = pod_of(cluster, number)["metadata"]["name"]
    reported = condition("DisruptionTarget", reason)
    changed = cluster.store.update(
        PODS, name, lambda pod: pod["status"].setdefault("conditions", []).append(reported)
    )
    delete(cluster.store, PODS, changed)


def test_next_runs_continue_from_checkpoint_without_losing_lines(
    scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    """The shell that starts the program handles no USR1, and survives the notice."""
    job = role('sh -c "$PROGRAM"; exit $?', num_replicas=2, env={"PROGRAM": SAVES})
    cfg = {"time_limit": "1h", "notice": "3596s", "requeue_on": "time-limit:5"}
    app_id = submit(scheduler, job, checkpoint_dir=str(tmp_path), **cfg)
    assert scheduler.wait(app_id, 240.0)
    done = until_ended(scheduler, app_id)
    assert (done.state, done.run, done.num_restarts) == (AppState.SUCCEEDED, 3, 2), done
    expected = ["run 1 from 0", "saved", "run 2 from 1", "saved", "run 3 from 2"]
    assert [lines(scheduler, app_id, replica) for replica in (0, 1)] == [expected] * 2


def test_a_program_that_finishes_after_the_notice_has_succeeded(scheduler: KubernetesScheduler) -> None:
    """Its pod counts as failed: at a deadline, a cluster ignores the exit code."""
    script = 'test "$JOB_COMPLETION_INDEX" = 0 && exit 0; trap "exit 0" USR1; while :; do sleep 0.05; done'
    cfg = {"time_limit": "1h", "notice": "3598s", "requeue_on": "time-limit:5"}
    app_id = submit(scheduler, role(script, num_replicas=2), **cfg)
    assert scheduler.wait(app_id, 120.0)
    done = until_ended(scheduler, app_id)
    assert (done.state, done.run, done.first_failure) == (AppState.SUCCEEDED, 1, None), done
    assert {replica.state for replica in done.roles_statuses[0].replicas} == {AppState.SUCCEEDED}


def test_late_node_does_not_turn_success_into_failure(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    """It creates the container after the deadline: the program gets the notice, and ends with 0."""
    assert cluster.node is not None
    cluster.node.creation = 6.0
    script = 'trap "exit 0" USR1 TERM; while :; do sleep 0.05; done'
    app_id = submit(scheduler, role(script), time_limit="5s", notice="2s")
    assert scheduler.wait(app_id, 120.0)
    done = until_ended(scheduler, app_id)
    assert (done.state, done.first_failure) == (AppState.SUCCEEDED, None), done
    (pod,) = cluster.objects("pods")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_the_others_save_their_state_after_the_first_one(
    scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    """Without a requeue too: an end after the notice does not end the others."""
    gate = tmp_path / "gate"
    script = (
        'test "$JOB_COMPLETION_INDEX" = 0 || { trap "exit 75" USR1; while :; do sleep 0.05; done; }; '
        f"while [ ! -e {gate} ]; do sleep 0.05; done; echo saved; exit 75"
    )
    app_id = submit(scheduler, role(script, num_replicas=2), time_limit="1h", notice="3598s")
    with waiting(scheduler, app_id):
        until(scheduler, app_id, lambda s: "the others save their state" in s.msg, "the first one has ended")
        gate.touch()
    done = until_ended(scheduler, app_id)
    assert lines(scheduler, app_id) == ["saved"]
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert done.first_failure.msg == "time limit reached: 1h"


def test_requeues_are_counted_apart_from_retries(scheduler: KubernetesScheduler) -> None:
    """Without a notice, too: the second run fails, is retried, and reaches the limit."""
    script = (
        "echo run $TORCHX_RUN attempt $TORCHX_ATTEMPT; "
        "test $TORCHX_ATTEMPT = 2 && exit 3; while :; do sleep 0.05; done"
    )
    cfg = {"time_limit": "3s", "requeue_on": "time-limit:1", "retry_backoff": 0.01}
    app_id = submit(scheduler, role(script, max_retries=1), **cfg)
    assert scheduler.wait(app_id, 240.0)
    done = until_ended(scheduler, app_id)
    assert lines(scheduler, app_id) == [f"run {run} attempt {n}" for run, n in ((1, 1), (2, 2), (2, 3))]
    assert (done.state, done.run) == (AppState.FAILED, 2)
    assert done.first_failure is not None
    assert done.first_failure.msg == "time limit reached: 3s; all requeues are used (1)"


def test_the_limit_is_the_named_cause(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("while :; do sleep 0.05; done", num_replicas=2), time_limit="2s")
    done = until_ended(scheduler, app_id)
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert done.first_failure.msg == "time limit reached: 2s"


def test_a_cancellation_is_not_delayed_by_the_notice(scheduler: KubernetesScheduler) -> None:
    """The hook of a pod sends no notice before the time limit, and TERM follows immediately."""
    traps = "trap 'echo noticed' USR1; trap 'echo cancelled; exit 143' TERM"
    script = f"{traps}; echo up; while :; do sleep 0.05; done"
    app_id = submit(scheduler, role(script), time_limit="10h", notice="5h", requeue_on="time-limit")
    wait_until(lambda: lines(scheduler, app_id) == ["up"], "it handles the signals")
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 240.0)
    done = until_ended(scheduler, app_id)
    assert (done.state, lines(scheduler, app_id)) == (AppState.CANCELLED, ["up", "cancelled"])


@pytest.mark.parametrize("program", ["sh", "python3"])
def test_the_programs_know_the_end_of_the_run(scheduler: KubernetesScheduler, program: str) -> None:
    names = ("TORCHX_RUN", "TORCHX_NOTICE", "TORCHX_ENDS_AT")
    shows = "echo " + " ".join(f"${name}" for name in names)
    if program != "sh":
        shows = f"import os; print(*(os.environ[name] for name in {names!r}))"
    app_id = submit(
        scheduler, role("", entrypoint=program, args=["-c", shows]), time_limit="1h", notice="5m:TERM"
    )
    assert scheduler.wait(app_id, 120.0)
    run, notice, ends_at = lines(scheduler, app_id)[0].split()
    assert (run, notice) == ("1", "300:TERM")
    assert abs(int(ends_at) - time.time() - 3600) < 200


PATIENT = 'echo run $TORCHX_RUN; while [ ! -e "$TORCHX_CHECKPOINT_DIR/go" ]; do sleep 0.05; done'


def started(scheduler: KubernetesScheduler, folder: Path, **cfg: CfgVal) -> str:
    app_id = submit(scheduler, role(PATIENT, num_replicas=2), checkpoint_dir=str(folder), **cfg)
    until_all_run(scheduler, app_id)
    return app_id


def finish(scheduler: KubernetesScheduler, folder: Path, app_id: str, run: int) -> None:
    for replica in (0, 1):
        wait_until(lambda n=replica: f"run {run}" in lines(scheduler, app_id, n), "the next run begins")
    (folder / "go").touch()


@pytest.mark.parametrize("reason", ["", "PreemptionByScheduler"], ids=["evicted", "preempted"])
def test_a_disruption_begins_the_next_run_of_all_replicas(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path, reason: str
) -> None:
    """Without a retry, and as often as it happens."""
    app_id = started(scheduler, tmp_path, requeue_on="node,preempted")
    with waiting(scheduler, app_id):
        for run in (1, 2):
            until_all_run(scheduler, app_id)
            if reason:
                disrupt(cluster, 1, reason)
            else:
                evict(cluster.store, PODS, pod_of(cluster, 1)["metadata"]["name"])
            until(scheduler, app_id, lambda s, run=run: s.run == run + 1, "the next run")
        finish(scheduler, tmp_path, app_id, 3)
    done = until_ended(scheduler, app_id)
    assert (done.state, done.run, done.num_restarts) == (AppState.SUCCEEDED, 3, 2)
    assert lines(scheduler, app_id, 0) == ["run 1", "run 2", "run 3"], "the logs of its peers are kept"


def test_lost_node_begins_next_run_after_its_pods(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    """Its pods are taken away, but may still run until the node is back (recorded in 14c)."""
    app_id = started(scheduler, tmp_path, requeue_on="node")
    assert cluster.node is not None
    with waiting(scheduler, app_id):
        cluster.node.lose()
        for number in (0, 1):
            disrupt(cluster, number, "DeletionByTaintManager")
        status = until(scheduler, app_id, lambda s: "follows" in s.msg, "the node is lost")
        assert "a taint of the node, such as that of a lost one; attempt 2 follows" in status.msg
        assert status.run == 1
        cluster.node.find()
        finish(scheduler, tmp_path, app_id, 2)
    done = until_ended(scheduler, app_id)
    assert (done.state, done.run) == (AppState.SUCCEEDED, 2)


def test_a_deletion_by_hand_is_a_failure(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    """With a retry left it is retried; no requeue follows."""
    job = role(PATIENT, num_replicas=2, max_retries=1)
    cfg = {"requeue_on": "node,preempted", "checkpoint_dir": str(tmp_path), "retry_backoff": 0.01}
    app_id = submit(scheduler, job, **cfg)
    until_all_run(scheduler, app_id)
    with waiting(scheduler, app_id):
        delete(cluster.store, PODS, pod_of(cluster, 1))
        until(scheduler, app_id, lambda s: s.num_restarts == 1, "the retry")
        until_all_run(scheduler, app_id)
        delete(cluster.store, PODS, pod_of(cluster, 1))
    done = until_ended(scheduler, app_id)
    assert (done.state, done.run, done.num_restarts) == (AppState.FAILED, 1, 1), done
    assert done.first_failure is not None
    assert (done.first_failure.replica, done.first_failure.msg) == (1, "its pod was deleted by hand")


def test_request_has_deadline_of_pods_and_hook_of_notice() -> None:
    cfg: dict[str, CfgVal] = {
        "time_limit": "1h", "notice": "5m:USR2", "requeue_on": "time-limit:4", "checkpoint_dir": "/data",
    }  # fmt: skip
    info = create_scheduler("torchx").submit_dryrun(AppDef("a", [role("true", max_retries=1)]), cfg)
    job = next(each for each in info.request.manifests if each["kind"] == "Job")
    spec = job["spec"]["template"]["spec"]
    assert (spec["activeDeadlineSeconds"], spec["terminationGracePeriodSeconds"]) == (3300, 330)
    main = spec["containers"][0]
    command = main["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] + command[3:] == ["sh", "-c", "sh", "USR2", "12", "0", "3300", "300"]
    assert job["spec"]["backoffLimitPerIndex"] == 0, "torchx begins the next run"
    assert "maxFailedIndexes" not in job["spec"]
    env = {entry["name"]: entry.get("value") for entry in main["env"]}
    assert (env["TORCHX_CHECKPOINT_DIR"], env["TORCHX_RUN"]) == ("/data", "1")
    term = create_scheduler("torchx").submit_dryrun(AppDef("a", [role("true")]), {**cfg, "notice": "5m:TERM"})
    job = next(each for each in term.request.manifests if each["kind"] == "Job")
    assert "lifecycle" not in job["spec"]["template"]["spec"]["containers"][0], "TERM needs no shell"


def test_without_rights_cluster_replaces_pods_after_limit(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    cluster.denied.add(("patch", "pods"))
    cfg = {"time_limit": "1h", "requeue_on": "time-limit:2"}
    info = scheduler.submit_dryrun(app(role("true", num_replicas=2)), cfg)
    scheduler.schedule(info)
    assert "only the failed replica is restarted" in info.notes[-1]
    (job,) = cluster.objects("jobs")
    assert job["spec"]["backoffLimitPerIndex"] == 2


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"requeue_on": "preempted:3"}, "takes no number for `preempted`"),
        ({"requeue_on": "node", "kind": "volcano"}, "is not possible with kind=volcano"),
        ({"requeue_on": "node", "kind": "jobset"}, "is not possible with kind=jobset"),
    ],
)
def test_what_a_cluster_cannot_do_is_rejected(cfg: dict[str, CfgVal], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_limits(cfg)


def test_retries_of_single_replicas_exclude_requeues() -> None:
    single = role("true", num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    with pytest.raises(UsageError, match="role `worker` has retries of single replicas, which exclude"):
        create_scheduler("torchx").submit_dryrun(app(single), {"requeue_on": "node"})
