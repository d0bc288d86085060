"""The order of starts of roles without an order of their own, decided before any engine sees them."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from program import torchx

from torchx.runner import first_failure, get_runner
from torchx.runner.prepare import prepare
from torchx.services.rules import check
from torchx.settings import AFTER
from torchx.specs import AppDef, after, service
from torchx.specs.app import Role
from torchx.specs.status import AppState, AppStatus, AttemptStatus, FirstFailure, ReplicaStatus, RoleStatus

AT = datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)


def role(name: str) -> Role:
    return Role(name, "", entrypoint="true")


def order(*roles: Role) -> dict[str, list[str]]:
    """Returns the order of starts of a prepared application."""
    ready = prepare(AppDef("a", list(roles)), "local_cwd", "s", None, lambda: pytest.fail("not read"))
    check(ready)
    return {each.name: each.metadata[AFTER] for each in ready.roles if AFTER in each.metadata}


@pytest.fixture(autouse=True)
def without_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx.runner.prepare.run_env", lambda *args: {})


def test_ordinary_roles_start_after_services_with_a_probe() -> None:
    probed, started = service(role("probed"), "tcp:80"), service(role("started"))
    found = order(role("one"), probed, started, role("two"))
    assert found == {"one": ["probed"], "two": ["probed"]}


def test_a_role_with_its_own_order_keeps_it() -> None:
    roles = [service(role("server"), "tcp:80"), after(role("now"), []), after(role("later"), ["now"])]
    assert order(*roles) == {"now": [], "later": ["now"]}
    assert order(role("one"), role("two")) == {}


def test_services_never_wait_for_roles_that_wait_for_them() -> None:
    first = service(role("first"), "tcp:80", after=["make"])
    second = service(role("second"), "tcp:81", after=["fetch"])
    alone = service(role("alone"), "tcp:82")
    found = order(first, second, role("make"), role("fetch"), role("train"), alone)
    assert found["train"] == ["first", "second", "alone"]
    assert found["make"] == ["second", "alone"]
    assert found["fetch"] == ["alone"], "`second` starts after it, and `first` after `make` after `second`"


@pytest.mark.parametrize("scheduler", ["local_cwd", "local_docker", "slurm", "kubernetes"])
def test_each_engine_gets_the_order(scheduler: str) -> None:
    image = "busybox:1" if scheduler in ("local_docker", "kubernetes") else ""
    server = service(Role("server", image, entrypoint="sh"), "tcp:80")
    cfg = {"namespace": "default"} if scheduler == "kubernetes" else {}
    with get_runner() as runner:
        info = runner.dryrun(AppDef("a", [server, Role("train", image, entrypoint="sh")]), scheduler, cfg)
    assert info.app is not None
    assert info.app.get_role("train").metadata[AFTER] == ["server"]


INFERENCE = '''
import torchx.specs as specs

SERVE = 'while [ ! -e go ]; do sleep 0.1; done; exec python3 -m http.server "$TORCHX_PORT_HTTP"'
CALL = """
import os, urllib.request
urllib.request.urlopen(f"http://{os.environ['TORCHX_HOSTS_SERVER']}:{os.environ['TORCHX_PORT_HTTP']}/")
"""


def app(wait: bool = True) -> specs.AppDef:
    """A server, and a trainer that uses it."""
    server = specs.Role("server", "", entrypoint="sh", args=["-c", SERVE], port_map={"http": 8000})
    trainer = specs.Role("trainer", "", entrypoint="python3", args=["-c", CALL])
    specs.service(server, ready="http:http/")
    return specs.AppDef("inference", [server, trainer if wait else specs.after(trainer, [])])
'''


def test_a_trainer_meets_a_server_that_is_ready(tmp_path: Path) -> None:
    (tmp_path / "inference.py").write_text(INFERENCE)
    shown = torchx("run", "--dryrun", "inference.py:app", cwd=tmp_path).stdout
    assert re.search(r"torchx/after:\n +- server\n", shown)
    handle = torchx("run", "-d", "inference.py:app", cwd=tmp_path).stdout.strip()
    (tmp_path / "go").touch()
    assert torchx("wait", handle).returncode == 0
    assert 'metadata torchx/after  ["server"]' in torchx("describe", handle).stdout


def test_reports_name_a_service_that_was_not_ready(tmp_path: Path) -> None:
    (tmp_path / "inference.py").write_text(INFERENCE)
    failed = torchx("run", "inference.py:app", "--wait", "false", cwd=tmp_path)
    assert failed.returncode == 1
    named = "not ready then: server/0; to make a role wait for them: specs.after"
    assert named in failed.stderr
    assert named in torchx("why", failed.stdout.strip()).stdout


@pytest.mark.parametrize(
    ("ready", "expected"), [(None, ["server/0"]), (9, []), (10, []), (11, ["server/0"])], ids=str
)
def test_only_services_that_were_not_ready_are_named(ready: int | None, expected: list[str]) -> None:
    def at(seconds: int | None) -> datetime.datetime | None:
        return None if seconds is None else AT + datetime.timedelta(seconds=seconds)

    def replica(name: str, *attempts: AttemptStatus) -> ReplicaStatus:
        return ReplicaStatus(0, AppState.FAILED, name, "", attempts=list(attempts))

    served = AttemptStatus(1, AppState.CANCELLED, started_at=at(0), ended_at=at(12), ready_at=at(ready))
    later = AttemptStatus(2, AppState.CANCELLED, started_at=at(13), ended_at=at(14), ready_at=at(14))
    trained = AttemptStatus(1, AppState.FAILED, started_at=at(0), ended_at=at(10), exit_code=1)
    other = AttemptStatus(1, AppState.CANCELLED, started_at=at(0), ended_at=at(12))
    roles = [
        RoleStatus("server", [replica("server", served, later)], ready=0),
        RoleStatus("trainer", [replica("trainer", trained)]),
        RoleStatus("other", [replica("other", other)]),
    ]
    status = AppStatus(AppState.FAILED, roles=roles)
    assert first_failure.unready_services(status, FirstFailure("trainer", 0, 1, 1)) == expected
    assert first_failure.unready_services(status, FirstFailure("gone", 0, 1, 1)) == []
