"""A dry run for Kubernetes, as people do it: no cluster, no package, and what comes can be handed on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import check
from program import torchx

SECRET = "s3cr3t\"'$(x) \n é"


@pytest.fixture
def component(tmp_path: Path) -> str:
    file = tmp_path / "comps.py"
    file.write_text(
        "import torchx.specs as specs\n\n\n"
        "def app(n: int = 2, roles: int = 1) -> specs.AppDef:\n"
        f"    env = {{'HF_TOKEN': {SECRET!r}, 'PASSWORD': '1'}}\n"
        "    return specs.AppDef('train', [\n"
        "        specs.Role(f'r{i}', 'img', entrypoint='train', env=dict(env), num_replicas=n,\n"
        "                   resource=specs.Resource(1, 0, 512)) for i in range(roles)])\n"
    )
    return f"{file}:app"


def dryrun(*words: str, **env: str) -> Any:
    # a cluster that is not there: nothing may ask it
    done = torchx("run", "-s", "kubernetes", "--dryrun", *words, env={"KUBECONFIG": "/nowhere", **env})
    assert done.returncode == 0, done.stderr
    return done


def test_yaml_is_what_kubectl_takes(component: str) -> None:
    done = dryrun("-o", "yaml", component, "--roles", "2", PYTHONIOENCODING="ascii")
    manifests = list(yaml.safe_load_all(done.stdout))
    check(manifests)
    assert [m["kind"] for m in manifests] == ["Service", "Service", "Job", "Job"]
    env = manifests[2]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "HF_TOKEN", "value": SECRET.replace("$(", "$$(")} in env
    assert "may contain secrets: HF_TOKEN, PASSWORD" in done.stderr
    assert "each role is a separate Job" in done.stderr


@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_what_people_read_holds_no_secret(component: str, form: list[str]) -> None:
    output = dryrun(*form, component).stdout
    assert "s3cr3t" not in output
    assert "********" in output
    assert "kind" in output
    if form:
        request = json.loads(output)["request"]
        assert (request["kind"], request["namespace"]) == ("job", "default")
        env = request["manifests"][2]["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {entry["name"]: entry.get("value") for entry in env}["PASSWORD"] == "********"


def test_workspace_comes_along_and_is_not_shown_at_length(component: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "noise").write_bytes(os.urandom(100_000))
    words = ("--workspace", str(project), component)
    manifests = list(yaml.safe_load_all(dryrun("-o", "yaml", *words).stdout))
    assert manifests[0]["kind"] == "ConfigMap"
    assert len(manifests[0]["binaryData"]["workspace.tar.gz"]) > 130_000
    result = dryrun(*words)
    assert "characters)" in result.stdout
    assert len(result.stdout) < 20_000
    assert "the workspace is sent in a ConfigMap (1 file," in result.stderr


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        ("kind=volcano", "volcano, which needs a queue"),
        ("kind=jbo", "did you mean `job`?"),
        ("quue=a", "did you mean `queue`?"),
    ],
)
def test_options_that_cannot_be_right_are_one_line(component: str, cfg: str, words: str) -> None:
    done = torchx("run", "-s", "kubernetes", "--dryrun", "-cfg", cfg, component)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_lists_and_mappings_come_from_the_command_line(component: str) -> None:
    cfg = (
        "namespace=team,labels=a:b;c:d,tolerations=spot:NoSchedule;team:a:NoExecute,ttl=60,"
        "node_selector=kubernetes.io/arch:arm64,image_pull_secrets=one;two,kind=jobset,grace_period=5"
    )
    *_, jobset = yaml.safe_load_all(dryrun("-o", "yaml", "-cfg", cfg, component).stdout)
    assert (jobset["kind"], jobset["metadata"]["namespace"]) == ("JobSet", "team")
    assert jobset["metadata"]["labels"].items() >= {"a": "b", "c": "d"}.items()
    assert jobset["spec"]["ttlSecondsAfterFinished"] == 60
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert [t["key"] for t in pod["tolerations"]] == ["spot", "team"]
    assert [s["name"] for s in pod["imagePullSecrets"]] == ["one", "two"]
    assert pod["terminationGracePeriodSeconds"] == 5
