"""Answers of limited size: small ones are unchanged, and the parts of a large one are the whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import UsageError
from torchx_cli.mcp.paging import LARGEST, LARGEST_WITH_FRAME, page, shortened, size

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=40,
)


def collected(data: Any, at: str = "") -> Any:
    """Returns the list at a path, read page by page."""
    found: list[Any] = []
    cursor = f"{at}:0"
    for _ in range(1000):
        answer = page(data, cursor)
        assert size(answer["result"]) <= LARGEST
        found += answer["result"]
        following = [more for more in answer["more"] if more["at"] == at]
        if not following:
            return found
        cursor = following[0]["cursor"]
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("data", [[], {}, None, {"a": [1, "x"]}, "text"])
def test_a_small_answer_is_unchanged(data: Any) -> None:
    assert page(data) == data


def test_the_pages_of_a_list_are_the_list() -> None:
    rows = [{"id": n, "text": "日本" * (n % 40)} for n in range(400)]
    assert collected(rows) == rows
    assert collected({"a/b~": {"rows": rows}}, "/a~1b~0/rows") == rows


def test_a_large_status_keeps_all_but_the_long_lists() -> None:
    status = {
        "state": "FAILED",
        "roles": [{"role": "w", "replicas": [{"id": n, "attempts": [{"n": 1}] * 9} for n in range(64)]}],
        "usage": {"replicas": [{"id": n, "value": 1.5} for n in range(64)]},
    }
    answer = page(status)
    assert size(answer["result"]) <= LARGEST
    assert answer["result"]["state"] == "FAILED"
    for more in answer["more"]:
        assert more["of"] > more["shown"]
    assert [r["id"] for r in collected(status, "/roles/0/replicas")] == list(range(64))


def test_long_texts_and_mappings_are_cut_too() -> None:
    answer = page({"text": "é" * 9000, "env": {f"k{n}": "v" * 99 for n in range(100)}})
    assert size(answer["result"]) <= LARGEST
    assert {more["at"] for more in answer["more"]} == {"/text", "/env"}
    text = next(more for more in answer["more"] if more["at"] == "/text")
    assert page({"text": "é" * 9000}, text["cursor"])["result"].startswith("é")
    deep = page({f"k{n}": {"a": [1], "b": "x" * 90} for n in range(100)})
    assert (size(deep["result"]) <= LARGEST, deep["more"][0]["of"]) == (True, 100)


@pytest.mark.parametrize("cursor", ["x", "/a", "/b:0", "/a:-1", "/a/9:0", "/a/0:0", ":", "/a:1e3"])
def test_an_invalid_cursor_is_an_error(cursor: str) -> None:
    with pytest.raises(UsageError, match="not a cursor"):
        page({"a": [1, 2]}, cursor)


@given(st.lists(PLAIN, max_size=40), st.integers(1, 30))
def test_every_answer_is_small(data: list[Any], factor: int) -> None:
    large = json.loads(json.dumps(data)) * factor
    answer = page(large)
    assert size(answer) <= LARGEST + 400
    if size(large) <= LARGEST:
        assert answer == large


HANDLE = "local_cwd://torchx/" + "a" * 20_000


@pytest.mark.parametrize(
    "data",
    [
        [HANDLE],
        {HANDLE: 1},
        {HANDLE: [1] * 3000},
        {"handles": {HANDLE: {"state": "x" * 2000}}},
        {"error": {"message": f"`{HANDLE}` is unknown", "given": HANDLE, "hint": HANDLE}},
        [{"handle": HANDLE[:1100], "n": n} for n in range(50)],
        [[{"k" * 3000: ["y" * 3000]}]],
    ],
    ids=lambda data: str(data)[:30],
)
def test_long_handles_leave_no_answer_too_large(data: Any) -> None:
    answer = page(data)
    assert answer != data
    assert size(answer["result"]) <= LARGEST
    assert size(shortened(answer, LARGEST_WITH_FRAME)) <= LARGEST_WITH_FRAME
