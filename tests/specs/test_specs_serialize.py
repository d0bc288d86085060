"""Applications as plain data and back."""

from __future__ import annotations

import copy
import json
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    Workspace,
    resource,
)
from torchx.specs.overlays import PUT, set_overlay
from torchx.specs.serialize import app_from_dict, app_to_dict


def _there_and_back(app: AppDef) -> AppDef:
    return app_from_dict(json.loads(json.dumps(app_to_dict(app))))


def test_nothing_is_lost() -> None:
    role = Role(
        name="trainer",
        image="img",
        min_replicas=1,
        entrypoint="python",
        args=["-m", "train"],
        env={"A": "1"},
        num_replicas=4,
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
        resource=resource(h="aws_p4d.24xlarge"),
        port_map={"ui": 80},
        metadata={"kubernetes": {"tolerations": ({"key": "gpu"},), "deep": [{1: (2,)}]}, "plain": "x"},
        mounts=[BindMount("/a", "/b", True), VolumeMount("v", "/c"), DeviceMount("/dev/x", "/dev/y", "r")],
        workspace=Workspace({"~/src": "", "lib": "vendor"}),
    )
    set_overlay(role, "kubernetes", "V1Pod", {PUT("spec"): {"x": (1, 2)}})
    app = AppDef(
        "train", [role, Role("reader", "img2", resource=Resource(1, 0, 5, {"a": (1,)}))], {"team": "x"}
    )
    before = copy.deepcopy(app)
    assert _there_and_back(app) == before == app


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "!tuple", "!pairs"]) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(st.dictionaries(st.text(max_size=3), _json, max_size=3))
def test_any_metadata_comes_back(metadata: dict[str, Any]) -> None:
    assert _there_and_back(AppDef("a", [Role("r", "i", metadata=metadata)])).roles[0].metadata == metadata


def test_unrepresentable_values_are_rejected_or_reported_as_text() -> None:
    app = AppDef("a", [Role("r", "i", metadata={"x": {"y": {1, 2}}}, overrides={"image": lambda: "z"})])
    with pytest.raises(UsageError, match="`r` has unresolved overrides: image"):
        app_to_dict(app)
    assert app_to_dict(app, strict=False)["roles"][0]["metadata"] == {"x": {"y": "{1, 2}"}}
    app.roles[0].overrides = {}
    with pytest.raises(UsageError, match="metadata of role `r` contains a set"):
        app_to_dict(app)


def test_members_of_enumerations_are_their_values() -> None:
    class Kind(str, Enum):
        BIG = "big"

    data = app_to_dict(AppDef("a", [Role("r", "i", metadata={"x": Kind.BIG})]))
    assert type(data["roles"][0]["metadata"]["x"]) is str
    assert data["roles"][0]["metadata"]["x"] == "big"


def test_data_of_other_versions_can_be_read() -> None:
    data = {"name": "a", "roles": [{"name": "r", "image": "i", "later": 1}], "later": 2}
    assert app_from_dict(data) == AppDef("a", [Role("r", "i")])


@pytest.mark.parametrize(
    "data", [{}, {"name": "a", "roles": [{}]}, {"name": "a", "roles": 1}, {"name": "a", "roles": ["x"]}]
)
def test_other_data_is_no_application(data: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the data is not an application"):
        app_from_dict(data)
