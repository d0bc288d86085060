"""Manifests in tests: made, and checked as a cluster would, by published schemas and by further rules."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import kubernetes_validate
import referencing
from kubernetes_validate.utils import schema_contents

from torchx.schedulers.kubernetes import checks as kubernetes_checks
from torchx.schedulers.kubernetes import request as kubernetes_request
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.manifests.workspace import WorkspacePlans
from torchx.schedulers.kubernetes.names import unique_name
from torchx.schedulers.kubernetes.options import check_options, run_options
from torchx.specs import AppDef, BindMount, DeviceMount, Resource, Role, VolumeMount

VERSIONS = ("1.29.0", "1.31.0", "1.33.0", "1.34.0", kubernetes_validate.latest_version())
"""Published schemas: from the oldest version in which each index of a Job has retries of its own."""
KINDS = ("job", "jobset", "volcano")

JOBSET = {
    "network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
    "failurePolicy": {"maxRestarts", "rules"},
    "replicatedJobs": {"name", "replicas", "template"},
    "suspend": None,
    "ttlSecondsAfterFinished": None,
}
VOLCANO = {
    "schedulerName": None,
    "queue": None,
    "minAvailable": None,
    "plugins": {"svc", "env"},
    "maxRetry": None,
    "ttlSecondsAfterFinished": None,
    "tasks": {"name", "replicas", "maxRetry", "policies", "template"},
}
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@functools.cache
def validator(kind: str, api: str, version: str) -> Any:
    """A strict validator: a field that the schema does not know is an error."""
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    schema = schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    definitions = referencing.Resource.from_contents(definitions_of(version))
    registry = definitions @ (referencing.Resource.from_contents(schema) @ referencing.Registry())
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


@functools.cache
def definitions_of(version: str) -> Any:
    return schema_contents(f"kubernetes-json-schema/v{version}-local-strict/_definitions.json", version)


def check(manifests: list[dict[str, Any]], versions: tuple[str, ...] = VERSIONS) -> None:
    """Fails when a cluster of any of these versions would refuse or warn of a manifest."""
    assert json.loads(json.dumps(manifests)) == manifests, "not plain data"
    for manifest in manifests:
        check_metadata(manifest["metadata"], LABEL)
        assert NAME.fullmatch(manifest["metadata"]["name"]), manifest["metadata"]["name"]
        assert len(manifest["metadata"]["name"]) <= 63
        for version in versions:
            check_schema(manifest, version)
    for template, hosts in pods(manifests):
        check_pod(template)
        for host in hosts:
            assert NAME.fullmatch(host), host
            assert len(host) <= 63, host


def check_schema(manifest: dict[str, Any], version: str) -> None:
    if manifest["apiVersion"].startswith("jobset."):
        assert_known(manifest["spec"], JOBSET)
        for replicated in manifest["spec"]["replicatedJobs"]:
            job = {"apiVersion": "batch/v1", "kind": "Job", **replicated["template"]}
            check_schema({**job, "metadata": {"name": "x", **job["metadata"]}}, version)
    elif manifest["apiVersion"].startswith("batch.volcano."):
        assert_known(manifest["spec"], VOLCANO)
        for task in manifest["spec"]["tasks"]:
            validate({"apiVersion": "v1", "kind": "Pod", **task["template"]}, version)
    else:
        validate(manifest, version)


def validate(manifest: dict[str, Any], version: str) -> None:
    errors = [
        f"{version}: {manifest['kind']}.{'.'.join(map(str, e.path))}: {e.message}"
        for e in validator(manifest["kind"], manifest["apiVersion"], version).iter_errors(manifest)
    ]
    assert not errors, errors


def assert_known(spec: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    assert set(spec) <= set(known), set(spec) - set(known)
    for name, value in spec.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                assert set(item) <= known[name], (name, set(item) - known[name])


def check_metadata(metadata: Mapping[str, Any], value: re.Pattern[str]) -> None:
    for label in metadata.get("labels", {}).values():
        assert value.fullmatch(label) and len(label) <= 63, label
    size = sum(len(k.encode()) + len(v.encode()) for k, v in metadata.get("annotations", {}).items())
    assert size <= 256 * 1024, size


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Every template of pods, with the first and the last host name of its pods."""
    for manifest in manifests:
        name, spec = manifest["metadata"]["name"], manifest.get("spec", {})
        if "replicatedJobs" in spec:
            for job in spec["replicatedJobs"]:
                inner = job["template"]["spec"]
                # the names of these pods have to fit too, with their random end
                ends = [f"{name}-{job['name']}-0-{i}-xxxxx" for i in (0, inner["completions"] - 1)]
                yield inner["template"], ends
        elif "tasks" in spec:
            for task in spec["tasks"]:
                yield task["template"], [f"{name}-{task['name']}-0"]
        elif manifest["kind"] == "Job":
            yield spec["template"], [f"{name}-{i}" for i in (0, spec["completions"] - 1)]


def check_pod(template: Mapping[str, Any]) -> None:
    """What the API server checks beyond the schema."""
    check_metadata(template["metadata"], LABEL)
    spec = template["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    assert len(volumes) == len(set(volumes))
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        names = [entry["name"] for entry in container["env"]]
        assert len(names) == len(set(names)), names
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(paths) == len(set(paths)), paths
        ports = [port.get("name", number) for number, port in enumerate(container.get("ports", []))]
        assert len(ports) == len(set(ports)), ports
        resources = container.get("resources", {})
        for name, requested in resources.get("requests", {}).items():
            assert amount(requested) <= amount(resources["limits"][name]), name
            assert amount(requested) > 0


def amount(text: str) -> int:
    return int(re.sub(r"\D", "", text))


def expanded(text: str, env: Mapping[str, str]) -> str:
    """What a container is handed for a word: the rules by which Kubernetes replaces variables."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out += text[at]
            at += 1
        elif text[at + 1] == "$":
            out += "$"
            at += 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out += env.get(name, f"$({name})")
            at = end + 1
        else:
            out += text[at : at + 2]
            at += 2
    return out


def environment(container: Mapping[str, Any], index: int, pod: str = "pod") -> dict[str, str]:
    """The environment of a container in the pod of an index: each value may name those before it."""
    env: dict[str, str] = {}
    for entry in container["env"]:
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found = str(index) if path and "completion-index" in path else f"<{path} of {pod}>"
        env[entry["name"]] = expanded(entry["value"], env) if "value" in entry else found
    return env


def run_as(template: Mapping[str, Any], index: int) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that a container is started with."""
    main = next(c for c in template["spec"]["containers"] if c["name"] == "main")
    env = environment(main, index)
    return [expanded(word, env) for word in [*main["command"], *main["args"]]], env


def options(**cfg: Any) -> dict[str, Any]:
    return run_options().resolve(cfg)


def made(
    app: AppDef, kind: str = "job", workspaces: WorkspacePlans | None = None, **cfg: Any
) -> kubernetes_request.KubernetesJob:
    resolved = options(**({"queue": "q"} if kind == "volcano" else {}), **cfg)
    check_options(resolved)
    kubernetes_checks.check(app)
    return kubernetes_request.to_request(app, unique_name(app), resolved, kind, workspaces)


def role(name: str = "trainer", **changes: Any) -> Role:
    given: dict[str, Any] = {"image": "img:1", "entrypoint": "train", "resource": Resource(4, 0, 8192)}
    return Role(name, **{**given, **changes})


def facts_of(request: kubernetes_request.KubernetesJob) -> Facts:
    """The objects of a request as a cluster would hand them out, before any pod is there."""
    mains = [m for m in copy.deepcopy(request.manifests) if m["kind"] in ("Job", "JobSet")]
    found = [each for main in mains if (each := shaped(main)) is not None]
    jobs = found if request.kind == "job" else []
    return Facts(request.namespace, request.app_id, request.kind, found, jobs, [])


def job_of(request: kubernetes_request.KubernetesJob, number: int = 0) -> dict[str, Any]:
    return [m for m in request.manifests if m["kind"] == "Job"][number]


def main_of(request: kubernetes_request.KubernetesJob, number: int = 0) -> dict[str, Any]:
    template = [template for template, _ in pods(request.manifests)][number]
    return template["spec"]["containers"][0]


EVERYTHING = AppDef(
    "Training run",
    [
        role(
            args=["--id", "${app_id}", "${replica_id}"],
            env={"IP": "[FIELD_PATH]status.podIP", "WHO": "$${${rank0_env}}"},
            num_replicas=4,
            min_replicas=2,
            max_retries=2,
            resource=Resource(
                96,
                8,
                1_152_000,
                {"node.kubernetes.io/instance-type": "p4d.24xlarge"},
                {"vpc.amazonaws.com/efa": 4},
            ),
            port_map={"c10d": 29500, "Web UI": 8080},
            mounts=[
                BindMount("/a", "/b"),
                VolumeMount("pvc", "/c", True),
                DeviceMount("/dev/fuse", "/dev/fuse"),
            ],
        ),
        role("reader", resource=Resource(1, 0, 512)),
    ],
    metadata={"team": "a"},
)
