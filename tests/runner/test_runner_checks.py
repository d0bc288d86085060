"""What the runner looks at before a scheduler sees an application: what cannot be is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_scheduler import MemoryScheduler

from torchx.errors import UsageError
from torchx.runner import Runner
from torchx.scheduling.streams import Streams
from torchx.specs.app import AppDef, RetryPolicy, Role


@pytest.fixture
def engine() -> MemoryScheduler:
    return MemoryScheduler("s")


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: MemoryScheduler) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    with Runner("s", {"memory": lambda session, **params: engine}) as made:
        yield made


def make(**fields: object) -> AppDef:
    """An application of one role with these fields."""
    return AppDef("x", [Role("r", "img", entrypoint="e", **fields)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (AppDef("x", [Role("", "img", entrypoint="e")]), "application `x` has a role without a name"),
        (AppDef("x", [Role("a\nb", "img", entrypoint="e")]), r"a role named 'a\\nb'"),
        (AppDef("x", [Role("a\x1b[0m", "img", entrypoint="e")]), r"a role named 'a\\x1b"),
        (make(max_retries=-1), "role `r` of application `x` has max_retries=-1; expected 0 or more"),
        (make(num_replicas=1.5), "num_replicas=1.5, expected a whole number"),
        (make(max_retries="2"), "max_retries='2', expected a whole number"),
        (make(min_replicas=1.0), "min_replicas=1.0, expected a whole number or None"),
        (make(args="hello"), "args='hello', expected a list of strings\n.*'hello'"),
        (make(args=None), "args=None, expected a list of strings"),
        (make(env=None), "env=None, expected a dict of strings"),
        (make(retry_policy="SOMETIMES"), "retry_policy='SOMETIMES', expected REPLICA, ROLE or APPLICATION"),
        (make(args=["\ud800"]), "which contains a lone surrogate"),
    ],
)
def test_what_no_scheduler_could_run_is_refused(
    runner: Runner, engine: MemoryScheduler, app: AppDef, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        runner.run(app, "memory")
    assert engine.jobs == {}


def test_a_retry_policy_may_be_given_by_name(runner: Runner) -> None:
    app = make(retry_policy="REPLICA")
    info = runner.dryrun(app, "memory")
    assert info.app is not None
    assert info.app.roles[0].retry_policy is RetryPolicy.REPLICA
    assert type(app.roles[0].retry_policy) is str, "the given one is left as it is"


def test_any_bytes_may_be_an_argument(runner: Runner) -> None:
    info = runner.dryrun(make(args=["\udcff", "é"]), "memory")
    assert info.app is not None
    assert info.app.roles[0].args == ["\udcff", "é"]


def test_programs_run_only_in_replicas_of_schedulers_that_can(runner: Runner) -> None:
    streams = Streams(io.BytesIO(), io.BytesIO())
    with pytest.raises(UsageError, match="memory cannot run programs in its replicas") as raised:
        runner.execute("memory://s/x", "r", 0, ["true"], streams)
    assert raised.value.code == "not_supported"
