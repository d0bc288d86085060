"""Manifests: what clusters of several versions take, whatever the application; made without any cluster."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifests import EVERYTHING, KINDS, check, expanded, job_of, made, main_of, options, pods, role, run_as

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.checks import check as refuse
from torchx.schedulers.kubernetes.checks import notes_of
from torchx.schedulers.kubernetes.manifests.escaping import MacroFiller, escaped
from torchx.schedulers.kubernetes.names import unique_name
from torchx.schedulers.kubernetes.options import check_options
from torchx.schedulers.kubernetes.request import as_text, dump, to_request
from torchx.specs import AppDef, BindMount, DeviceMount, Resource, RetryPolicy, Role, VolumeMount

# --- any application -----------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
words = texts | st.text("$({)} aA_1\n'\"", max_size=12) | st.sampled_from(["1e3", "y", "0o17", "", "null"])
names = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=80)
variables = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
mounts = st.lists(
    st.one_of(
        st.builds(BindMount, st.just("/host"), st.from_regex(r"/m[a-z]{1,8}", fullmatch=True), st.booleans()),
        st.builds(VolumeMount, st.just("claim"), st.from_regex(r"/v[a-z]{1,8}", fullmatch=True)),
        st.builds(DeviceMount, st.just("/dev/fuse"), st.from_regex(r"/d[a-z]{1,8}", fullmatch=True)),
    ),
    max_size=3,
    unique_by=lambda mount: mount.dst_path,
)
resources = st.builds(
    Resource,
    cpu=st.integers(-1, 200),
    gpu=st.integers(-1, 8),
    memMB=st.integers(-1, 4_000_000),
    capabilities=st.just({}) | st.just({"node.kubernetes.io/instance-type": "p5.48xlarge"}),
    devices=st.dictionaries(st.sampled_from(["vpc.amazonaws.com/efa", "x"]), st.integers(0, 9), max_size=2),
)
roles = st.builds(
    Role,
    name=names,
    image=st.just("registry/img:1"),
    entrypoint=words.filter(bool),
    args=st.lists(words, max_size=4),
    env=st.dictionaries(variables, words, max_size=4),
    num_replicas=st.integers(1, 12),
    max_retries=st.integers(0, 3),
    retry_policy=st.sampled_from(RetryPolicy),
    resource=resources,
    port_map=st.dictionaries(names, st.integers(1, 65535), max_size=3),
    mounts=mounts,
)
apps = st.builds(AppDef, name=names, roles=st.lists(roles, min_size=1, max_size=3))
choices = st.fixed_dictionaries(
    {
        "fail_fast": st.booleans(),
        "ttl": st.none() | st.integers(0, 10_000),
        "grace_period": st.floats(0, 500),
        "labels": st.just({}) | st.just({"team": "a"}),
        "annotations": st.just({}) | st.just({"example.com/why": "é y: 1"}),
        "tolerations": st.just([]) | st.just(["gpu:NoSchedule", "*", "team:a:NoExecute"]),
        "node_selector": st.just({}) | st.just({"kubernetes.io/arch": "arm64"}),
        "image_pull_secrets": st.just([]) | st.just(["one", "two"]),
        "image_pull_policy": st.none() | st.just("Always"),
        "service_account": st.none() | st.just("me"),
        "priority_class": st.none() | st.just("high"),
        "efa_device_count": st.none() | st.integers(0, 4),
        "queue": st.none() | st.just("main"),
    }
)


@pytest.mark.parametrize("end", ["\n\x85", "a\n\x85b", "a\n\u2028b\n", "\u2029\n"])
def test_rare_line_ends_stay_as_they_are(end: str) -> None:
    assert yaml.safe_load(dump([{"args": [end]}])) == {"args": [end]}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(app=apps, cfg=choices)
def test_clusters_take_what_is_made_of_any_application(kind: str, app: AppDef, cfg: dict[str, Any]) -> None:
    cfg = options(**{**cfg, **({"queue": "q"} if kind == "volcano" else {})})
    before = copy.deepcopy((app, cfg))
    check_options(cfg)
    refuse(app)
    name = unique_name(app)
    try:
        request = to_request(app, name, cfg, kind)
    except UsageError as error:
        assert "would both be named" in str(error) or len({r.name for r in app.roles}) < len(app.roles)
        return
    assert (app, cfg) == before
    check(request.manifests, versions=("1.29.0", "1.37.0"))
    assert list(yaml.safe_load_all(as_text(request))) == request.manifests
    assert to_request(app, name, cfg, kind) == request, "not a pure function"
    notes_of(app, cfg, kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(args=st.lists(words, max_size=4), env=st.dictionaries(variables, words, max_size=4))
def test_words_arrive_as_they_are(kind: str, args: list[str], env: dict[str, str]) -> None:
    """Unless they hold macros, in which two dollar signs stand for one."""
    plain = [word.replace("$", "$$") for word in args]
    app = AppDef("a", [role(entrypoint="$(run) $$", args=plain, num_replicas=2)])
    app.roles[0].env = {key: value.replace("$", "$$") for key, value in env.items()}
    templates = [template for template, _ in pods(made(app, kind).manifests)]
    command, found = run_as(templates[0], 0)
    assert command == ["$(run) $$", *args]
    own = ("JOB_COMPLETION_INDEX", "TORCHX_RANK0_HOST", "TORCHX_IMAGE", "TORCHX_REPLICA")
    assert {key: found[key] for key in env if key not in own} == {
        key: value for key, value in env.items() if key not in own
    }


@given(text=words, value=words)
def test_a_word_is_escaped_as_much_as_it_needs(text: str, value: str) -> None:
    assert expanded(escaped(text), {"A": value}) == text
    assert expanded(MacroFiller("x", None).fill(text.replace("$", "$$") + "${replica_id}"), {
        "JOB_COMPLETION_INDEX": "7"
    }) == text + "7"  # fmt: skip


@settings(max_examples=200)
@given(value=words)
def test_other_readers_of_yaml_see_the_same_texts(value: str) -> None:
    """To some of them `1e3`, `y` and `0o17` are no texts: only what cannot be mistaken stands unquoted."""
    text = dump([{"key": value, "list": [value]}])
    assert list(yaml.safe_load_all(text)) == [{"key": value, "list": [value]}]
    for event in yaml.parse(text):
        if isinstance(event, yaml.ScalarEvent) and event.style is None:
            assert event.value[:1].isalpha() or event.value[:1] in "/$"
            assert event.value.lower() not in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


# --- what it becomes -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", RetryPolicy)
@pytest.mark.parametrize("queue", [None, "team-queue"])
def test_every_version_takes_an_application_with_everything(
    kind: str, policy: RetryPolicy, queue: str | None
) -> None:
    app = replace(EVERYTHING, roles=[replace(r, retry_policy=policy) for r in EVERYTHING.roles])
    request = made(app, kind, **({"queue": queue} if kind != "volcano" else {}), ttl=60, labels={"a": "b"})
    check(request.manifests)


def test_each_role_is_indexed_job_with_named_pods() -> None:
    request = made(EVERYTHING)
    app_id = request.app_id
    kinds = [(m["kind"], m["metadata"]["name"]) for m in request.manifests]
    assert kinds == [
        ("Service", app_id),
        ("Service", f"{app_id}-trainer-0"),
        ("Job", f"{app_id}-trainer"),
        ("Job", f"{app_id}-reader"),
    ]
    spec = job_of(request)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert spec["template"]["spec"]["subdomain"] == app_id
    service = request.manifests[0]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"].items() <= spec["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("kind", KINDS)
def test_rank_0_is_found_by_all_and_by_itself(kind: str) -> None:
    """A name that a service resolves; on rank 0 it is the very name of the host."""
    request = made(EVERYTHING, kind)
    templates = list(pods(request.manifests))
    _, env = run_as(templates[0][0], 0)
    own = templates[0][1][0].removesuffix("-xxxxx")
    assert env["TORCHX_RANK0_HOST"] == own
    _, others = run_as(templates[-1][0], 0)
    if kind == "volcano":  # whose service has the name of the job, and whose pods are named within it
        assert others["TORCHX_RANK0_HOST"] == f"{own}.{request.app_id}"
        return
    assert others["TORCHX_RANK0_HOST"] == own
    (service,) = [m for m in request.manifests if m["metadata"]["name"] == own]
    labels = {**templates[0][0]["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": "0"}
    assert service["spec"]["selector"].items() <= labels.items()
    second = {**templates[-1][0]["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": "0"}
    assert not service["spec"]["selector"].items() <= second.items()


@pytest.mark.parametrize("kind", KINDS)
def test_macros_and_the_environment_of_each_replica(kind: str) -> None:
    request = made(EVERYTHING, kind, namespace="team")
    templates = [template for template, _ in pods(request.manifests)]
    for index in (0, 3):
        template = templates[index] if kind == "volcano" else templates[0]
        command, env = run_as(template, index)
        assert command == ["train", "--id", f"team:{request.app_id}", str(index)]
        assert env["TORCHX_REPLICA"] == f"trainer/{index}"
        assert env["WHO"] == "${TORCHX_RANK0_HOST}"
        assert env["IP"].startswith("<status.podIP")
        assert (env["TORCHX_PORT_C10D"], env["TORCHX_PORT_WEB_UI"]) == ("29500", "8080")
        assert env["TORCHX_IMAGE"] == "img:1"


def test_10000_replicas_are_as_long_as_one() -> None:
    one, many = (as_text(made(AppDef("a", [role(num_replicas=n)]))) for n in (1, 10_000))
    assert len(many) - len(one) < 40


def test_resources_and_where_pods_run() -> None:
    container = main_of(made(EVERYTHING, efa_device_count=2))
    assert container["resources"]["limits"] == {
        "cpu": "96000m",
        "memory": "1152000Mi",
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "2",
    }
    assert container["resources"]["requests"] == {
        "cpu": "95900m",
        "memory": "1150976Mi",
        "nvidia.com/gpu": "8",
        "vpc.amazonaws.com/efa": "2",
    }
    spec = job_of(made(EVERYTHING, node_selector={"a": "b"}, tolerations=["spot:NoSchedule"]))["spec"][
        "template"
    ]["spec"]
    assert spec["nodeSelector"] == {"node.kubernetes.io/instance-type": "p4d.24xlarge", "a": "b"}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]


def test_small_replica_still_asks_for_half_of_its_limit() -> None:
    container = main_of(made(AppDef("a", [role(resource=Resource(1, 0, 512))]), reserved_millicpu=800))
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "256Mi"}


def test_no_devices_where_none_are_wanted() -> None:
    assert "vpc.amazonaws.com/efa" not in main_of(made(EVERYTHING, efa_device_count=0))["resources"]["limits"]
    assert main_of(made(AppDef("a", [role(resource=Resource(-1, -1, -1))])))["resources"] == {}


def test_mounts() -> None:
    request = made(EVERYTHING)
    container, spec = main_of(request), job_of(request)["spec"]["template"]["spec"]
    assert [list(volume)[1] for volume in spec["volumes"]] == [
        "emptyDir",
        "hostPath",
        "persistentVolumeClaim",
        "hostPath",
    ]
    assert container["volumeMounts"][2] == {"name": "mount-1", "mountPath": "/c", "readOnly": True}
    assert container["securityContext"] == {"privileged": True}
    assert any("privileged" in note for note in notes_of(EVERYTHING, options(), "job"))
    own = made(AppDef("a", [role(mounts=[VolumeMount("pvc", "/dev/shm")])]))
    assert [mount["mountPath"] for mount in main_of(own)["volumeMounts"]] == ["/dev/shm"]
