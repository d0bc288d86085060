"""Types of a component's arguments: what each takes, as a word or as JSON, and what it refuses."""

# ruff: noqa: UP007, UP045  (the older spellings of unions are what people's files hold)

from __future__ import annotations

import datetime
import decimal
import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, Union

import pytest

from torchx.discovery import ArgumentError, Arguments, component_of, parse_arguments
from torchx.specs import AppDef


class Optimiser(enum.Enum):
    ADAM = "adam"
    SGD = "sgd"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Steps:
    warm_up: int = 1
    total: Optional[int] = None


@dataclass
class Opt:
    """Settings of the optimiser.

    Attributes:
        lr: learning rate
    """

    lr: float
    names: list[str] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)


Port = NewType("Port", int)


class Size(int):
    pass


def parse(fn: Callable[..., AppDef], *words: str, **more: Any) -> Arguments:
    return parse_arguments(component_of(fn), words, **more)


def value(fn: Callable[..., AppDef], name: str, *words: str, **more: Any) -> Any:
    return parse(fn, *words, **more).values[name]


def refusal(fn: Callable[..., AppDef], *words: str, **more: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        parse(fn, *words, **more)
    return caught.value


def test_enums_are_given_by_name_or_by_value() -> None:
    def fn(a: Optimiser = Optimiser.ADAM, b: Level = Level.LOW) -> AppDef:
        return AppDef("t")

    for words in (["--a", "sgd", "--b", "HIGH"], ["--a", "SGD", "--b", "2"]):
        assert parse(fn, *words).values == {"a": Optimiser.SGD, "b": Level.HIGH}
    assert refusal(fn, "--a", "sgdd").message.startswith('--a takes adam or sgd, got "sgdd"')
    assert refusal(fn, "--b", "HIHG").message.startswith('--b takes LOW or HIGH, got "HIHG"')
    assert refusal(fn, "--b", "HIHG").hint == "did you mean `HIGH`?"
    assert value(fn, "b", config={"b": 2}) is Level.HIGH


@dataclass
class Inner:
    a: int
    b: str = "x"


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (Path, "a/b", Path("a/b")),
        (list[str], "a, b,", ["a", "b", ""]),
        (list[int], "1,2", [1, 2]),
        (list, "a", ["a"]),
        (list[str], "", None),
        (list[str], '["x", "y,z"]', ["x", "y,z"]),
        (list[str], "[a,b]", ["[a", "b]"]),
        (list[str], "[1,2]", ["[1", "2]"]),
        (list[int], "[1, 2]", [1, 2]),
        (tuple[int, str], '[1, "a,b"]', (1, "a,b")),
        (dict[str, int], "a=1,b=2", {"a": 1, "b": 2}),
        (dict[str, str], "", None),
        (tuple[int, str], "1,a", (1, "a")),
        (tuple[int, ...], "1,2,3", (1, 2, 3)),
        (tuple[int, ...], "", ()),
        (set[int], "1,1", {1}),
        (Union[None, int], "3", 3),
        (Union[str, int], "3", 3),
        (Union[str, int], "x", "x"),
        (Union[bool, int, None], "1", 1),
        (Union[bool, int, None], "yes", True),
        (Optional[list[float]], "1,2.5", [1.0, 2.5]),
        (list[list[int]], "[[1], [2, 3]]", [[1], [2, 3]]),
        (dict[str, list[int]], '{"a": [1]}', {"a": [1]}),
        (list[dict[str, str]], '[{"a": "b"}]', [{"a": "b"}]),
        (list[Inner], '[{"a": 1}, {"a": 2, "b": "y"}]', [Inner(1), Inner(2, "y")]),
        (list[Optimiser], "adam,SGD", [Optimiser.ADAM, Optimiser.SGD]),
        (Literal[1, 2, "auto"], "2", 2),
        (Literal[1, 2, "auto"], "auto", "auto"),
        (Annotated[Optional[int], "-x"], "4", 4),
        (Port, "80", 80),
        (Size, "80", Size(80)),
        (datetime.date, "2026-01-31", datetime.date(2026, 1, 31)),
        (decimal.Decimal, "0.10", decimal.Decimal("0.10")),
        (Union[str, os.PathLike[str]], "a/b", Path("a/b")),
        (Any, "x", "x"),
    ],
)
def test_types(annotation: Any, text: str, expected: object) -> None:
    def fn(arg: str) -> AppDef:
        return AppDef("t")

    fn.__annotations__["arg"] = annotation
    got = value(fn, "arg", f"--arg={text}")
    assert (got, type(got)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (list[int], "1,x", '--arg takes a list such as 1,1, got "1,x": "x" is not an int'),
        (list[int], "1,,2", '--arg takes a list such as 1,1, got "1,,2": "" is not an int'),
        (tuple[int, int], "1", '--arg takes 2 values (an int, an int), got "1": it has 1'),
        (dict[str, int], "a=b", 'got "a=b": "b" is not an int'),
        (Union[int, float], "x", '--arg takes an int or a float, got "x"'),
        (list[list[int]], "1,2", "it is not JSON"),
        (list[list[int]], '[["a"]]', '"a" is not an int'),
        (list[Inner], '[{"b": "x"}]', "it lacks a"),
        (list[Inner], '[{"a": 1, "c": 2}]', "Inner has no field `c`"),
        (dict[str, list[int]], "[1]", "--arg takes a JSON object"),
        (datetime.date, "soon", '--arg takes a date, got "soon": Invalid isoformat string'),
        (decimal.Decimal, "x", '--arg takes a Decimal, got "x"'),
    ],
)
def test_value_of_another_type_is_rejected_with_its_part(annotation: Any, text: str, message: str) -> None:
    def fn(arg: str) -> AppDef:
        return AppDef("t")

    fn.__annotations__["arg"] = annotation
    assert message in refusal(fn, "--arg", text).message


def grouped(opt: Opt, other: Opt | None = None, given: Opt = Opt(0.5, steps=Steps(7))) -> AppDef:  # noqa: B008
    return AppDef("g")


def test_a_dataclass_has_a_flag_for_each_field() -> None:
    values = parse(grouped, "--opt.lr", "0.1", "--opt.steps.warm-up", "3", "--opt.names", "a,b").values
    assert values == {"opt": Opt(0.1, ["a", "b"], Steps(3)), "other": None, "given": Opt(0.5, steps=Steps(7))}


def test_field_that_is_not_given_keeps_default_of_object() -> None:
    values = parse(grouped, "--opt.lr", "0.1", "--given.lr", "0.2").values
    assert values["given"] == Opt(0.2, steps=Steps(7))


def test_dataclass_may_be_json_too_and_its_flags_win() -> None:
    words = ["--opt", '{"lr": 1, "steps": {"warm_up": 2}}', "--opt.steps.warm_up", "5"]
    assert value(grouped, "opt", *words) == Opt(1.0, steps=Steps(5))
    config = {"opt": {"lr": 1, "names": ["a"]}, "other": None}
    assert value(grouped, "opt", "--opt.lr=2", config=config) == Opt(2.0, ["a"])


def test_dataclass_names_missing_and_unknown_fields() -> None:
    assert refusal(grouped).message == "grouped needs --opt.lr"
    assert refusal(grouped, "--opt.lr", "1", "--other.names", "x").message == "grouped needs --other.lr"
    error = refusal(grouped, config={"opt": {"lrr": 1}}, config_origin="job.json")
    assert (error.message, error.hint) == (
        "`opt` has no field `lrr` (from job.json)",
        "did you mean `lr`?   fields: lr, names, steps",
    )
    assert "--opt.steps.warm_up takes an int" in refusal(grouped, "--opt.steps.warm_up", "x").message
    assert "--opt.lr takes a float" in refusal(grouped, "--opt.lr", "x").message


def test_varargs_have_a_type() -> None:
    def fn(*sizes: int) -> AppDef:
        return AppDef("t")

    assert parse(fn, "1", "-2").varargs == [1, -2]
    assert refusal(fn, "1", "x").message.startswith('*sizes takes an int, got "x"')


def test_an_implicit_none_is_a_default() -> None:
    def fn(n: int = None) -> AppDef:  # type: ignore[assignment]  # people write it  # noqa: RUF013
        return AppDef("t")

    assert value(fn, "n") is None
    assert value(fn, "n", config={"n": None}) is None
