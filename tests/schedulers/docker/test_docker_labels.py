"""What is read of containers that anyone may have made: any labels, any answers, never an error."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.machine.files import make_folder, write_file
from torchx.schedulers.docker import status as docker_status
from torchx.schedulers.docker.containers import Container, read
from torchx.schedulers.docker.engine.address import parse_address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.labels import APP_ID, ATTEMPT, JOB, REPLICA, RETRY, ROLE, USER
from torchx.schedulers.docker.lookup import consistent
from torchx.schedulers.docker.record import forget_old, job_data, label_data, load_data, restored, spans_of
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.docker.status import describe, describe_all
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.listing import row_of
from torchx.specs.app import AppDef, Role
from torchx.specs.macro import macros
from torchx.specs.serialize import app_from_dict
from torchx.specs.status import AppState

APP = AppDef("train", [Role("w", "img", entrypoint="sh", args=["-c", "x"], env={"A": "1"}, num_replicas=2)])
DATA = job_data(APP, {"grace_period": 1.0, "env": {"B": "2"}}, "torchx")
LABELS = {APP_ID: "train-b1", ROLE: "w", REPLICA: "0", USER: "ann", JOB: json.dumps(label_data(DATA))}
INSPECTED: dict[str, Any] = {
    "Id": "0123456789abcdef" * 4,
    "Name": "/train-b1-w-0",
    "Created": "2026-01-01T00:00:00.5Z",
    "RestartCount": 0,
    "Image": "sha256:1",
    "Config": {
        "Labels": LABELS,
        "Image": "img",
        "Hostname": "train-b1-w-0",
        "Cmd": ["sh", "-c", "x"],
        "Env": ["A=1"],
    },
    "State": {
        "Status": "exited",
        "ExitCode": 0,
        "StartedAt": "2026-01-01T00:00:01Z",
        "FinishedAt": "2026-01-01T00:00:02Z",
    },
    "HostConfig": {"RestartPolicy": {"MaximumRetryCount": 0}, "DeviceRequests": [{"DeviceIDs": ["GPU-1"]}]},
}


def inspected(**labels: Any) -> dict[str, Any]:
    """What an engine says of a container, with other labels; None takes one away."""
    names = {"app": APP_ID, "role": ROLE, "replica": REPLICA, "attempt": ATTEMPT, "retry": RETRY, "job": JOB}
    found = copy.deepcopy(INSPECTED)
    for short, value in labels.items():
        if value is None:
            del found["Config"]["Labels"][names[short]]
        else:
            found["Config"]["Labels"][names[short]] = value
    if labels.get("replica", "0").isascii():
        found["Config"]["Hostname"] = f"train-b1-w-{labels.get('replica', 0)}"
    return found


def container(data: Any) -> Container:
    found = read(data)
    assert found is not None
    return found


def job(**changes: Any) -> str:
    return json.dumps({**label_data(DATA), **changes})


def role(**changes: Any) -> str:
    (first,) = label_data(DATA)["app"]["roles"]
    return job(app={"name": "train", "roles": [{**first, **changes}]})


@pytest.mark.parametrize(("user", "own"), [("me", True), ("mallory", False), ("", False)])
def test_a_listing_marks_the_applications_of_the_caller(
    user: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(container(INSPECTED), user=user)
    monkeypatch.setattr(docker_status, "find_containers", lambda engine, **options: {"train-b1": [found]})
    monkeypatch.setattr(owner, "user_name", lambda: "me")
    (row,) = docker_status.list_apps(Engine(parse_address("unix:///no-engine")))
    assert (row.app_id, row.is_own) == ("train-b1", own)


def test_a_sound_container_is_read() -> None:
    found = container(INSPECTED)
    assert (found.damage, found.user, found.exit_code, found.gpus) == ("", "ann", 0, ("GPU-1",))
    assert found.command == ("sh", "-c", "x")


DAMAGE: dict[str, tuple[dict[str, Any], str]] = {
    "no role": ({"role": None}, "it has no label role-name"),
    "a role with a line break": ({"role": "a\nb"}, "label role-name has characters"),
    "a role that turns text": ({"role": "a\u202eb"}, "label role-name has characters"),
    "a replica that is no number": ({"replica": "²"}, "label replica-id is not a number"),
    "a replica that is too large": ({"replica": "999999999"}, "label replica-id is not a number"),
    "an attempt below all": ({"attempt": "-1"}, "label attempt is not a number"),
    "an attempt of many digits": ({"attempt": "9" * 5000}, "label attempt is not a number"),
    "retry is a list": ({"retry": "[]"}, "label retry is not a JSON object"),
    "retries of texts": ({"retry": '{"attempts": ["x"], "used": {}}'}, "label retry is damaged"),
    "retries of retries": ({"retry": '{"used": {"a": {}}}'}, "label retry is damaged"),
    "no JSON": ({"job": "{"}, "label job is not JSON"),
    "a list": ({"job": "[1]"}, "label job is not a JSON object"),
    "nested JSON": ({"job": "[" * 100_000}, "label job is not JSON"),
    "nested in a value": ({"job": '{"schema":2,"x":' + "[" * 300 + "]" * 300 + "}"}, "nested too deeply"),
    "a long number": ({"job": '{"schema": ' + "9" * 100_000 + "}"}, "label job is not JSON"),
    "no number": ({"job": '{"schema": NaN}'}, "label job is not JSON"),
    "too large": ({"job": " " * (9 << 20)}, "label job is too large"),
    "no schema": ({"job": "{}"}, "has no schema"),
    "a newer schema": ({"job": job(schema=7)}, "made by a newer version (schema 7, known: 2)"),
    "no application": ({"job": '{"schema": 2}'}, "`app` is missing"),
    "an application that is a text": ({"job": job(app="x")}, "`app` takes an object, got a string"),
    "roles by name": ({"job": job(app={"roles": {"w": 1}})}, "`app.roles` takes a list"),
    "a role that is a text": ({"job": job(app={"roles": ["w"]})}, "`app.roles[0]` takes an object"),
    "a count that is a text": ({"job": role(num_replicas="2")}, "`app.roles[0].num_replicas` takes"),
    "a count below zero": ({"job": role(num_replicas=-1)}, "`num_replicas` of roles[0]"),
    "too many replicas": ({"job": role(num_replicas=10**6)}, "more than 100000 replicas"),
    "retries without end": ({"job": role(max_retries=1e300)}, "`app.roles[0].max_retries` takes"),
    "another policy": ({"job": role(retry_policy=["x"])}, "`app.roles[0].retry_policy` takes"),
    "a name that is a list": ({"job": role(name=["x"])}, "`app.roles[0].name` takes"),
    "an unknown policy": ({"job": role(retry_policy="x")}, "`retry_policy` of roles[0] is invalid"),
    "an endless resource": ({"job": role(resource={"cpu": 1e999, "gpu": 0, "memMB": 1})}, "not JSON"),
    "a resource without memory": ({"job": role(resource={"cpu": 1, "gpu": 0})}, "memMB` is missing"),
    "arguments that are a text": ({"job": role(args="x")}, "`app.roles[0].args` takes"),
    "a session with a line break": ({"job": job(session="a\nb")}, "`session` of job"),
    "a time out of range": ({"job": job(submitted_at=1e18)}, "`submitted_at`"),
    "a time that is a text": ({"job": job(submitted_at="now")}, "`submitted_at` takes"),
    "a grace without end": ({"job": job(cfg={"grace_period": 1e308})}, "`cfg` of job"),
    "options that are a list": ({"job": job(cfg=[])}, "`cfg` takes an object or null"),
    "an id with a path": ({"app": "../../x"}, "label app-id is not an id"),
    "an id with a line break": ({"app": "a\nb"}, "label app-id is not an id"),
    "an empty id": ({"app": ""}, "label app-id is not an id"),
}


@pytest.mark.parametrize(("labels", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_label_is_a_reason_and_no_error(labels: dict[str, Any], reason: str) -> None:
    found = container(inspected(**labels))
    assert reason in found.damage
    answer = describe_all([found])
    assert (answer.state, answer.msg) == (AppState.UNKNOWN, found.damage)
    assert row_of(describe([found])).state is AppState.UNKNOWN
    assert is_under_way([found]) is False
    usable = "app" not in labels
    assert found.app_id == ("train-b1" if usable else "damaged-0123456789ab")


def test_a_lone_surrogate_is_replaced() -> None:
    text = job().replace('"name": "train"', r'"name": "\udc80"')
    answer = describe_all([container(inspected(job=text))])
    assert answer.name == "?"


def test_container_with_name_of_earlier_version_is_read() -> None:
    earlier = inspected(role="data.")
    earlier["Config"]["Hostname"] = "train-b1-data.-0"
    assert container(earlier).role == "data."
    earlier["Config"]["Hostname"] = "0123456789ab"
    assert read(earlier) is None


def test_damaged_container_does_not_hide_those_of_its_application() -> None:
    good = [container(inspected(replica=str(n))) for n in (0, 1)]
    bad = container(inspected(job="{"))
    other = container(inspected(job=role(num_replicas=7), attempt="9"))
    twin = replace(good[1], id="other", exit_code=9)
    assert consistent([good[0], bad, other, good[1], twin]) == good
    assert describe_all(consistent([*good, bad, other])).state is AppState.SUCCEEDED
    assert consistent([bad]) == [bad]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths to values in plain data."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(p for key, value in inner for p in places(value, (*path, key)))]


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Plain data with another value at a path."""
    if not path:
        return value
    changed = dict(data) if isinstance(data, dict) else list(data)
    changed[path[0]] = put(data[path[0]], path[1:], value)
    return changed


def show(data: dict[str, Any]) -> None:
    """Reads a container and says everything of it that can be said."""
    found = read(data)
    if found is not None:
        containers = consistent([found, container(INSPECTED)] if found.app_id == "train-b1" else [found])
        for some in (containers, [found]):
            line, answer = row_of(describe(some)), describe_all(some)
            is_under_way(some)
            for text in (line.app_id, line.msg, answer.name, *(role.role for role in answer.roles_statuses)):
                text.encode()


@settings(max_examples=100)
@given(st.sampled_from([p for p in places(INSPECTED) if p]), VALUES)
def test_any_answer_of_an_engine_can_be_read(path: tuple[Any, ...], value: Any) -> None:
    show(put(INSPECTED, path, value))


@settings(max_examples=100)
@given(st.sampled_from([p for p in places(json.loads(job())) if p]), VALUES)
def test_any_value_in_label_of_job_can_be_read(path: tuple[Any, ...], value: Any) -> None:
    show(inspected(job=json.dumps(put(json.loads(job()), path, value))))


@settings(max_examples=100)
@given(st.sampled_from(["app", "role", "replica", "attempt", "retry", "job"]), st.text())
def test_any_text_in_a_label_can_be_read(name: str, text: str) -> None:
    show(inspected(**{name: text}))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The private file of an application of version 0.1.0."""
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    path = tmp_path / "home" / "docker" / "records" / "train-b1.json"
    make_folder(path.parent)
    write_file(
        path,
        json.dumps({"app_id": "train-b1", "engine": "unix:///x", **DATA}, separators=(",", ":")).encode(),
    )
    return path


def test_the_private_file_holds_all_of_an_application(kept: Path) -> None:
    found = load_data("train-b1")
    assert found is not None
    assert app_from_dict(found["app"]) == APP
    assert (found["cfg"], kept.stat().st_mode & 0o777) == (DATA["cfg"], 0o600)
    forget_old("train-b1")
    assert load_data("train-b1") is None


def test_private_file_is_believed_only_when_it_is_one(kept: Path, tmp_path: Path) -> None:
    text = kept.read_text()
    assert load_data("train-b2") is None
    (kept.parent / "train-b2.json").write_text(text)
    assert load_data("train-b2") is None, "it is about another application"
    for damaged in ("", "[]", "{", "[" * 100_000, text.replace('"schema":2', '"schema":3')):
        kept.write_text(damaged)
        assert load_data("train-b1") is None
    kept.unlink()
    os.mkfifo(kept)
    assert load_data("train-b1") is None, "and nobody waits for it"
    kept.unlink()
    (tmp_path / "elsewhere").write_text(text)
    kept.symlink_to(tmp_path / "elsewhere")
    assert load_data("train-b1") is None
    kept.unlink()
    kept.write_text(text)
    assert load_data("train-b1") is not None
    if os.geteuid() == 0:
        os.chown(kept, 65534, 65534)
        assert load_data("train-b1") is None, "it is another user's"


@settings(max_examples=60)
@given(st.sampled_from([p for p in places(json.loads(json.dumps(DATA))) if p]), VALUES)
def test_any_value_in_the_private_file_can_be_read(kept: Path, path: tuple[Any, ...], value: Any) -> None:
    data = json.loads(json.dumps({"app_id": "train-b1", **DATA}))
    kept.write_text(json.dumps(put(data, path, value)))
    found = load_data("train-b1")
    assert found is None or app_from_dict(found["app"]) is not None
    assert describe_all([container(INSPECTED)]).roles_statuses


@given(st.lists(st.sampled_from(["$", "$$", "${app_id}", "${replica_id}", "${x}", "0", "-", "{", "b1"])))
def test_macros_come_back_as_they_were(parts: list[str]) -> None:
    text = "".join(parts)
    values = macros.Values(img_root="", app_id="b1", replica_id="0", rank0_env="R")
    back = restored(values.substitute(text), spans_of(text) or None, values.to_dict())
    assert back == text
