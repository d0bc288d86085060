"""Manifests: failed replicas, notes, names and rejections."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from typing import Any

import pytest
import yaml
from manifests import EVERYTHING, check, facts_of, job_of, made, options, role
from project.sources import ROOT

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.application import app_of
from torchx.schedulers.kubernetes.checks import notes_of
from torchx.schedulers.kubernetes.names import APP, role_names
from torchx.schedulers.kubernetes.options import check_options
from torchx.schedulers.kubernetes.record import read_record
from torchx.schedulers.kubernetes.request import kind_of
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, VolumeMount
from torchx.specs.serialize import app_to_dict


@pytest.mark.parametrize(
    ("retries", "fail_fast", "expected"),
    [
        (0, True, {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0, "backoffLimit": 4}),
        (0, False, {"backoffLimitPerIndex": 0, "backoffLimit": 4}),
        (2, True, {"backoffLimitPerIndex": 2, "maxFailedIndexes": 0, "backoffLimit": 12}),
        (2, False, {"backoffLimitPerIndex": 2, "backoffLimit": 12}),
    ],
)
def test_what_a_job_does_when_a_replica_fails(
    retries: int, fail_fast: bool, expected: dict[str, Any]
) -> None:
    alone = role(num_replicas=4, max_retries=retries, retry_policy=RetryPolicy.REPLICA)
    spec = job_of(made(AppDef("a", [alone]), fail_fast=fail_fast))["spec"]
    found = {
        key: spec[key] for key in ("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes") if key in spec
    }
    assert found == expected
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_jobset_restarts_as_a_whole_or_ends() -> None:
    app = AppDef(
        "a",
        [
            role(num_replicas=2, max_retries=3),
            role("watch"),
            role("cache", max_retries=1, retry_policy=RetryPolicy.REPLICA),
        ],
    )
    spec = made(app, "jobset").manifests[-1]["spec"]
    assert spec["failurePolicy"] == {
        "maxRestarts": 3,
        "rules": [
            {
                "name": "disrupted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "targetReplicatedJobs": ["trainer"],
            },
            {"name": "final", "action": "FailJobSet", "targetReplicatedJobs": ["watch", "cache"]},
        ],
    }
    trainer, _, cache = (job["template"]["spec"] for job in spec["replicatedJobs"])
    assert trainer["backoffLimit"] == 0
    assert trainer["podFailurePolicy"]["rules"][0]["action"] == "FailJob", "an eviction starts all again"
    assert cache["backoffLimitPerIndex"] == 1


def test_volcano_restarts_and_gathers_as_requested() -> None:
    spec = made(EVERYTHING, "volcano").manifests[0]["spec"]
    assert spec["minAvailable"] == 3
    assert spec["maxRetry"] == 3
    assert {p["action"] for p in spec["tasks"][0]["policies"]} == {"RestartJob"}
    assert {p["action"] for p in spec["tasks"][4]["policies"]} == {"TerminateJob"}
    assert [task["name"] for task in spec["tasks"]] == [*(f"trainer-{n}" for n in range(4)), "reader-0"]


@pytest.mark.parametrize(
    ("app", "cfg", "kind", "words"),
    [
        (AppDef("a", [role(max_retries=1)]), {}, "job", ["also retries usage, import and syntax errors"]),
        (AppDef("a", [role(max_retries=1)]), {"no_retry_on": ["3"]}, "job", []),
        (AppDef("a", [role(max_retries=1)]), {"no_retry_on": ["none"]}, "job", []),
        (AppDef("a", [role(max_retries=1, num_replicas=2)]), {}, "job", []),
        (
            AppDef(
                "a",
                [
                    role(
                        max_retries=1,
                        num_replicas=2,
                        metadata={"x": random.Random(1).randbytes(300_000).hex()},
                    )
                ],
            ),
            {},
            "job",
            ["too large to be stored", "only the failed replica is restarted, not its peers"],
        ),
        (AppDef("a", [role(), role("b")]), {}, "job", ["a separate Job"]),
        (AppDef("a", [role(), role("b")]), {"fail_fast": False, "queue": "q"}, "job", ["Kueue admits each"]),
        (AppDef("a", [role(), role("b")]), {}, "jobset", []),
        (
            AppDef("a", [role(max_retries=1, retry_policy=RetryPolicy.ROLE), role("b")]),
            {},
            "jobset",
            ["restarts all roles"],
        ),
        (AppDef("a", [role(max_retries=1), role("b", max_retries=2)]), {}, "jobset", ["2 in total"]),
        (AppDef("a", [role(num_replicas=2, min_replicas=1)]), {}, "job", ["min_replicas"]),
        (AppDef("a", [role(num_replicas=2, min_replicas=1)]), {}, "volcano", []),
        (AppDef("a", [role(resource=Resource(1, 0, 1, devices={"odd": 1}))]), {}, "job", ["odd"]),
    ],
)
def test_requests_that_a_cluster_ignores_are_noted(
    app: AppDef, cfg: dict[str, Any], kind: str, words: list[str]
) -> None:
    notes = notes_of(app, options(**cfg), kind)
    assert len(notes) == len(words), notes
    for note, word in zip(notes, words, strict=True):
        assert word in note


def test_kind_is_as_requested_or_as_cluster_has() -> None:
    gang = AppDef("a", [role(num_replicas=2, max_retries=1)])
    alone = AppDef("a", [role(max_retries=1)])
    assert kind_of(gang, options()) == "job"
    assert kind_of(gang, options(), has_jobset=True) == "jobset"
    assert kind_of(alone, options(), has_jobset=True) == "job"
    assert kind_of(AppDef("a", [role(), role("b")]), options(), has_jobset=True) == "jobset"
    assert kind_of(gang, options(kind="job"), has_jobset=True) == "job"
    assert kind_of(alone, options(kind="volcano", queue="q")) == "volcano"


def test_kueue_is_addressed_by_its_label() -> None:
    for kind in ("job", "jobset"):
        manifest = made(EVERYTHING, kind, queue="team").manifests[-1]
        assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert manifest["spec"]["suspend"] is True


# --- names and the record ------------------------------------------------------------------------


def test_names_of_any_alphabet() -> None:
    app = AppDef("Größe 😀", [role("Lehrer Ü"), role("训练"), role("DATA_READER" * 20)])
    request = made(app)
    assert request.app_id.startswith("groe-")
    check(request.manifests)
    assert role_names("x", app.roles)[:2] == ["lehrer-u", "role-1"]
    assert made(AppDef("7" * 200, [role("r" * 200, num_replicas=10_000)]), "jobset").app_id.startswith(
        "app-777"
    )


def test_roles_that_would_be_one_are_refused() -> None:
    with pytest.raises(UsageError, match="`a__b` and `A-B` would both be named `a-b`"):
        made(AppDef("a", [role("a__b"), role("A-B")]))


TEXTS = [
    "${replica_id}",
    "a$$b",
    "$$$$(X)",
    "$(JOB_COMPLETION_INDEX)",
    "$app_id-${rank0_env}",
    "${x}$",
    "$$${img_root}",
]


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano"])
@pytest.mark.parametrize("text", TEXTS)
def test_arguments_and_variables_come_back_from_the_manifests(kind: str, text: str) -> None:
    """The record has none of them: they are read from the pod template, macros and all."""
    changes: dict[str, Any] = {"args": [text, "0", f"--x={text} {text}"], "env": {"B": text, "A": "1"}}
    app = AppDef("a", [role("r", **changes), role("s", args=["other"])])
    request = made(app, kind)
    answer = app_of(facts_of(request))
    assert [each.args for each in answer.roles] == [each.args for each in app.roles]
    assert [list(each.env.items()) for each in answer.roles] == [[("B", text), ("A", "1")], []]


def test_a_record_of_version_0_1_0_is_read() -> None:
    request = made(AppDef("a", [role(args=["x"], env={"A": "1"})]))
    app = AppDef("old", [role(args=["${app_id}"], env={"A": "$$1"})])
    record = {"schema": 1, "app": app_to_dict(app), "cfg": {"fail_fast": False}}
    job_of(request)["metadata"]["annotations"][APP] = json.dumps(record)
    facts = facts_of(request)
    assert app_of(facts) == app
    assert not facts.fails_fast


@pytest.mark.parametrize("size", [10, 300_000])
def test_the_record_loses_nothing(size: int) -> None:
    app = copy.deepcopy(EVERYTHING)
    app.roles[0].metadata["LONG"] = "é" * size
    request = made(app, quiet=True, kubeconfig="/home/me/.kube/config")
    job = job_of(request)
    record = read_record(job["metadata"]["annotations"][APP])
    assert app_of(facts_of(request)) == app
    assert record["cfg"]["quiet"] is True
    assert "kubeconfig" not in record["cfg"]
    assert APP not in job_of(request, 1)["metadata"].get("annotations", {})
    check(request.manifests, versions=("1.34.0",))


def test_application_too_long_for_record_is_noted_and_runs() -> None:
    app = AppDef("a", [role(metadata={"x": random.Random(1).randbytes(300_000).hex()})])
    assert any("describe" in note for note in notes_of(app, options(), "job"))
    assert APP not in job_of(made(app))["metadata"].get("annotations", {})


def test_surrogate_is_kept_in_names_and_rejected_elsewhere() -> None:
    app = AppDef("a\udc80", [role(metadata={"x": "\ud800"})])
    job = job_of(made(app))
    assert read_record(job["metadata"]["annotations"][APP])["app"]["name"] == "a\udc80"
    assert app_of(facts_of(made(app))) == app
    with pytest.raises(UsageError, match="not valid text"):
        made(AppDef("a", [role("r\udc80")]))


def test_an_application_without_roles_is_refused() -> None:
    with pytest.raises(UsageError, match="no roles"):
        made(AppDef("a", []))


def test_what_no_cluster_could_store_is_refused() -> None:
    with pytest.raises(UsageError, match="MB; the maximum for an object"):
        made(AppDef("a", [role(args=['"' * 100_000] * 10)]))
    with pytest.raises(UsageError, match="MB; the maximum for an object") as refused:
        made(AppDef("a", [role(num_replicas=2000)]), "volcano")
    assert "kind=job" in str(refused.value)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        ({"kind": "jbo"}, "did you mean `job`"),
        ({"kind": "volcano"}, "volcano, which needs a queue"),
        ({"image_pull_policy": "always"}, "did you mean `Always`"),
        ({"workspace_type": "zip"}, "workspace_type"),
        ({"grace_period": -1.0}, "expected a number from 0"),
        ({"ttl": -5}, "expected a number from 0"),
        ({"ttl": 2**31}, "expected a number from 0"),
        ({"grace_period": float("inf")}, "expected a number from 0"),
        ({"grace_period": float("nan")}, "expected a number from 0"),
        ({"namespace": "Team A"}, "`namespace`"),
        ({"service_account": "a b"}, "`service_account`"),
        ({"image_pull_secrets": ["ok", "not ok"]}, "`image_pull_secrets`"),
        ({"labels": {"a b": "c"}}, "`a b`"),
        ({"labels": {"a": "b c"}}, "not a valid label value"),
        ({"labels": {"torchx.pytorch.org/app-id": "x"}}, "reserved for the scheduler"),
        ({"annotations": {"": "x"}}, "annotations"),
        ({"node_selector": {"UPPER.com/x": "y"}}, "node_selector"),
        ({"queue": "a b"}, "queue"),
        ({"tolerations": ["a:b:c"]}, "not a taint"),
        ({"tolerations": [":NoSchedule"]}, "not a taint"),
        ({"tolerations": ["*:x"]}, "not a taint"),
    ],
)
def test_options_that_cannot_be_right_are_refused(cfg: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_options(options(**cfg))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": ""}, "no image"),
        ({"args": ["\ud800"]}, "not valid text"),
        ({"args": ["a\0b"]}, "not valid text"),
        ({"env": {"A=B": "x"}}, "not a valid name"),
        ({"env": {"É": "x"}}, "not a valid name"),
        ({"mounts": [BindMount("relative", "/a")]}, "absolute path"),
        ({"mounts": [BindMount("/a/../b", "/a")]}, "absolute path"),
        ({"mounts": [VolumeMount("pvc", "relative")]}, "absolute path"),
        ({"mounts": [VolumeMount("a", "/x"), VolumeMount("b", "/x")]}, "twice"),
    ],
)
def test_roles_that_cannot_be_right_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        made(AppDef("a", [role(**changes)]))
    assert words in str(refused.value)


def test_no_package_of_a_cluster_is_needed() -> None:
    code = (
        "import sys; sys.modules['kubernetes'] = None\n"
        "from torchx.schedulers.kubernetes.request import *\n"
        "from torchx.schedulers.kubernetes.options import run_options\n"
        "from torchx.specs import AppDef, Role\n"
        "r = to_request(AppDef('a', [Role('r', 'i', entrypoint='e')]), 'a-b', run_options().resolve({}))\n"
        "assert 'yaml' not in sys.modules\n"
        "print(as_text(r))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(list(yaml.safe_load_all(done.stdout))) == 3
