"""Overlays on manifests: what users may lay over them, and what stays the scheduler's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from manifests import check, job_of, made, main_of, options, pods, role, run_as

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.checks import notes_of, process_notes
from torchx.schedulers.kubernetes.request import templates_of
from torchx.specs import AppDef, BindMount
from torchx.specs.overlays import DEL, JOIN, PUT, set_overlay


def app_with(overlay: dict[str, Any], kind: str = "V1Pod", **changes: Any) -> AppDef:
    app = AppDef("a", [role(**changes)])
    set_overlay(app.roles[0], "kubernetes", kind, overlay)
    return app


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano"])
def test_a_pod_takes_what_roles_have_no_field_for(kind: str) -> None:
    overlay = {
        "metadata": {"annotations": {"example.com/a": "b"}},
        "spec": {
            "hostNetwork": True,
            "nodeSelector": {"zone": "a"},
            JOIN("containers", on="name"): [
                {"name": "main", "workingDir": "/app", "securityContext": {"runAsUser": 1000}}
            ],
            "initContainers": [
                {"name": "log", "image": "busybox", "restartPolicy": "Always", "env": [], "volumeMounts": []}
            ],
            DEL("terminationGracePeriodSeconds"): None,
        },
    }
    request = made(app_with(overlay), kind)
    ((template, _),) = pods(request.manifests)
    assert template["spec"]["hostNetwork"] is True
    assert template["spec"]["containers"][0]["workingDir"] == "/app"
    assert template["spec"]["containers"][0]["image"] == "img:1"
    assert "terminationGracePeriodSeconds" not in template["spec"]
    assert template["metadata"]["annotations"]["example.com/a"] == "b"
    check(request.manifests)


def test_older_files_write_the_overlay_straight_into_the_metadata() -> None:
    app = AppDef("a", [role(metadata={"kubernetes": {"spec": {"dnsPolicy": "None"}}})])
    assert job_of(made(app))["spec"]["template"]["spec"]["dnsPolicy"] == "None"


def test_an_overlay_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "V1Pod:\n  spec:\n    runtimeClassName: gvisor\nV1Job:\n  spec:\n    activeDeadlineSeconds: 60\n"
    )
    job = job_of(made(AppDef("a", [role(metadata={"kubernetes": str(file)})])))
    assert job["spec"]["template"]["spec"]["runtimeClassName"] == "gvisor"
    assert job["spec"]["activeDeadlineSeconds"] == 60


def test_overlay_of_application_precedes_that_of_role() -> None:
    app = AppDef("a", [role(), role("b")])
    set_overlay(app, "kubernetes", "V1Pod", {"spec": {"schedulerName": "all", "hostIPC": True}})
    set_overlay(app.roles[1], "kubernetes", "V1Pod", {"spec": {"schedulerName": "b"}})
    specs = [template["spec"] for template, _ in pods(made(app).manifests)]
    assert [spec["schedulerName"] for spec in specs] == ["all", "b"]
    assert all(spec["hostIPC"] for spec in specs)


def test_macros_are_filled_in() -> None:
    overlay = {"spec": {"volumes": [{"name": "own", "hostPath": {"path": "/scratch/${app_id}"}}]}}
    request = made(app_with(overlay))
    volume = job_of(request)["spec"]["template"]["spec"]["volumes"][-1]
    assert volume["hostPath"]["path"] == f"/scratch/default:{request.app_id}"


def test_further_variables_stand_beside_the_scheduler_s_own() -> None:
    extra = {
        "name": "main",
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    }
    with pytest.raises(UsageError, match=r"JOIN\(\"env\", on=\"name\"\) within"):
        made(app_with({"spec": {JOIN("containers", on="name"): [extra]}}))
    more = {"name": "main", JOIN("env", on="name"): extra["env"]}
    request = made(app_with({"spec": {JOIN("containers", on="name"): [more]}}))
    assert run_as(job_of(request)["spec"]["template"], 0)[1]["NODE"].startswith("<spec.nodeName")


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_job_takes_its_own(kind: str) -> None:
    overlay = {
        "spec": {"activeDeadlineSeconds": 60, PUT("backoffLimit"): 9},
        "metadata": {"labels": {"a": "b"}},
    }
    request = made(app_with(overlay, "V1Job"), kind)
    check(request.manifests)
    last = request.manifests[-1]
    job = last if kind == "job" else last["spec"]["replicatedJobs"][0]["template"]
    assert job["spec"]["activeDeadlineSeconds"] == 60
    assert job["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize(("kind", "overlay"), [("jobset", "JobSet"), ("volcano", "VolcanoJob")])
def test_the_one_object_of_an_application_takes_its_own(kind: str, overlay: str) -> None:
    app = AppDef("a", [role()])
    set_overlay(app, "kubernetes", overlay, {"spec": {"ttlSecondsAfterFinished": 5}})
    assert made(app, kind).manifests[-1]["spec"]["ttlSecondsAfterFinished"] == 5


@pytest.mark.parametrize(
    ("kind", "overlay", "words"),
    [
        ("V1Pod", {"kind": "Pod"}, "`V1Pod.kind`"),
        ("V1Pod", {"spec": {"restartPolicy": "Always"}}, "`spec.restartPolicy`"),
        ("V1Pod", {"spec": {"subdomain": "x"}}, "`spec.subdomain`"),
        ("V1Pod", {"spec": {PUT("containers"): []}}, "`spec.containers.main."),
        ("V1Pod", {"spec": {"containers": [{"name": "main"}]}}, "`spec.containers.main."),
        ("V1Pod", {"spec": {JOIN("containers", on="name"): [{"name": "main", "image": "x"}]}}, "main.image"),
        ("V1Pod", {PUT("spec"): {}}, "`spec.restartPolicy`"),
        ("V1Pod", {DEL("metadata"): None}, "metadata.labels"),
        ("V1Pod", {"metadata": {"labels": {"torchx.pytorch.org/app-id": "x"}}}, "metadata.labels"),
        ("V1Pod", {"spec": []}, "`spec`"),
        ("V1Pod", {"sepc": {}}, "did you mean `spec`?"),
        ("V1Pod", {"spec": {"nodeName": {1, 2}}}, "cannot be written as JSON"),
        ("V1Pod", {"spec": {"nodeName": "\ud800"}}, "cannot be written as JSON"),
        ("V1Job", {"spec": {"parallelism": 1}}, "`spec.parallelism`"),
        ("V1Job", {"spec": {"template": {"spec": {"x": 1}}}}, "`spec.template`"),
        ("V1Job", {"metadata": {"name": "x"}}, "`metadata.name`"),
        ("V1Job", {"apiVersion": "x"}, "`V1Job.apiVersion`"),
    ],
)
def test_what_is_the_scheduler_s_stays_so(kind: str, overlay: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        made(app_with(overlay, kind, num_replicas=2))
    assert words in str(refused.value)


MAIN = {"name": "main"}
NEW = JOIN("containers", on="name")
DROPPING = {
    "mounts of the container": ({NEW: [{**MAIN, "volumeMounts": []}]}, "/dev/shm"),
    "a list in place of another": (
        {NEW: [{**MAIN, PUT("volumeMounts"): []}]},
        "/dev/shm",
    ),
    "volumes": ({PUT("volumes"): []}, "/dev/shm"),
    "all volumes": ({DEL("volumes"): None}, "/dev/shm"),
    "another volume of the name": (
        {JOIN("volumes", on="name"): [{"name": "mount-0", "emptyDir": {}}]},
        "/data",
    ),
}


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano"])
@pytest.mark.parametrize(("spec", "path"), DROPPING.values(), ids=DROPPING)
def test_a_mount_that_an_overlay_would_drop_is_named(kind: str, spec: dict[str, Any], path: str) -> None:
    app = app_with({"spec": spec}, mounts=[BindMount("/a", "/data")])
    with pytest.raises(
        UsageError, match="overlay V1Pod of `trainer` removes or changes the mount"
    ) as refused:
        made(app, kind)
    assert f"at `{path}` in the container main" in refused.value.message
    assert 'JOIN("volumeMounts", on="mountPath")' in str(refused.value.hint)


def test_mounts_may_be_added_and_shared_memory_replaced() -> None:
    mounts = [{"name": "x", "mountPath": "/x"}, {"name": "x", "mountPath": "/dev/shm"}]
    main = {**MAIN, JOIN("volumeMounts", on="mountPath"): mounts}
    overlay = {"spec": {JOIN("containers", on="name"): [main], "volumes": [{"name": "x", "emptyDir": {}}]}}
    found = main_of(made(app_with(overlay)))["volumeMounts"]
    assert found == [{"name": "x", "mountPath": "/dev/shm"}, {"name": "x", "mountPath": "/x"}]


SIDECAR = {"name": "log", "image": "busybox", "env": [], "volumeMounts": []}


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano"])
def test_only_a_lone_program_shares_its_processes(kind: str) -> None:
    """As process 1 it would not hear TERM; other containers could look into it."""

    def shared(spec: dict[str, Any]) -> Any:
        request = made(app_with({"spec": spec}), kind)
        (template, *_) = (template for template, _ in pods(request.manifests))
        result = process_notes(AppDef("a", [role()]), templates_of(request))
        alone = template["spec"].get("shareProcessNamespace")
        assert bool(result) is not bool(alone), "where it is off, the dry run says what that means"
        return alone

    assert shared({"hostNetwork": True}) is True
    assert shared({"containers": [SIDECAR]}) is None
    assert shared({"initContainers": [{**SIDECAR, "restartPolicy": "Always"}]}) is None
    assert shared({"initContainers": [SIDECAR]}) is True, "it has ended when the program starts"
    assert shared({"containers": [SIDECAR], "shareProcessNamespace": True}) is True


ALIASES = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
COUNTED = "counting expanded aliases"
BOMBS = {
    "aliases": (ALIASES, COUNTED),
    "merges": (
        "a: &a {x: 1}\n" + "b: &b {<<: [" + "*a, " * 99_000 + "*a]}\n",
        COUNTED,
    ),
    "depth": ("a: " + "{b: " * 300 + "1" + "}" * 300, "nested more than 100 levels deep"),
    "lists": ("[" * 100_000, "nested more than 100 levels deep"),
    "size": ("a: " + "x" * 2_000_000, "more than 1,048,576 characters"),
    "itself": ("spec: &s\n  a: [*s]\n", "contains itself"),
}


@pytest.mark.parametrize(("text", "expected"), BOMBS.values(), ids=BOMBS)
def test_a_file_that_would_take_much_memory_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=expected) as refused:
        made(AppDef("a", [role(metadata={"kubernetes": str(file)})]))
    assert str(file) in refused.value.message
    assert len(refused.value.message) < 300


def test_an_application_is_left_as_it_is() -> None:
    overlay = {"spec": {JOIN("containers", on="name"): [{"name": "main", "workingDir": "/${app_id}"}]}}
    app = app_with(overlay)
    before = repr(app)
    assert main_of(made(app))["workingDir"].startswith("/default:")
    assert repr(app) == before


def test_overlays_by_kind_are_not_a_pods_overlay() -> None:
    """A component may write them without set_overlay."""
    app = AppDef("a", [role(metadata={"kubernetes": {"V1Job": {"spec": {"activeDeadlineSeconds": 9}}}})])
    spec = job_of(made(app))["spec"]
    assert spec["activeDeadlineSeconds"] == 9
    assert set(spec["template"]) == {"metadata", "spec"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("job", ["JobSet"]), ("jobset", []), ("volcano", ["JobSet", "V1Job"])],
)
def test_an_overlay_without_a_place_is_reported(kind: str, expected: list[str]) -> None:
    app = app_with({"spec": {"activeDeadlineSeconds": 9}}, "V1Job")
    set_overlay(app, "kubernetes", "JobSet", {"spec": {"ttlSecondsAfterFinished": 5}})
    notes = notes_of(app, options(queue="q"), kind)
    assert [note.split()[2] for note in notes if "is ignored" in note] == expected
