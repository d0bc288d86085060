"""The number of the attempt in a pod: the fields of the cluster, and the programs that add 1 to them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from manifests import facts_of, made, role

from torchx.schedulers.kubernetes.application import app_of
from torchx.schedulers.kubernetes.manifests.attempt_number import FAILURES, arguments, own_arguments
from torchx.schedulers.kubernetes.names import APP
from torchx.schedulers.kubernetes.restart import next_job
from torchx.schedulers.kubernetes.state.replicas import number_of
from torchx.specs import AppDef, RetryPolicy


@pytest.mark.parametrize(
    ("changes", "kind", "field"),
    [
        ({}, "job", None),
        ({"max_retries": 2}, "job", None),  # torchx sets the number in the job of each attempt
        (
            {"max_retries": 2, "retry_policy": RetryPolicy.REPLICA},
            "job",
            "metadata.annotations['batch.kubernetes.io/job-index-failure-count']",
        ),
        ({"max_retries": 2}, "jobset", "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"),
        ({"max_retries": 2}, "volcano", "metadata.annotations['volcano.sh/job-retry-count']"),
    ],
)
def test_a_replica_knows_its_attempt(changes: dict[str, Any], kind: str, field: str | None) -> None:
    app = AppDef("a", [role(num_replicas=2, **changes), role("other", entrypoint="bash", **changes)])
    manifest = made(app, kind).manifests[-1]["spec"]
    jobs = [job["template"]["spec"] for job in manifest.get("replicatedJobs", [])]
    main = (jobs or manifest.get("tasks") or [manifest])[-1]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry for entry in main["env"]}
    if field is None:
        assert env["TORCHX_ATTEMPT"]["value"] == "1"
        assert "TORCHX_RETRIES" not in env
        return
    assert env["TORCHX_RETRIES"]["valueFrom"]["fieldRef"]["fieldPath"] == field
    assert "TORCHX_ATTEMPT" not in env, "a cluster counts from 0, and cannot add"
    assert main["args"][0] == "-c" and "TORCHX_ATTEMPT" in main["args"][1], "a shell can"


def test_a_volcano_task_that_restarts_alone_has_no_number() -> None:
    app = AppDef("a", [role("r", max_retries=1), role("s", max_retries=1, retry_policy=RetryPolicy.REPLICA)])
    for task in made(app, "volcano").manifests[-1]["spec"]["tasks"]:
        names = {entry["name"] for entry in task["template"]["spec"]["containers"][0]["env"]}
        assert not names & {"TORCHX_ATTEMPT", "TORCHX_RETRIES"}


@pytest.mark.parametrize("program", ["sh", sys.executable], ids=["sh", "python"])
@pytest.mark.parametrize(("retries", "expected"), [("2", "3 "), ("", " ")], ids=["2", "none"])
def test_a_program_adds_1_to_the_retries(program: str, retries: str, expected: str) -> None:
    shows = {
        "sh": ["-c", 'echo "$TORCHX_ATTEMPT" "$0"'],
        sys.executable: ["-c", "import os, sys; print(os.environ.get('TORCHX_ATTEMPT', ''), sys.argv[1])"],
    }
    # as Kubernetes does: `$$(` stands for `$(`
    first = [arg.replace("$$(", "$(") for arg in arguments(program, FAILURES)]
    assert len(first) == 3
    argv = [program, *first, *shows[program], "a  b"]
    env = {"PATH": os.environ["PATH"], "TORCHX_RETRIES": retries}
    assert subprocess.run(argv, env=env, capture_output=True, text=True).stdout == f"{expected}a  b\n"


@pytest.mark.parametrize("program", ["sh", sys.executable], ids=["sh", "python"])
def test_program_counts_attempts_before_restart_of_all(program: str) -> None:
    """A Job that restarts single replicas counts from 0; its number is that of earlier Jobs, and its own."""
    roles = (
        role("r", max_retries=2),
        role("s", num_replicas=2, max_retries=2, retry_policy=RetryPolicy.REPLICA),
    )
    first = facts_of(made(AppDef("a", [*roles]))).mains[1]
    second = next_job(first, "{}", "", {}, {}, failures=1)
    third = next_job(second, "{}", "", {}, {}, failures=0)
    (env,) = (c["env"] for c in third["spec"]["template"]["spec"]["containers"])
    (earlier,) = (entry["value"] for entry in env if entry["name"] == "TORCHX_EARLIER_ATTEMPTS")
    assert earlier == "3", "two attempts of a replica, then one"
    shows = {
        "sh": ["-c", 'echo "$TORCHX_ATTEMPT"'],
        sys.executable: ["-c", "import os; print(os.environ['TORCHX_ATTEMPT'])"],
    }
    counts = [arg.replace("$$(", "$(") for arg in arguments(program, FAILURES)]
    given = {"PATH": os.environ["PATH"], "TORCHX_RETRIES": "1", "TORCHX_EARLIER_ATTEMPTS": earlier}
    argv = [program, *counts, *shows[program]]
    assert subprocess.run(argv, env=given, capture_output=True, text=True).stdout == "5\n"
    pod = {
        "metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": "1"}},
        "spec": third["spec"]["template"]["spec"],
    }
    assert number_of(pod, 0) == 5, "the status has the same number"


@pytest.mark.parametrize("policy", [RetryPolicy.ROLE, RetryPolicy.REPLICA])
def test_torchx_restarts_single_replica_beside_roles_that_restart_all(policy: RetryPolicy) -> None:
    """A Job would count its retries again after each restart of all."""
    alone = role("s", max_retries=2, retry_policy=policy)
    whole = role("r", max_retries=2)
    request = made(AppDef("a", [whole, alone]))
    assert request.manifests[-1]["spec"]["backoffLimitPerIndex"] == 0
    request = made(AppDef("a", [role("r"), alone]))
    assert request.manifests[-1]["spec"]["backoffLimitPerIndex"] == 2


@pytest.mark.parametrize("entrypoint", ["/bin/sh", "python"])
@pytest.mark.parametrize(
    ("kind", "kept"), [("job", True), ("job", False), ("jobset", True), ("volcano", True)]
)
def test_arguments_come_back_without_those_that_count_attempts(
    kind: str, kept: bool, entrypoint: str
) -> None:
    script = {"entrypoint": entrypoint, "args": ["-c", "echo $${TORCHX_ATTEMPT}"], "max_retries": 2}
    app = AppDef("a", [role("r", **script), role("s", args=["other"], max_retries=1)])
    request = made(app, kind)
    facts = facts_of(request)
    if not kept:
        del facts.mains[0]["metadata"]["annotations"][APP]
    # without a record they are those of the manifest, with macros filled in
    expected = [["-c", "echo $${TORCHX_ATTEMPT}" if kept else "echo ${TORCHX_ATTEMPT}"], ["other"]]
    assert [each.args for each in app_of(facts).roles] == expected


def test_arguments_of_version_0_1_0_are_read() -> None:
    counts = 'export TORCHX_ATTEMPT=$$(( ${TORCHX_RETRIES:-0} + 1 )); exec "$0" "$@"'
    assert own_arguments(["-c", counts, "sh", "-c", "true"]) == ["-c", "true"]
    assert own_arguments(["-c"]) == ["-c"]
