"""Absence is not evidence: recorded journals with a part removed, or a string that is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from absence import check_application
from recorded import JOURNALS, mutations, of_journal

from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState, is_terminal

WRITTEN_IF_TRUE = {("exit", "needed"), ("exit", "stopped")}
"""Fields whose absence has a meaning: the replica has ended by itself, and not too early."""


def mutated(events: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for number, event in enumerate(events):
        before, after = events[:number], events[number + 1 :]
        yield f"without {event}", before + after
        for mutation in mutations(event):
            path = mutation.path
            has_meaning = (event["e"], path[0]) in WRITTEN_IF_TRUE or path == ("e",)
            if mutation.is_word or (isinstance(path[-1], str) and not has_meaning):
                yield f"{mutation} of {event}", [*before, mutation.answer, *after]


def check_attempts(then: DescribeAppResponse, now: DescribeAppResponse, mutation: str) -> None:
    """Checks that no attempt has the end of another one."""
    for replica, before in zip(now.replicas, then.replicas, strict=True):
        known = {attempt.number: attempt.state for attempt in before.attempts}
        for attempt in replica.attempts:
            state = known[attempt.number]
            assert attempt.state is not AppState.SUCCEEDED or state is AppState.SUCCEEDED, mutation
            assert not is_terminal(attempt.state) or is_terminal(state), mutation


@pytest.mark.parametrize("title", JOURNALS)
def test_nothing_ends_by_what_is_absent(title: str) -> None:
    roles, events = JOURNALS[title]["roles"], JOURNALS[title]["events"]
    for length in range(1, len(events) + 1):  # as it was at each moment
        seen = events[:length]
        then = of_journal(roles, seen)
        for mutation, mutant in mutated(seen):
            now = of_journal(roles, mutant)
            check_application(then, now, mutation)
            check_attempts(then, now, mutation)
