"""Overlays: laying them over a request, noting them, and reading them from files."""

from __future__ import annotations

import copy
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.specs import AppDef, Role
from torchx.specs.overlays import (
    DEL,
    JOIN,
    PUT,
    OverlaySpec,
    apply_overlay,
    get_overlay,
    load_overlay_file,
    set_overlay,
    validate_overlay,
)


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": [1]}, {"a": [2]}, {"a": [1, 2]}),
        ({"a": [1]}, {"a": (2,)}, {"a": [2]}),
        ({"a": 1}, {"a": "x"}, {"a": "x"}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": [1]}, {"a": None}, {"a": None}),
        ({"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({}, {"a": {"b": (1, 2)}}, {"a": {"b": [1, 2]}}),
        ({}, {"a": {DEL("x"): None, PUT("y"): [1]}}, {"a": {"y": [1]}}),
        ({"a": [1]}, {PUT("a"): [2]}, {"a": [2]}),
        ({"a": {"b": 1}}, {PUT("a"): {DEL("b"): None, "c": 1}}, {"a": {"c": 1}}),
        ({"a": {"b": 1}}, {PUT("a"): 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {DEL("a"): None, DEL("nope"): None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {DEL("b"): None}}, {"a": {"c": 2}}),
        ({"a": [{"n": 1, "x": [0]}]}, {JOIN("a", on="n"): [{"n": 1, "x": [1]}]}, {"a": [{"n": 1, "x": [1]}]}),
        ({"a": [{"n": 1, "x": 2}]}, {JOIN("a", on="n"): [{"n": 1, DEL("x"): None}]}, {"a": [{"n": 1}]}),
        ({"a": [{"n": 1}]}, {JOIN("a", on="n"): [{"n": 2}, {"x": 3}]}, {"a": [{"n": 1}, {"n": 2}, {"x": 3}]}),
        ({}, {JOIN("a", on="n"): [{"n": 1}]}, {"a": [{"n": 1}]}),
        ({"a:b": [{"n": 1}]}, {JOIN("a:b", on="n"): [{"n": 1, "x": 1}]}, {"a:b": [{"n": 1, "x": 1}]}),
    ],
)
def test_laid_over(base: dict[str, Any], overlay: dict[str, Any], result: dict[str, Any]) -> None:
    before = copy.deepcopy(overlay)
    apply_overlay(base, overlay)
    assert base == result
    assert overlay == before


@pytest.mark.parametrize(
    ("base", "overlay", "problem"),
    [
        ({"a": 1}, {"a": [1]}, "the overlay of `a` has type list, but type int is there"),
        ({"a": [1]}, {"a": 1}, "the overlay of `a` has type int, but type list is there"),
        ({"a": {"b": 1}}, {"a": [1]}, "the overlay of `a` has type list, but type dict is there"),
        ({"a": ["x"]}, {JOIN("a", on="n"): [{"n": 1}]}, "JOIN of `a` needs a list of mappings; the request"),
        ({"a": {}}, {JOIN("a", on="n"): [{"n": 1}]}, "JOIN of `a` needs a list of mappings; the request"),
        ({"a": []}, {JOIN("a", on="n"): {"n": 1}}, "JOIN of `a` needs a list of mappings; the overlay"),
    ],
)
def test_what_does_not_fit_is_reported(base: dict[str, Any], overlay: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        apply_overlay(base, overlay)
    assert isinstance(caught.value, TypeError)


def test_what_is_laid_over_is_a_copy() -> None:
    overlay: dict[str, Any] = {"a": {"b": [1]}, "c": [{"d": 1}]}
    base: dict[str, Any] = {"c": []}
    apply_overlay(base, overlay)
    base["a"]["b"].append(2)
    base["c"][0]["d"] = 2
    assert overlay == {"a": {"b": [1]}, "c": [{"d": 1}]}


def _noted(*overlays: dict[str, Any]) -> dict[str, Any]:
    role = Role("r", "img")
    for overlay in overlays:
        set_overlay(role, "kubernetes", "V1Pod", overlay)
    return get_overlay(role, "kubernetes", "V1Pod")


@pytest.mark.parametrize(
    ("overlays", "noted"),
    [
        ([{"a": {"b": 1}}, {"a": {"c": [1]}}, {"a": {"c": [2]}}], {"a": {"b": 1, "c": [1, 2]}}),
        ([{"a": [1]}, {PUT("a"): [2]}], {PUT("a"): [2]}),
        ([{PUT("a"): [1]}, {PUT("a"): [2]}], {PUT("a"): [2]}),
        ([{PUT("a"): [1]}, {"a": [2]}], {"a": [2]}),
        ([{"a": [1]}, {DEL("a"): None}], {DEL("a"): None}),
        ([{"a": {"b": [1]}}, {"a": {PUT("b"): [2]}}], {"a": {PUT("b"): [2]}}),
        ([{JOIN("a", on="n"): [{"n": 1}]}, {JOIN("a", on="m"): [{"m": 1}]}], {JOIN("a", on="m"): [{"m": 1}]}),
        (
            [{JOIN("a", on="n"): [{"n": 1, "x": 1}]}, {JOIN("a", on="n"): [{"n": 1, "x": 2}, {"n": 2}]}],
            {JOIN("a", on="n"): [{"n": 1, "x": 2}, {"n": 2}]},
        ),
        ([{"a": [1]}, {"a": (2,)}, {"a": [3]}], {"a": (2, 3)}),
        ([{"a": [{"n": 1}]}, {JOIN("a", on="n"): [{"n": 2}]}], {JOIN("a", on="n"): [{"n": 1}, {"n": 2}]}),
    ],
)
def test_notes_are_gathered(overlays: list[dict[str, Any]], noted: dict[str, Any]) -> None:
    before = copy.deepcopy(overlays)
    assert _noted(*overlays) == noted
    assert overlays == before


def test_notes_are_kept_by_scheduler_and_kind() -> None:
    app = AppDef("a", metadata={"team": "x"})
    set_overlay(app, "kubernetes", "V1Job", {"a": 1})
    set_overlay(app, "kubernetes", "V1Pod", {"b": 1})
    assert get_overlay(app, "kubernetes", "V1Job") == {"a": 1}
    assert get_overlay(app, "kubernetes", "V1Pod") == {"b": 1}
    assert get_overlay(app, "kubernetes", "V1Node") == {}
    assert get_overlay(app, "slurm", "V1Pod") == {}
    assert app.metadata["team"] == "x"
    get_overlay(app, "kubernetes", "V1Pod")["b"] = 2
    assert get_overlay(app, "kubernetes", "V1Pod") == {"b": 1}


def test_a_namespace_without_kinds_is_the_overlay_itself() -> None:
    role = Role("r", "img", metadata={"kubernetes": {"spec": {"a": 1}}})
    assert get_overlay(role, "kubernetes", "V1Pod") == {"spec": {"a": 1}}
    assert get_overlay(role, "kubernetes", "V1Pod", flat_fallback=False) == {}


def test_a_dataclass_is_an_overlay_of_what_is_set() -> None:
    @dataclass
    class Spec:
        a: int = 1
        b: int | None = None

    role = Role("r", "img")
    set_overlay(role, "x", "Spec", Spec())
    assert get_overlay(role, "x", "Spec") == {"a": 1}
    with pytest.raises(UsageError, match="a mapping or a dataclass, got 3"):
        set_overlay(role, "x", "Spec", 3)


@pytest.mark.parametrize(
    ("name", "text", "overlay"),
    [
        ("a.json", json.dumps({"V1Pod": {"a": 1}}), {"a": 1}),
        ("a.yaml", "V1Pod:\n  a: !!python/tuple [1, {b: 2}]\n", {"a": (1, {"b": 2})}),
        ("a.txt", "V1Pod: {a: 1}", {"a": 1}),
        ("flat.yaml", "spec: {a: 1}", {"spec": {"a": 1}}),
    ],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_overlays_from_a_file(
    tmp_path: Path, name: str, text: str, overlay: dict[str, Any], scheme: str
) -> None:
    (tmp_path / name).write_text(text)
    role = Role("r", "img", metadata={"kubernetes": f"{scheme}{tmp_path / name}"})
    assert get_overlay(role, "kubernetes", "V1Pod") == overlay


def test_overlays_from_any_address() -> None:
    import fsspec

    with fsspec.open("memory://overlays/pod.yaml", "w") as file:
        file.write("V1Pod: {a: 1}")
    role = Role("r", "img", metadata={"kubernetes": "memory://overlays/pod.yaml"})
    assert get_overlay(role, "kubernetes", "V1Pod") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- 1", "must contain a mapping, not a list"),
        ("a: [", "cannot be read"),
        ("a: !!python/object/apply:os.getcwd []", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_none_of_it(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UsageError, match=problem):
        get_overlay(Role("r", "img", metadata={"x": str(tmp_path / "a.yaml")}), "x", "y")


def test_nothing_is_added_to_a_file(tmp_path: Path) -> None:
    role = Role("r", "img", metadata={"x": str(tmp_path / "a.yaml")})
    with pytest.raises(UsageError, match="not a mapping to add an overlay to"):
        set_overlay(role, "x", "y", {"a": 1})
    with pytest.raises(UsageError, match="is 3, not a mapping"):
        get_overlay(Role("r", "img", metadata={"x": 3}), "x", "y")


def test_keys_that_must_not_be_there() -> None:
    validate_overlay({"a": {"env": 1}}, blocklist=["env"], forbidden_keys={"b"})
    with pytest.raises(ValueError, match=r"`Pod.env`, `Pod.args` cannot be set by an overlay"):
        validate_overlay(
            {PUT("env"): 1, JOIN("args", on="x"): 2, "a": 3}, blocklist=["env", "args"], overlay_name="Pod"
        )
    with pytest.raises(UsageError, match=r"`a` has no place in Pod\n  put it into Job"):
        validate_overlay({"a": 1}, forbidden_keys={"a"}, overlay_name="Pod", suggestion="put it into Job")


def test_a_kind_of_overlay_is_checked_both_ways() -> None:
    spec = OverlaySpec("kubernetes", "V1Pod", ("env",))
    role = Role("r", "img")
    spec.set(role, {"a": 1})
    assert spec.get(role) == {"a": 1}
    with pytest.raises(UsageError, match=r"`V1Pod.env` cannot"):
        spec.set(role, {"env": 1})
    with pytest.raises(UsageError, match=r"`V1Pod.env` cannot"):
        spec.get(Role("r", "img", metadata={"kubernetes": {"V1Pod": {"env": 1}}}))


_leaves = st.integers(0, 3) | st.text("xy", max_size=2)
_values = st.recursive(
    _leaves,
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
# every key keeps its kind, so that any two of these fit each other
_requests = st.fixed_dictionaries(
    {},
    optional={
        "number": _leaves,
        "list": st.lists(_leaves, max_size=3),
        "map": st.fixed_dictionaries({}, optional={"x": _leaves, "list": st.lists(_leaves, max_size=2)}),
    },
)


@settings(max_examples=100)
@given(_requests, _requests, _requests)
def test_two_notes_do_what_two_overlays_do(base: Any, first: Any, second: Any) -> None:
    one_by_one = copy.deepcopy(base)
    apply_overlay(one_by_one, first)
    apply_overlay(one_by_one, second)
    at_once = copy.deepcopy(base)
    apply_overlay(at_once, _noted(first, second))
    assert at_once == one_by_one


@settings(max_examples=100)
@given(_requests, _requests)
def test_put_gives_what_was_put(base: dict[str, Any], wanted: dict[str, Any]) -> None:
    apply_overlay(base, {PUT(key): value for key, value in wanted.items()})
    assert {key: base[key] for key in wanted} == wanted


@settings(max_examples=100)
@given(_requests, _requests)
def test_lists_grow_at_their_end_and_the_rest_stays(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    before = copy.deepcopy(base)
    apply_overlay(base, overlay)
    assert base.get("list", []) == before.get("list", []) + overlay.get("list", [])
    for key in set(before) - set(overlay):
        assert base[key] == before[key]
    apply_overlay(base, {DEL(key): None for key in base})
    assert base == {}


def test_a_file_that_is_read_in_pieces_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server sends pieces; a read returns one of them."""
    text = b"spec:\n  nodeSelector:\n    disk: ssd\n"

    class Pieces(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(7, len(text) if size is None or size < 0 else size))

    class Server:
        protocol = "https"

        def open(self, path: str, mode: str) -> Pieces:
            return Pieces(text)

    monkeypatch.setattr("fsspec.core.url_to_fs", lambda uri: (Server(), uri))
    assert load_overlay_file("https://host.invalid/o.yaml") == {"spec": {"nodeSelector": {"disk": "ssd"}}}
