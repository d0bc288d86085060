"""Run options: reading them from text and JSON, checking them, and what they print."""

from __future__ import annotations

import copy
from typing import Any, Dict, List  # noqa: UP035 (plugins of older Pythons spell types so)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx.pairs import split_elements
from torchx.specs import InvalidRunConfigException, runopt, runopts
from torchx.specs.api import CfgVal, get_type_name, to_dict


@pytest.fixture
def opts() -> runopts:
    made = runopts()
    made.add("FOO", type_=List[str], default=["a"], help="a list")  # noqa: UP006
    made.add("BAR", type_=str, required=True, help="a text\nof two lines")
    made.add("cluster_name", type_=str, help="a name")
    made.add("n", type_=int, default=3, help="a number")
    made.add("rate", type_=float, default=0.5, help="a fraction")
    made.add("D", type_=dict[str, str], help="pairs")
    made.add("b", type_=bool, default=False, help="a switch")
    return made


@pytest.mark.parametrize(
    ("text", "cfg"),
    [
        ("", {}),
        ("FOO=v1", {"FOO": ["v1"]}),
        ("FOO=v1,v2", {"FOO": ["v1", "v2"]}),
        ("FOO=v1;v2", {"FOO": ["v1", "v2"]}),
        ("FOO=v1,v2,BAR=v3", {"FOO": ["v1", "v2"], "BAR": "v3"}),
        ("FOO=v1;v2,BAR=v3", {"FOO": ["v1", "v2"], "BAR": "v3"}),
        ("FOO=v1;v2;BAR=v3", {"FOO": ["v1", "v2"], "BAR": "v3"}),
        ("FOO=v1,,v2,", {"FOO": ["v1", "v2"]}),
        ("FOO='a,b',c", {"FOO": ["a,b", "c"]}),
        ("BAR='a,n=2',n=4", {"BAR": "a,n=2", "n": 4}),
        ("BAR=x=y,n=4", {"BAR": "x=y", "n": 4}),
        ("BAR=,n=4", {"BAR": "", "n": 4}),
        ("BAR=1,BAR=2", {"BAR": "2"}),
        (" BAR = a b , n = 4 ", {"BAR": "a b", "n": 4}),
        ("clusterName=x", {"cluster_name": "x"}),
        ("D=a:1,b:http://x:80,n=1", {"D": {"a": "1", "b": "http://x:80"}, "n": 1}),
        ("b=Yes,rate=2", {"b": True, "rate": 2.0}),
        ("UNKNOWN=VALUE,n=1", {"n": 1}),
    ],
)
def test_options_from_text(opts: runopts, text: str, cfg: dict[str, CfgVal]) -> None:
    assert opts.cfg_from_str(text) == cfg


@pytest.mark.parametrize("text", ["foo", "=x", ",n=1", " "])
def test_text_without_pairs(opts: runopts, text: str) -> None:
    with pytest.raises(UsageError, match="does not begin with a `key=value` pair") as caught:
        opts.cfg_from_str(text)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n=x", '`n` takes int, got "x"'),
        ("rate=fast", '`rate` takes float, got "fast"'),
        ("b=maybe", '`b` takes bool, got "maybe"\n  true or false'),
        ("D=a", '`D` takes dict\\[str, str\\], got "a"\n  e.g. -cfg D=name:value'),
    ],
)
def test_text_of_the_wrong_type(opts: runopts, text: str, problem: str) -> None:
    with pytest.raises(InvalidRunConfigException, match=problem) as caught:
        opts.cfg_from_str(text)
    assert caught.value.cfg_key == text.split("=")[0]


def test_unknown_option_is_error_where_that_is_requested(opts: runopts) -> None:
    with pytest.raises(InvalidRunConfigException, match=r"(?s)`clusterNam`.*did you mean `cluster_name`"):
        opts.cfg_from_str("clusterNam=x", strict=True)
    with pytest.raises(InvalidRunConfigException, match="unknown run option `x`"):
        opts.cfg_from_json_repr('{"x": 1}', strict=True)


@pytest.mark.parametrize(
    ("text", "cfg"),
    [
        ("{}", {}),
        ('{"FOO": ["a", 1], "BAR": "x", "D": {"a": 1}}', {"FOO": ["a", "1"], "BAR": "x", "D": {"a": "1"}}),
        ('{"FOO": "a,b", "n": "3", "b": "on"}', {"FOO": ["a,b"], "n": 3, "b": True}),
        (
            '{"clusterName": "x", "rate": 1, "n": null, "zzz": 1}',
            {"cluster_name": "x", "rate": 1.0, "n": None},
        ),
    ],
)
def test_options_from_json(opts: runopts, text: str, cfg: dict[str, CfgVal]) -> None:
    assert opts.cfg_from_json_repr(text) == cfg


@pytest.mark.parametrize("text", ["[1]", "nonsense", '{"n": "x"}', '{"n": [1]}', '{"BAR": 1}', '{"FOO": 1}'])
def test_other_json_is_refused(opts: runopts, text: str) -> None:
    with pytest.raises(InvalidRunConfigException):
        opts.cfg_from_json_repr(text)


def test_defaults_are_filled_in_and_nothing_is_changed(opts: runopts) -> None:
    cfg: dict[str, CfgVal] = {"BAR": "x", "clusterName": "c", "FOO": ["q"], "rate": 2}
    before = copy.deepcopy(cfg)
    resolved = opts.resolve(cfg)
    assert resolved == {
        "BAR": "x",
        "cluster_name": "c",
        "FOO": ["q"],
        "rate": 2.0,
        "n": 3,
        "D": None,
        "b": False,
    }
    resolved["FOO"] += ["r"]  # type: ignore[operator]  # a list
    assert cfg == before
    opts.resolve({"BAR": "x"})["FOO"] += ["r"]  # type: ignore[operator]
    assert opts.resolve({"BAR": "x"})["FOO"] == ["a"], "a default is copied too"


def test_none_is_no_value_so_the_default_holds(opts: runopts) -> None:
    resolved = opts.resolve({"BAR": "x", "n": None, "FOO": None, "cluster_name": None})
    assert (resolved["n"], resolved["FOO"], resolved["cluster_name"]) == (3, ["a"], None)


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({}, "`BAR` is required"),
        ({"BAR": None}, "`BAR` is required"),
        ({"BAR": 1}, r"`BAR` takes str, got 1 \(int\)"),
        ({"BAR": "x", "n": "3"}, '`n` takes int, got "3"'),
        ({"BAR": "x", "n": 1.0}, "`n` takes int"),
        ({"BAR": "x", "b": 1}, "`b` takes bool"),
        ({"BAR": "x", "rate": True}, "`rate` takes float"),
        ({"BAR": "x", "FOO": "a"}, r"`FOO` takes list\[str\]"),
        ({"BAR": "x", "FOO": [1]}, r"`FOO` takes list\[str\]"),
        ({"BAR": "x", "D": {"a": 1}}, r"`D` takes dict\[str, str\]"),
        ({"BAR": "x", "FO": ["a"]}, r"(?s)unknown run option `FO`.*did you mean `FOO`"),
        ({"BAR": "x", "clusterName": "a", "cluster_name": "b"}, "`cluster_name` is given twice"),
    ],
)
def test_what_is_wrong_is_reported(opts: runopts, cfg: dict[str, CfgVal], problem: str) -> None:
    with pytest.raises(InvalidRunConfigException, match=problem) as caught:
        opts.resolve(cfg)
    assert caught.value.cfg == cfg


def test_the_error_keeps_its_documented_form() -> None:
    error = InvalidRunConfigException("why", "key", {"a": 1})
    assert (str(error), error.cfg_key) == ("why", "key")


def test_options_are_checked_when_they_are_added() -> None:
    opts = runopts()
    with pytest.raises(ValueError, match="cannot have a default"):
        opts.add("x", int, "h", 10, True)
    with pytest.raises(TypeError, match=r"must be int, got '10' \(str\)"):
        opts.add("x", int, "h", "10")
    with pytest.raises(TypeError, match=r"must be list\[str\]"):
        opts.add("x", list[str], "h", [1])  # type: ignore[list-item]  # what is tested
    assert len(opts) == 0


def test_options_are_kept_in_order_and_joined(opts: runopts) -> None:
    assert [key for key, _ in opts] == ["FOO", "BAR", "cluster_name", "n", "rate", "D", "b"]
    assert opts.get("clusterName") is opts.get("cluster_name") is not None
    assert opts.get("nope") is None
    assert ("n" in opts, "nope" in opts, len(opts)) == (True, False, 7)
    other = runopts()
    other.add("n", int, "another", 5)
    both = opts | other
    assert (both.get("n"), len(both)) == (runopt(5, int, False, "another"), 7)
    assert opts.get("n") == runopt(3, int, False, "a number")
    opts.update(other)
    assert opts.get("n") == runopt(5, int, False, "another")


def test_the_usage_text() -> None:
    opts = runopts()
    opts.add("where", str, "the partition\nto run in", required=True)
    opts.add("tags", list[str], "words", ["a"])
    assert repr(opts) == (
        "    usage:\n"
        "        where=WHERE,[tags=TAGS]\n"
        "\n"
        "    required arguments:\n"
        "        where=WHERE (str)\n"
        "            the partition\n"
        "            to run in\n"
        "\n"
        "    optional arguments:\n"
        "        tags=TAGS (list[str], ['a'])\n"
        "            words"
    )


@pytest.mark.parametrize(
    ("tp", "text", "value"),
    [
        *[(bool, text, True) for text in ("true", "1", "YES", "On")],
        *[(bool, text, False) for text in ("False", "0", "no", "OFF")],
        (int, "1", 1),
        (float, "1", 1.0),
        (str, "", ""),
        (list[str], "a,b;c", ["a", "b", "c"]),
        (List[str], ",a,", ["a"]),  # noqa: UP006
        (list[str], "", []),
        (dict[str, str], "a:1;b:x:y", {"a": "1", "b": "x:y"}),
        (Dict[str, str], "a:", {"a": ""}),  # noqa: UP006
        (dict[str, str], "", {}),
    ],
)
def test_a_text_is_cast(tp: Any, text: str, value: CfgVal) -> None:
    cast = runopt(None, tp, False, "h").cast_to_type(text)
    assert (cast, type(cast)) == (value, type(value))


@pytest.mark.parametrize(("tp", "text"), [(bool, ""), (bool, " true"), (int, "1.0"), (dict[str, str], "a")])
def test_a_text_that_cannot_be_cast(tp: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of|invalid literal|is not a `key:value`"):
        runopt(None, tp, False, "h").cast_to_type(text)


def test_value_is_of_type_with_what_it_holds() -> None:
    is_type = runopts.is_type
    assert (
        is_type(1, int)
        and is_type(True, int)
        and is_type([], list[str])
        and is_type({"a": "b"}, dict[str, str])
    )
    assert not is_type(1, float) and not is_type([1], list[str]) and not is_type({"a": 1}, dict[str, str])  # type: ignore[list-item, dict-item]
    assert not is_type("a", list[str]) and not is_type(None, str)


def test_names_of_types() -> None:
    names = [get_type_name(tp) for tp in (int, List[str], dict[str, int], list)]  # noqa: UP006
    assert names == ["int", "list[str]", "dict[str, int]", "list"]


_plain = st.text("ab1.:/-_ ").map(str.strip)
_value = st.one_of(_plain, st.lists(_plain, max_size=3).map(",".join), st.text("ab=").map(lambda t: f"x{t}"))


@settings(max_examples=100)
@given(st.dictionaries(st.text("abK_-.", min_size=1), _value, min_size=1), st.sampled_from([",", ";", " , "]))
def test_pairs_that_are_written_are_read_back(pairs: dict[str, str], separator: str) -> None:
    assert to_dict(separator.join(f"{key}={value}" for key, value in pairs.items())) == pairs


@settings(max_examples=100)
@given(st.dictionaries(st.text("abc", min_size=1), st.text('ab,;= "', max_size=8), min_size=1))
def test_quotes_protect_all_that_stands_between(pairs: dict[str, str]) -> None:
    quoted = {key: value for key, value in pairs.items() if "'" not in value}
    assert to_dict(",".join(f"{key}='{value}'" for key, value in quoted.items())) == quoted


@settings(max_examples=100)
@given(st.text("ab,;='\" ", max_size=16))
def test_any_text_is_pairs_or_a_usage_error(text: str) -> None:
    try:
        pairs = to_dict(text)
    except UsageError:
        return
    assert all(key and key == key.strip() and not set(key) & set(",;=") for key in pairs)
    assert sum(map(len, pairs.values())) <= len(text)


@settings(max_examples=100)
@given(st.lists(st.text("ab' ", min_size=1).filter(lambda t: t.strip("'") == t), min_size=1))
def test_elements_that_are_joined_are_split_again(elements: list[str]) -> None:
    assert split_elements(",".join(elements)) == elements
    assert split_elements(";".join(f'"{e},"' for e in elements)) == [f"{e}," for e in elements]


@settings(max_examples=60)
@given(
    st.integers(), st.booleans(), st.lists(st.text("abc", min_size=1), min_size=1), st.permutations(range(3))
)
def test_every_option_is_read_whatever_the_order(n: int, b: bool, foo: list[str], order: list[int]) -> None:
    opts = runopts()
    opts.add("n", int, "h")
    opts.add("b", bool, "h")
    opts.add("foo", list[str], "h")
    parts = [f"n={n}", f"b={b}", f"foo={','.join(foo)}"]
    assert opts.cfg_from_str(",".join(parts[i] for i in order), strict=True) == {"n": n, "b": b, "foo": foo}
