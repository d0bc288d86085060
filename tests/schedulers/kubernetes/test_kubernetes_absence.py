"""Absence is not evidence: recorded answers with a part removed, or a word that is not known."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from absence import check
from recorded import OBJECTS, mutations, of_objects

from torchx.specs.status import is_terminal

REQUIRED = {
    ("job", "metadata"),
    ("job", "metadata", "annotations"),
    ("job", "spec"),
    ("job", "spec", "completions"),
}
"""Parts without which it is another application: they are in the record, which these answers lack."""


def is_needed(path: tuple[Any, ...]) -> bool:
    # an object without metadata or a name is left out when it is read
    is_name = path[-1] == "metadata" or path[-2:] == ("metadata", "name")
    return len(path) < 2 or path in REQUIRED or is_name


@pytest.mark.parametrize("name", OBJECTS)
def test_nothing_ends_by_what_is_absent(name: str) -> None:
    before = of_objects(OBJECTS[name])
    for mutation in mutations(OBJECTS[name]):
        if not is_needed(mutation.path):
            check(before, of_objects(copy.deepcopy(mutation.answer)), str(mutation))


@pytest.mark.parametrize("name", OBJECTS)
def test_pods_that_are_gone_are_no_first_failure(name: str) -> None:
    found = copy.deepcopy(OBJECTS[name])
    before = of_objects(found)
    after = of_objects({**found, "pods": []})
    assert not is_terminal(after.state) or after.state is before.state
    assert after.first_failure is None or after.first_failure.result == before.first_failure.result  # type: ignore[union-attr]
