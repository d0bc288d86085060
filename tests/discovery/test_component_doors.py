"""The documented names for Python programs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Optional

import pytest

from torchx.specs import AppDef, BindMount, Role
from torchx.specs.builders import (
    component_args_from_str,
    make_app_handle,
    materialize_appdef,
    parse_args,
    parse_mounts,
)
from torchx.specs.file_linter import ComponentFunctionValidator, LinterMessage
from torchx.specs.finder import (
    ComponentNotFoundException,
    ComponentValidationException,
    get_builtin_source,
    get_component,
    get_components,
)
from torchx.util import types


def job(first: int, /, second: str = "b", *words: str, lr: float = 0.1, on: bool = False) -> AppDef:
    return AppDef("j", [Role("r", "i", entrypoint="e", args=[str(first), second, *words, str(lr), str(on)])])


def args(*given: Any, **more: Any) -> list[str]:
    return materialize_appdef(job, *given, **more).roles[0].args


def test_materialize_appdef() -> None:
    words = ["--first", "1", "--lr", "2", "--lr", "3", "x", "--y"]
    assert args(words) == ["1", "b", "x", "--y", "3.0", "False"]
    assert args(["--first", "1"], {"lr": "5", "on": "true", "no_such": 1}) == ["1", "b", "5.0", "True"]
    assert args(["--first", "1"], {"lr": "5"}, {"lr": 6, "words": ["a"]}) == ["1", "b", "a", "6.0", "False"]
    assert args(cmpnt_args=["--first=1"], cmpnt_defaults={"second": "c"}, config={}) == [
        "1",
        "c",
        "0.1",
        "False",
    ]


def test_what_a_component_raises_passes_through() -> None:
    def fails() -> AppDef:
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        materialize_appdef(fails, [])


def test_a_function_that_is_no_component() -> None:
    def fn(a, b: bytes, **c: str):  # type: ignore[no-untyped-def]
        return AppDef("a")

    with pytest.raises(ComponentValidationException) as caught:
        materialize_appdef(fn, [])
    assert [m.description.partition(";")[0] for m in caught.value.messages] == [
        "argument `a` has no type annotation",
        "argument `b` is a `bytes`, which cannot be written on a command line",
        "takes `**c`",
    ]


def test_component_args_from_str_and_parse_args() -> None:
    words = ["--first", "1", "--on", "x"]
    found = component_args_from_str(job, words)
    assert found.positional_args == {"first": 1, "second": "b"}
    assert (found.var_args, found.kwargs) == (["x"], {"lr": 0.1, "on": True})
    assert job(*found.positional_args.values(), *found.var_args, **found.kwargs).name == "j"
    namespace = parse_args(job, words)
    assert (namespace.first, namespace.words, namespace.on) == (1, ["x"], True)


def test_the_builders_hand_on_mounts_and_handles() -> None:
    assert parse_mounts(["type=bind", "src=/a", "dst=/b"]) == [BindMount("/a", "/b", False)]
    assert make_app_handle("local_cwd", "s", "id") == "local_cwd://s/id"


def test_the_finder() -> None:
    found = get_components()
    assert {"utils.echo", "dist.ddp"} <= set(found)
    echo = get_component("utils.echo")
    assert (echo.name, echo.fn_name, echo.validation_errors) == ("utils.echo", "echo", [])
    assert echo.description == found["utils.echo"].description != ""
    assert echo.fn(msg="x").roles[0].args == ["x"]
    assert "def echo(" in get_builtin_source("utils.echo")
    with pytest.raises(ComponentNotFoundException):
        get_component("utils.nope")


def test_the_finder_with_checks_of_ones_own() -> None:
    class Never(ComponentFunctionValidator):
        def validate(self, app_specs_func_def: Any) -> list[LinterMessage]:
            return [self._gen_linter_message("never", 1)]

    assert get_components([Never()]) == {}
    with pytest.raises(ComponentValidationException, match="never"):
        get_component("utils.echo", [Never()])


def test_the_helpers_for_types() -> None:
    assert types.decode("1,2", list[int]) == [1, 2]
    assert types.decode("x", Optional[str]) == "x"  # noqa: UP045  (the older spelling is what files hold)
    assert types.decode({"a": "1"}, dict[str, int]) == {"a": 1}
    with pytest.raises(
        ValueError, match=r"^list\[int\] takes a list such as 1,1, got 'x': \"x\" is not an int$"
    ):
        types.decode("x", list[int])
    with pytest.raises(TypeError):
        types.decode("x", bytes)
    assert types.decode_from_string("a=b", dict[str, str]) == {"a": "b"}
    assert types.decode_from_string("", dict[str, str]) is None
    with pytest.raises(ValueError, match="neither"):
        types.decode_from_string("a", int)
    assert types.decode_optional(None | int) is int
    assert types.decode_optional(int | str | None) == int | str | None
    assert (types.is_bool(bool), types.is_bool(int), types.is_primitive(str), types.is_primitive(Path)) == (
        True,
        False,
        True,
        False,
    )
    assert types.to_dict("a=1,b=2") == {"a": "1", "b": "2"}
    assert types.to_list("a,b") == ["a", "b"]
    assert types.none_throws(1) == 1
    with pytest.raises(AssertionError, match="gone"):
        types.none_throws(None, "gone")
    kinds = [
        types.get_argparse_param_type(p) for p in inspect.signature(eval("lambda a: a")).parameters.values()
    ]
    assert kinds == [str]
