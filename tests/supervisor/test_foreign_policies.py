"""Policies of other packages, which a supervisor loads by module and folder, for processes and containers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import containers
import local
import pytest

from torchx.errors import RunOptionError, StateError
from torchx.json_limits import Data
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.app import Role
from torchx.specs.status import AppState
from torchx.supervisor.foreign_policies import create, references_of
from torchx.supervisor.policies import Application

LINES = '''
import sys

from torchx.end_causes import Reason
from torchx.supervisor.policies import Fail, Interest, Policy


class Lines(Policy):
    """Ends a replica after three lines; the replica w/1 may print more."""

    def __init__(self, application):
        self.names = application.replicas
        self.lines = {}

    def interest(self, ordinal):
        return Interest.NOTHING if self.names[ordinal] == "w/1" else Interest.LINES

    def variables(self, ordinal):
        return {"ADDED": self.names[ordinal]}

    def output(self, ordinal, stream, data, at):
        self.lines[ordinal] = self.lines.get(ordinal, 0) + data.count(b"\\n")

    def due(self):
        full = tuple(ordinal for ordinal, count in self.lines.items() if count >= 3)
        for ordinal in full:
            del self.lines[ordinal]
        return [Fail(full, Reason("it printed 3 lines"))] if full else []
'''
ENDLESS = "for n in 1 2 3; do echo $n; done; trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "strangers"
    folder.mkdir()
    (folder / "strange.py").write_text(LINES, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    yield "strange:Lines"
    sys.modules.pop("strange", None)


def check(run: Callable[[Role], DescribeAppResponse], role: Role) -> None:
    """Checks that the policy ends the first replica after three lines, and only that one."""
    described = run(role)
    assert described.state is AppState.FAILED
    first, second = described.roles_statuses[0].replicas
    assert [a.msg for a in first.attempts] == ["it printed 3 lines"]
    assert (first.state, second.state) == (AppState.FAILED, AppState.SUCCEEDED)


SCRIPT = f'if [ "$TORCHX_REPLICA" = w/0 ]; then {ENDLESS}; else seq 9; fi'


def test_a_policy_ends_a_process_after_three_lines(policy: str) -> None:
    def run(role: Role) -> DescribeAppResponse:
        app_id = local.submit(role, policies=[policy], fail_fast=False)
        assert local.scheduler().wait(app_id, 120)
        return local.describe(app_id)

    check(run, local.sh(f'test -n "$ADDED" && {SCRIPT}', 2))


@pytest.mark.docker
def test_a_policy_ends_a_container_after_three_lines(policy: str) -> None:
    with containers.jobs_of_a_test() as jobs:
        check(lambda role: jobs.run(role, policies=[policy], fail_fast=False), containers.sh(SCRIPT, 2))


@pytest.mark.parametrize("name", ["no_such_module:Lines", "strange:NoSuchClass", "pathlib:Path"])
def test_a_wrong_policy_is_an_error_of_the_submission(policy: str, name: str) -> None:
    with pytest.raises(RunOptionError, match=f"run option `policies` is `{name}`, "):
        local.submit(local.sh("true"), policies=[name])


def test_a_policy_that_cannot_be_loaded_again_is_named(policy: str) -> None:
    cfg: Data = {"policies": [policy]}
    references = references_of(cfg)
    Path(references[0].folder, "strange.py").write_text("1 / 0", encoding="utf-8")
    sys.modules.pop("strange")
    with pytest.raises(
        StateError, match=r"the policy strange:Lines of .* cannot be loaded: division by zero"
    ):
        create(references, Application("a", ["w/0"], cfg))


def test_an_error_of_a_policy_ends_only_the_policy(policy: str) -> None:
    module = Path(references_of({"policies": [policy]})[0].folder, "strange.py")
    module.write_text(LINES.replace("self.lines.get(ordinal, 0)", "[][0]"), encoding="utf-8")
    app_id = local.submit(local.sh("seq 3; echo $ADDED", 1), policies=[policy])
    assert local.scheduler().wait(app_id, 120)
    assert local.describe(app_id).state is AppState.SUCCEEDED
    log = local.paths(app_id).supervisor_log.read_text()
    assert log.count("IndexError") == 1
