"""Roles, applications, resources and late values: plain data, and nothing handed in is changed."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass
from typing import Any, get_type_hints

import pytest

from torchx.errors import UsageError
from torchx.specs import (
    NULL_RESOURCE,
    AppDef,
    AppDryRunInfo,
    CapabilityKey,
    Resource,
    Role,
    resolve_overrides,
)
from torchx.specs.api import MISSING, BindMount, RetryPolicy, Workspace
from torchx.specs.app import plain


def test_a_role_has_the_documented_fields_in_their_order() -> None:
    role = Role("r", "img", 1, "sh", ["-c"], {"A": "1"}, 2, 3, RetryPolicy.ROLE, Resource(1, 0, 5), {"p": 1})
    assert (role.min_replicas, role.entrypoint, role.args, role.env) == (1, "sh", ["-c"], {"A": "1"})
    assert (role.num_replicas, role.max_retries, role.retry_policy) == (2, 3, RetryPolicy.ROLE)
    assert (role.resource, role.port_map) == (Resource(1, 0, 5), {"p": 1})


def test_defaults_are_a_role_s_own() -> None:
    first, second = Role("a", "img"), Role("b", "img")
    assert (first.entrypoint, first.retry_policy) == (MISSING, RetryPolicy.APPLICATION)
    first.args.append("x")
    first.resource.cpu = 7
    assert second.args == []
    assert (second.resource, NULL_RESOURCE) == (Resource(-1, -1, -1), Resource(-1, -1, -1))


def test_types_of_fields_can_be_read_at_run_time() -> None:
    assert get_type_hints(Role)["workspace"] == Workspace | None


def test_the_hook_of_a_role_hands_the_request_on() -> None:
    info = AppDryRunInfo(["sbatch"], " ".join)
    assert Role("r", "img").pre_proc("slurm", info) is info


def test_a_dry_run_prints_its_request() -> None:
    info = AppDryRunInfo({"a": 1}, lambda request: f"<{request}>")
    assert repr(info) == str(info) == "<{'a': 1}>"
    assert (info.app, dict(info.cfg), info.scheduler) == (None, {}, None)


def test_older_names_of_dry_run_share_its_attributes() -> None:
    info = AppDryRunInfo(["sbatch"], " ".join)
    info._app, info._cfg, info._scheduler = AppDef("a"), {"x": 1}, "slurm"
    assert (info.app, info.cfg, info.scheduler) == (AppDef("a"), {"x": 1}, "slurm")
    lines: list[str] = []
    info.tell = lines.append
    info.on_progress("pulling")
    assert (lines, info._app, info._scheduler) == (["pulling"], info.app, "slurm")


def test_late_values_are_computed_once_at_their_first_read() -> None:
    async def image() -> str:
        await asyncio.sleep(0)
        return "img:late"

    calls: list[str] = []

    def args() -> list[str]:
        calls.append("args")
        return ["--late"]

    overrides: dict[str, Any] = {"image": image, "args": args, "env": {"PLAIN": "1"}}
    role = Role("r", "img", overrides=overrides)
    assert (role.image, list(role.overrides), calls) == ("img:late", ["args", "env"], [])
    for _ in range(2):
        resolved = resolve_overrides(role)
        assert (resolved.image, resolved.args, resolved.env) == ("img:late", ["--late"], {"PLAIN": "1"})
    assert (resolved.overrides, calls) == ({}, ["args"])
    assert list(overrides) == ["image", "args", "env"]


def test_late_values_are_worked_out_inside_running_loop_too() -> None:
    async def image() -> str:
        return "img:late"

    async def launch() -> Role:
        return resolve_overrides(Role("r", "img", overrides={"image": image()}))

    assert asyncio.run(launch()).image == "img:late"


def test_a_coroutine_is_awaited_once() -> None:
    async def image() -> str:
        return "img:late"

    role = Role("r", "img", overrides={"image": image()})
    assert [resolve_overrides(role).image for _ in range(2)] == ["img:late", "img:late"]


def test_a_late_value_of_no_field_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean `image`"):
        resolve_overrides(Role("r", "img", overrides={"imge": lambda: "x"}))


def test_error_in_late_value_is_user_s_own() -> None:
    def broken() -> str:
        raise ZeroDivisionError

    role = Role("r", "img", overrides={"image": broken})
    for _ in range(2):  # the second one does not continue with the value that it replaces
        with pytest.raises(ZeroDivisionError):
            resolve_overrides(role)
    with pytest.raises(ZeroDivisionError):
        role.image  # noqa: B018 - it computes the value


def test_deep_copy_of_subclass_is_one_of_it() -> None:
    class Special(Role):
        pass

    role = Special("r", "img", mounts=[BindMount("/a", "/b")], overrides={"image": lambda: "x"})
    twin = copy.deepcopy(role)
    assert type(twin) is Special
    assert twin == role
    twin.mounts[0].dst_path = "/c"
    assert role.mounts == [BindMount("/a", "/b")]


def test_copying_a_resource_adds_capabilities_and_changes_nothing() -> None:
    original = Resource(1, 2, 3, {"a": 1, "b": 1}, {"efa": 1}, {"t": 1})
    added = Resource.copy(original, b=2, c=3)
    assert added == Resource(1, 2, 3, {"a": 1, "b": 2, "c": 3}, {"efa": 1}, {"t": 1})
    added.devices["efa"] = 9
    assert original == Resource(1, 2, 3, {"a": 1, "b": 1}, {"efa": 1}, {"t": 1})


def test_a_capability_has_a_type() -> None:
    slots, arch = CapabilityKey("grid", "slots", int), CapabilityKey("grid", "flags", list[str])
    resource = Resource(1, 0, 512)
    assert (slots.get(resource), slots.get(resource, 4)) == (None, 4)
    slots.set(resource, 2)
    arch.set(resource, ["avx"])
    assert (slots.get(resource, 4), resource.capabilities) == (2, {"grid.slots": 2, "grid.flags": ["avx"]})
    with pytest.raises(TypeError, match=r"`grid.slots` must be int, got 'two'"):
        slots.set(resource, "two")  # type: ignore[arg-type]  # what is tested
    resource.capabilities["grid.slots"] = "two"
    with pytest.raises(TypeError, match="must be int"):
        slots.get(resource)


def test_plain_data_may_be_of_classes_with_slots() -> None:
    @dataclass(slots=True)
    class Place:
        name: str

    class Rack(str):
        __slots__ = ()

    place = Place(Rack("r1"))
    assert type(plain({"place": place})["place"].name) is str
