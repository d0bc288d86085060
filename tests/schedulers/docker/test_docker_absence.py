"""Absence is not evidence: recorded containers with a field removed, or a string that is not known."""

from __future__ import annotations

from typing import Any

import pytest
from absence import check
from clusterobjects import changed
from recorded import CONTAINERS, mutations, of_containers

from torchx.specs.status import AppState

IDENTITY = {"Name", "Config", "Hostname", "Labels"}
"""Without these it is not a container of the application, or its mark is another one."""
DECIDED_BY = {"Error", "FinishedAt"}
"""An error is the evidence itself, and the times of ends are their order."""


def is_needed(path: tuple[Any, ...]) -> bool:
    # a container that was removed is reported as such
    return len(path) < 2 or path[1] in IDENTITY or path[-1] in DECIDED_BY


@pytest.mark.parametrize("title", CONTAINERS)
def test_nothing_ends_by_what_is_absent(title: str) -> None:
    then = of_containers(CONTAINERS[title])
    for mutation in mutations(CONTAINERS[title]):
        if not is_needed(mutation.path):
            check(then, of_containers(mutation.answer), str(mutation))


@pytest.mark.parametrize("status", ["NEWWORD", ""])
def test_a_container_in_a_new_state_ends_no_other(status: str) -> None:
    inspected = CONTAINERS["containers: running"]
    for number in range(len(inspected)):
        found = of_containers(changed(inspected, (number, "State", "Status"), status))
        assert (found.state, found.msg) == (AppState.UNKNOWN, "the engine reports an unknown state")
