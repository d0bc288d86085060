"""Sweeps as one Indexed Job: arguments of runs, their status and logs, ends of single runs and of all."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster, store
from fakecluster.objects import ended
from kubejobs import OPTIONS, app, role
from support import wait_until

from torchx import settings
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.names import APP
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.base import DescribeAppResponse, ManyRuns, SubmitsMany
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.protocols import UnavailableError
from torchx.scheduling.streams import Streams
from torchx.specs.app import RetryPolicy
from torchx.specs.status import AppState, is_terminal


def runs(*commands: str, first: int = 1, key: str = "sweep-1", at_once: int = 0, **changes: Any) -> ManyRuns:
    """Returns runs of shell commands."""
    apps = {number: app(role(command, **changes)) for number, command in enumerate(commands, first)}
    return ManyRuns(key, apps, OPTIONS, at_once)


def text(scheduler: KubernetesScheduler, app_id: str) -> str:
    return b"".join(chunk.data for chunk in scheduler.log_chunks(app_id, LogQuery())).decode()


def states(scheduler: KubernetesScheduler, ids: Mapping[int, str]) -> dict[int, str]:
    found = scheduler.glance_many([*ids.values()])
    return {number: found[app_id].state.name for number, app_id in ids.items() if app_id in found}


def until_states(scheduler: KubernetesScheduler, ids: Mapping[int, str], *expected: str) -> None:
    wait_until(lambda: [*states(scheduler, ids).values()] == [*expected], f"the runs are {expected}")


def until_over(scheduler: KubernetesScheduler, ids: Mapping[int, str]) -> None:
    wait_until(
        lambda: all(
            AppState[name] and is_terminal(AppState[name]) for name in states(scheduler, ids).values()
        ),
        "all runs have ended",
    )


def the_job(cluster: FakeCluster) -> dict[str, Any]:
    (job,) = cluster.objects("jobs")
    return job


def test_runs_are_one_job_and_applications_of_their_own(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    assert isinstance(scheduler, SubmitsMany)
    ids = scheduler.submit_many(runs("echo one", "echo two; exit 3", "echo three", first=4))
    until_states(scheduler, ids, "SUCCEEDED", "FAILED", "SUCCEEDED")
    assert [*ids] == [4, 5, 6] and the_job(cluster)["spec"]["completions"] == 3
    assert [text(scheduler, app_id) for app_id in ids.values()] == ["one\n", "two\n", "three\n"]
    failed = scheduler.describe(ids[5])
    assert failed is not None and failed.app_id == ids[5] and failed.first_failure is not None
    assert (failed.first_failure.role, failed.first_failure.replica) == ("worker", 0)
    assert failed.first_failure.exit_code == 3 and failed.roles[0].num_replicas == 1
    assert scheduler.wait(ids[4]) and not scheduler.exists(ids[4].rpartition(".")[0] + ".3")
    whole = scheduler.describe(ids[4].rpartition(".")[0])
    assert whole is not None and whole.roles[0].num_replicas == 3 and whole.state is AppState.FAILED


HARD = """printf '[%s]' "$@"; printf '{%s}' "$SEED" "$TORCHX_REPLICA" "$TORCHX_RANK0_HOST" $HOSTNAME"""


@pytest.mark.parametrize("entrypoint", ["sh", sys.executable])
def test_arguments_and_variables_arrive_unchanged(
    scheduler: KubernetesScheduler, tmp_path: Path, entrypoint: str
) -> None:
    hard = ["it's", "a\nb\n", "", "$(HOME) $$x ${y}", 'back\\slash `id` "quoted"', "é ∑", "-n", "\t "]
    seeds = ["1", "a 'b'\n$c", ""]
    script = tmp_path / "show"
    if entrypoint == "sh":
        script.write_text(HARD + "\n", encoding="utf-8")
    else:
        script.write_text(
            "import os, sys\nfor each in sys.argv[1:]: print(end=f'[{each}]')\n"
            "for name in ('SEED', 'TORCHX_REPLICA', 'TORCHX_RANK0_HOST', 'HOSTNAME'):\n"
            "    print(end='{' + os.environ[name] + '}')\n",
            encoding="utf-8",
        )
    args = [str(script), *hard, "${app_id}", "${replica_id}"]
    one = app(role("", entrypoint=entrypoint))
    apps = {
        number: replace(one, roles=[replace(one.roles[0], args=[*args, seed], env={"SEED": seed, "A": "b"})])
        for number, seed in enumerate(seeds, 1)
    }
    ids = scheduler.submit_many(ManyRuns("hard", apps, OPTIONS))
    until_over(scheduler, ids)
    for (number, app_id), seed in zip(ids.items(), seeds, strict=True):
        shown = "".join(f"[{each}]" for each in [*hard, app_id, "0", seed]).replace("$$", "$")  # a macro
        name = f"{app_id.partition(':')[2].rpartition('.')[0]}-worker-{number - 1}"
        assert text(scheduler, app_id).rstrip("\n") == shown + f"{{{seed}}}{{worker/0}}{{{name}}}{{{name}}}"


def test_values_are_in_secrets_only(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    many = runs("echo hidden-1", "echo hidden-2")
    for number, each in many.apps.items():
        each.roles[0].env["TOKEN"] = f"hidden-{number}"
    ids = scheduler.submit_many(many)
    until_over(scheduler, ids)
    for resource in ("jobs", "pods", "services", "configmaps"):
        assert "hidden" not in repr(cluster.objects(resource)).replace(
            repr(the_job(cluster)["metadata"]["annotations"][APP]), ""
        )
    shown = scheduler.describe(ids[2])
    assert shown is not None and shown.roles[0].args == ["-c", "echo hidden-2"]
    assert shown.roles[0].env["TOKEN"] == "hidden-2"
    cluster.fault("GET", "/secrets", 403)
    shown = scheduler.describe(ids[2])
    assert shown is not None and shown.roles[0].args == []


@pytest.mark.long
def test_more_runs_than_a_file_has_lines(scheduler: KubernetesScheduler, monkeypatch: Any) -> None:
    monkeypatch.setattr("torchx.schedulers.kubernetes.sweeps.manifests.LARGEST_SECRET", 6000)
    many = runs(*(f"echo run {number}" for number in range(203)), at_once=30)
    last = {number: each for number, each in scheduler.submit_many(many).items() if number in (1, 101, 203)}
    until_states(scheduler, last, *["SUCCEEDED"] * 3)
    assert [text(scheduler, app_id) for app_id in last.values()] == [f"run {n}\n" for n in (0, 100, 202)]


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_times_of_runs_have_the_clock_of_this_machine(
    scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    monkeypatch.setattr(store, "AHEAD", ahead)
    ids = scheduler.submit_many(runs("sleep 600", "sleep 600"))
    until_states(scheduler, ids, "RUNNING", "RUNNING")
    for described in scheduler.glance_many([*ids.values()]).values():
        (attempt,) = described.replicas[0].attempts
        for started in (described.started_at, attempt.started_at):
            assert started and abs(time.time() - started.timestamp()) < 600
    scheduler.cancel_many([*ids.values()], now=True)


def test_the_number_at_the_same_time(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    until = f"until [ -e {tmp_path}/gate ]; do sleep 0.02; done"
    ids = scheduler.submit_many(runs(*[until] * 4, at_once=2))
    until_states(scheduler, ids, "RUNNING", "RUNNING", "SUBMITTED", "SUBMITTED")
    scheduler.limit_many([*ids.values()], 3)
    until_states(scheduler, ids, "RUNNING", "RUNNING", "RUNNING", "SUBMITTED")
    scheduler.limit_many([*ids.values()], 0)
    until_states(scheduler, ids, *["RUNNING"] * 4)
    (tmp_path / "gate").touch()
    until_states(scheduler, ids, *["SUCCEEDED"] * 4)


def test_a_run_is_retried_by_itself(scheduler: KubernetesScheduler) -> None:
    command = "echo attempt $TORCHX_ATTEMPT; test $TORCHX_ATTEMPT = 2"
    many = runs("true", command, max_retries=2, retry_policy=RetryPolicy.REPLICA)
    ids = scheduler.submit_many(many)
    until_over(scheduler, ids)
    described = scheduler.describe(ids[2])
    assert described is not None and described.state is AppState.SUCCEEDED
    assert text(scheduler, ids[2]) == "attempt 1\nattempt 2\n"


def test_one_run_is_cancelled(cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path) -> None:
    until = f"echo begun; until [ -e {tmp_path}/gate ]; do sleep 0.02; done"
    many = runs(*[until] * 4, at_once=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    ids = scheduler.submit_many(many)
    wait_until(lambda: text(scheduler, ids[1]) == "begun\n", "the first run has begun")
    scheduler.cancel(ids[3])  # which waits
    scheduler.cancel(ids[1])  # which runs
    assert scheduler.wait(ids[1], 60)
    wait_until(lambda: states(scheduler, ids)[3] == "CANCELLED", "the third never begins")
    (tmp_path / "gate").touch()
    until_states(scheduler, ids, "CANCELLED", "SUCCEEDED", "CANCELLED", "SUCCEEDED")
    assert text(scheduler, ids[1]) == text(scheduler, ids[2]) == "begun\n"
    assert text(scheduler, ids[3]) == ""
    described = scheduler.glance(ids[3])
    assert described is not None and described.state is AppState.CANCELLED


@pytest.mark.parametrize("now", [False, True])
def test_all_runs_are_cancelled(cluster: FakeCluster, scheduler: KubernetesScheduler, now: bool) -> None:
    ids = scheduler.submit_many(runs("echo done", "exit 2", *["echo begun; sleep 300"] * 4, at_once=4))
    until_states(scheduler, ids, "SUCCEEDED", "FAILED", *["RUNNING"] * 4)
    scheduler.limit_many([*ids.values()], 3)
    scheduler.cancel_many([*ids.values()][2:], now=now)
    until_states(scheduler, ids, "SUCCEEDED", "FAILED", *["CANCELLED"] * 4)
    wait_until(lambda: ended(the_job(cluster)), "the job has ended")
    assert now or text(scheduler, ids[3]) == "begun\n"
    scheduler.delete_many([*ids.values()])
    wait_until(lambda: not states(scheduler, ids), "all runs are unknown")
    wait_until(lambda: not cluster.objects("secrets"), "the Secrets are deleted")


def test_a_second_submission_finds_the_first(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.fault("POST", "/jobs$", 500, times=9)
    with pytest.raises(UnavailableError):
        scheduler.submit_many(runs("echo one", "echo two"))
    cluster.faults.clear()
    ids = scheduler.submit_many(runs("echo one", "echo two"))
    assert scheduler.submit_many(runs("echo one", "echo two")) == ids
    until_over(scheduler, ids)
    assert scheduler.submit_many(runs("echo one", "echo two", key="other")) != ids
    assert len(cluster.objects("jobs")) == 2


def test_runs_that_are_not_one_job(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    def why(**changes: Any) -> str:
        return scheduler.rejects_many(runs("true", "false")._replace(**changes))

    assert why() == ""
    assert "cannot wait" in why(after=[("default:a", "ok")]) and "cannot wait" in why(behind=["default:a.0"])
    assert "queue" in why(cfg={"queue": "team"}) and "queue" in why(cfg={"kind": "jobset"})
    assert "several" in why(apps={1: app("true", role("true", "other"))})
    assert "several" in why(apps={1: app(role("true", num_replicas=2))})
    assert "start `train`" in why(apps={1: app(role("", entrypoint="train"))})
    assert "each run" in why(cfg={"preflight": ["disk"]})
    fields = [app(role("true", env={"IP": value})) for value in ("", "[FIELD_PATH]status.podIP")]
    assert "variable IP" in why(apps=dict(enumerate(fields)))
    cluster.denied.add(("create", "secrets"))
    assert "may not `create secrets`" in why()


def test_a_run_is_followed_and_runs_further_programs(scheduler: KubernetesScheduler, tmp_path: Path) -> None:
    gate = f"until [ -e {tmp_path}/gate ]; do sleep 0.02; done"
    ids = scheduler.submit_many(runs("echo other; sleep 300", f"echo $((6 * 7)); {gate}; echo end"))
    lines = scheduler.log_chunks(ids[2], LogQuery(follow=True))
    assert next(lines).data == b"42\n"
    out = io.BytesIO()
    assert scheduler.execute(ids[2], "worker", 0, ["hostname"], Streams(out, io.BytesIO())) == 0
    (tmp_path / "gate").touch()
    assert b"".join(chunk.data for chunk in lines) == b"end\n"
    assert states(scheduler, ids)[1] == "RUNNING"


def test_an_interrupted_cancellation_is_completed(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    ids = scheduler.submit_many(runs("sleep 300", "sleep 300"))
    until_states(scheduler, ids, "RUNNING", "RUNNING")
    cluster.fault("PATCH", "/pods/", 500, times=99)
    with pytest.raises(ClusterError):
        scheduler.cancel(ids[1])
    assert states(scheduler, ids) == {1: "RUNNING", 2: "RUNNING"}
    cluster.faults.clear()
    scheduler.reconcile(ids[2])
    scheduler.reconcile(ids[1])
    until_states(scheduler, ids, "CANCELLED", "RUNNING")


def test_deleted_runs_are_unknown(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    many = runs("echo one", "exit 3", "sleep 300")
    for number, each in many.apps.items():
        each.metadata[settings.RUN] = f"sweep-{number}"
    ids = scheduler.submit_many(many)
    until_states(scheduler, ids, "SUCCEEDED", "FAILED", "RUNNING")
    scheduler.delete(ids[3])
    scheduler.delete_many([ids[1]])
    wait_until(lambda: states(scheduler, ids) == {2: "FAILED"}, "two runs are deleted")
    assert not scheduler.exists(ids[1]) and [row.app_id for row in scheduler.list()] == [ids[2]]
    described = scheduler.describe(ids[2])
    assert described is not None and described.metadata[settings.RUN] == "sweep-2"
    scheduler.delete(ids[2])
    wait_until(lambda: not cluster.objects("jobs"), "the Job is deleted")


def test_a_run_is_reported_with_its_reason(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    ids = scheduler.submit_many(runs("true", "true", image="registry.example.com/nosuch", at_once=1))

    def reason() -> str:
        found: DescribeAppResponse | None = scheduler.glance(ids[1])
        assert found is not None
        return found.msg

    wait_until(lambda: "cannot be pulled" in reason(), "why it waits")
    listed = {row.app_id: row for row in scheduler.list()}
    assert [listed[ids[n]].state.name for n in ids] == ["PENDING", "SUBMITTED"]
