"""Absence is not evidence: recorded containers with a field removed, or a string that is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absence import check
from clusterobjects import changed, paths_of, without

from torchx.schedulers.docker.containers import read
from torchx.schedulers.docker.lookup import consistent
from torchx.schedulers.docker.status import describe
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState

NOW = 1_795_890_000.0
RECORDED = json.loads(
    (Path(__file__).parents[2] / "resources" / "docker" / "containers.json").read_text(encoding="utf-8")
)
IDENTITY = {"Name", "Config", "Hostname", "Labels"}
"""Without these it is not a container of the application, or its mark is another one."""
DECIDED_BY = {"Error", "FinishedAt"}
"""An error is the evidence itself, and the times of ends are their order."""


def described(inspected: list[dict[str, Any]]) -> DescribeAppResponse:
    found = [container for each in inspected if (container := read(each)) is not None]
    return describe(consistent(sorted(found, key=lambda c: (c.created, c.name))), NOW)


def mutations(inspected: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in paths_of(inspected):
        # a container that was removed is reported as such
        if len(path) < 2 or path[1] in IDENTITY or path[-1] in DECIDED_BY:
            continue
        yield f"without {path}", without(inspected, path)
        value: Any = inspected
        for key in path:
            value = value[key]
        if isinstance(value, str):
            yield f"NEWWORD at {path}", changed(inspected, path, "NEWWORD")


@pytest.mark.parametrize("title", RECORDED)
def test_nothing_ends_by_what_is_absent(title: str) -> None:
    then = described(RECORDED[title])
    for mutation, mutated in mutations(RECORDED[title]):
        check(then, described(mutated), mutation)


@pytest.mark.parametrize("status", ["NEWWORD", ""])
def test_a_container_in_a_new_state_ends_no_other(status: str) -> None:
    inspected = RECORDED["running"]
    for number in range(len(inspected)):
        found = described(changed(inspected, (number, "State", "Status"), status))
        assert (found.state, found.msg) == (AppState.UNKNOWN, "the engine reports an unknown state")
