"""Time limits on a cluster: the deadline of pods, whose TERM is the notice, and the pods that follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit, until_ended

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.limits import check_limits
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState

SAVES = """
n=$(cat "$TORCHX_CHECKPOINT_DIR/$TORCHX_REPLICA" 2> /dev/null || echo 0)
echo "from $n"
[ $n -lt 1 ] || exit 0
trap 'echo $((n + 1)) > "$TORCHX_CHECKPOINT_DIR/$TORCHX_REPLICA"; echo saved; exit 0' TERM
while :; do sleep 0.05; done
"""


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesScheduler]:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = create_scheduler("torchx")
        yield scheduler
        scheduler.close()


def test_the_pods_that_follow_continue_from_the_checkpoint(
    scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    """An exit with 0 after TERM is not taken for success: the deadline fails the pod all the same."""
    (tmp_path / "worker").mkdir()
    cfg = {
        "time_limit": "63s",
        "notice": "60s",
        "requeue_on": "time-limit:3",
        "checkpoint_dir": str(tmp_path),
    }
    app_id = submit(scheduler, role(SAVES, num_replicas=2), **cfg)
    assert scheduler.wait(app_id, 120.0)
    done = until_ended(scheduler, app_id)
    chunks = list(scheduler.log_chunks(app_id, LogQuery()))
    for replica in range(2):
        lines = b"".join(c.data for c in chunks if c.replica == replica).decode().splitlines()
        # the shell reports the end of `sleep`, since the node of the tests ends a process group
        assert [line for line in lines if line != "Terminated"] == ["from 0", "saved", "from 1"], chunks
    assert done.state is AppState.SUCCEEDED


def test_the_limit_is_the_named_cause(scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("while :; do sleep 0.05; done", num_replicas=2), time_limit="2s")
    done = until_ended(scheduler, app_id)
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert done.first_failure.msg == "time limit reached"


def test_the_request_has_the_deadline_of_pods_and_the_grace_period_of_the_notice() -> None:
    cfg: dict[str, CfgVal] = {
        "time_limit": "1h", "notice": "5m", "requeue_on": "time-limit:4", "checkpoint_dir": "/data",
    }  # fmt: skip
    info = create_scheduler("torchx").submit_dryrun(AppDef("a", [role("true", max_retries=1)]), cfg)
    job = next(each for each in info.request.manifests if each["kind"] == "Job")
    spec = job["spec"]["template"]["spec"]
    assert (spec["activeDeadlineSeconds"], spec["terminationGracePeriodSeconds"]) == (3300, 300)
    assert job["spec"]["backoffLimitPerIndex"] == 5
    assert {"name": "TORCHX_CHECKPOINT_DIR", "value": "/data"} in spec["containers"][0]["env"]
    assert any("are counted together" in note for note in info.notes)


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"time_limit": "1h", "notice": "5m:USR1"}, "the signal of a notice is TERM there"),
        ({"requeue_on": "preempted:3"}, "has a number for `preempted`"),
        (
            {"time_limit": "1h", "requeue_on": "time-limit", "kind": "volcano"},
            "kind=volcano does not support",
        ),
    ],
)
def test_what_a_cluster_cannot_do_is_rejected(cfg: dict[str, CfgVal], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_limits(cfg)
