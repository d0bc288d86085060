"""What holds for all texts and values: what is written is read back, and no word is lost or changed."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hypothesis import assume, example, given
from hypothesis import strategies as st

from torchx.command_line import looks_like_flag
from torchx.discovery import ArgumentError, component_of, parse_arguments
from torchx.discovery.call.command_line import flag_table
from torchx.discovery.types.annotations import converter_of
from torchx.discovery.types.containers import plain_data
from torchx.specs import AppDef
from torchx.util.types import decode


class Colour(enum.Enum):
    RED = "red"
    GREEN = 2


@dataclass(frozen=True)
class Point:
    x: int
    name: str = "p"


floats = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
plain_texts = texts.filter(lambda s: "," not in s and s == s.strip() and s != "")
scalars: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, floats),
    (bool, st.booleans()),
    (Colour, st.sampled_from(Colour)),
    (Literal["a", 2, True], st.sampled_from(["a", 2, True])),
    (str, plain_texts),
]


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """A type, and a value of it that a text can stand for."""
    chosen = draw(st.sampled_from(scalars))
    kind: Any = chosen[0]
    values = chosen[1]
    form = draw(st.sampled_from(["plain", "optional", "list", "tuple", "pair", "dict", "nested", "point"]))
    if form == "plain":
        return kind, draw(values)
    if form == "optional":
        return kind | None, draw(values)
    if form == "list":
        return list[kind], draw(st.lists(values, min_size=1))
    if form == "tuple":
        return tuple[kind, ...], tuple(draw(st.lists(values)))
    if form == "pair":
        return tuple[kind, int], (draw(values), draw(st.integers()))
    if form == "dict":
        return dict[str, kind], draw(st.dictionaries(texts, texts if kind is str else values))
    if form == "nested":
        return dict[str, list[kind]], draw(st.dictionaries(texts, st.lists(values)))
    return list[Point], draw(st.lists(st.builds(Point, st.integers(), texts), min_size=1))


@given(typed_values())
@example((dict[str, str], {}))
@example((dict[str, str], {"a": "b,c=d"}))
@example((dict[str, str], {"a": "'"}))
@example((dict[str, str], {" a ": " "}))
@example((list[str], ["a", ""]))
def test_a_value_that_is_written_is_read_back(case: tuple[Any, Any]) -> None:
    kind, value = case
    converter = converter_of(kind)
    text = converter.write(value)
    again = converter.read(text)
    assert (again, type(again)) == (value, type(value))
    assert decode(text, kind) == value


@given(typed_values())
def test_a_value_survives_json(case: tuple[Any, Any]) -> None:
    kind, value = case
    data = json.loads(json.dumps(plain_data(value)))
    assert converter_of(kind).accept(data) == value


def echo(
    *words: str, msg: str = "", msg_id: int = 0, message: str = "", quiet: bool = False, path: Path = Path()
) -> AppDef:
    return AppDef("e")


COMPONENT = component_of(echo)


@given(texts)
def test_text_comes_through_as_it_is_or_is_refused(text: str) -> None:
    assert parse_arguments(COMPONENT, [f"--msg={text}"]).values["msg"] == text
    try:
        got = parse_arguments(COMPONENT, ["--msg", text]).values["msg"]
    except ArgumentError:
        assert text == "--" or looks_like_flag(text)
    else:
        assert got == text


@given(st.lists(texts))
def test_words_for_the_script_come_through_as_they_are(words: list[str]) -> None:
    assert parse_arguments(COMPONENT, ["--", *words]).varargs == words
    assert parse_arguments(COMPONENT, ["--quiet", "script", *words]).varargs == ["script", *words]


@given(
    st.lists(
        st.sampled_from(["--msg", "--msg=x", "-x", "--quiet", "--no-quiet", "true", "--", "3", "--m", "-"])
    )
)
def test_any_words_are_read_or_refused_with_a_sentence(words: list[str]) -> None:
    try:
        given_words = parse_arguments(COMPONENT, words)
    except ArgumentError as error:
        assert error.message
        assert "\n" not in error.message
    else:
        assert set(given_words.values) == {"msg", "msg_id", "message", "quiet", "path"}


@given(st.data())
def test_an_unambiguous_beginning_is_the_flag(data: st.DataObject) -> None:
    flags = flag_table(COMPONENT)
    full = data.draw(st.sampled_from([w for w in flags.exact if w.startswith("--")]))
    begin = full[: data.draw(st.integers(3, len(full)))]
    others = [w for w in flags.exact if w.startswith(begin)]
    assume(begin in flags.exact or len(others) == 1)
    hit = flags.find(begin, [])
    wanted = flags.exact[begin if begin in flags.exact else others[0]]
    assert (hit.flag, hit.negated) == (wanted.flag, wanted.negated)


@given(texts)
def test_only_words_of_bool_are_read_as_one(text: str) -> None:
    word = text.strip().lower()
    read: Callable[[str], bool] = converter_of(bool).read
    if word in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        assert read(text) is (word in ("true", "1", "yes", "on"))
    else:
        try:
            read(text)
        except ValueError:
            return
        raise AssertionError(f"{text!r} was read as a bool")
