"""Absence is not evidence: recorded answers with a part removed, or a word that is not known."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absence import check
from clusterobjects import changed, paths_of, without

from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.status import describe
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import is_terminal

NOW = 1_795_300_000.0
RESOURCES = Path(__file__).parents[2] / "resources" / "kubernetes"
RECORDED = {
    f"{file}: {name}": found
    for file in ("states", "disruptions")
    for name, found in json.loads((RESOURCES / f"{file}.json").read_text(encoding="utf-8")).items()
}
REQUIRED = {
    ("job", "metadata"),
    ("job", "metadata", "annotations"),
    ("job", "spec"),
    ("job", "spec", "completions"),
}
"""Parts without which it is another application: they are in the record, which these answers lack."""


def response(found: dict[str, Any]) -> DescribeAppResponse:
    job = found["job"]
    more = found.get("pods", []), found.get("events", []), found.get("nodes", {})
    return describe(Facts("research", job["metadata"]["name"], "job", [job], [job], *more), NOW)


def mutations(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in paths_of(found):
        # an object without metadata or a name is left out when it is read
        if len(path) < 2 or path in REQUIRED or path[-1] == "metadata" or path[-2:] == ("metadata", "name"):
            continue
        yield f"without {path}", without(found, path)
        value: Any = found
        for key in path:
            value = value[key]
        if isinstance(value, str):
            yield f"NEWWORD at {path}", changed(found, path, "NEWWORD")


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_ends_by_what_is_absent(name: str) -> None:
    found = RECORDED[name]
    before = response(found)
    for mutation, mutated in mutations(found):
        check(before, response(copy.deepcopy(mutated)), mutation)


@pytest.mark.parametrize("name", RECORDED)
def test_pods_that_are_gone_are_no_first_failure(name: str) -> None:
    found = copy.deepcopy(RECORDED[name])
    before = response(found)
    after = response({**found, "pods": []})
    assert not is_terminal(after.state) or after.state is before.state
    assert after.first_failure is None or after.first_failure.result == before.first_failure.result  # type: ignore[union-attr]
