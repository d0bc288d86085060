"""Names, ports and values that every scheduler rejects or honours in the same way, before a submission."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from torchx.errors import UsageError
from torchx.runner import get_runner
from torchx.schedulers import get_scheduler_factories
from torchx.scheduling.base import Scheduler
from torchx.specs import AppDef, Resource, Role
from torchx.specs.serialize import app_to_dict
from torchx_cli.terminal.plain import to_plain

RECORD = "    torchx.pytorch.org/app: "
"""Start of the line with the application as JSON in a manifest for Kubernetes."""
SCHEDULERS = sorted(get_scheduler_factories())


@pytest.fixture(params=SCHEDULERS)
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler[Any]]:
    made = get_scheduler_factories()[request.param]("torchx")
    yield made
    made.close()


def role(name: str = "r", **changes: Any) -> Role:
    return Role(name, "/", entrypoint="true", resource=Resource(1, 0, 64), **changes)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ([role("a.b"), role("a_b")], "role `a.b` and role `a_b` would share the variable TORCHX_HOSTS_A_B"),
        ([role("A"), role("a")], "role `A` and role `a` would share the variable TORCHX_HOSTS_A"),
        (
            [role("a-b"), role("x"), role("a_b")],
            "role `a-b` and role `a_b` would share the variable TORCHX_HOSTS_A_B",
        ),
        ([role("a/b")], "the name of role `a/b` has a slash, so no command could name its replicas"),
        ([role(port_map={"p": 0})], "role `r` has the port 0 (`p`), expected 1 to 65535"),
        ([role(port_map={"p": -1})], "role `r` has the port -1 (`p`), expected 1 to 65535"),
        ([role(port_map={"p": 70000})], "role `r` has the port 70000 (`p`), expected 1 to 65535"),
        ([role(port_map={"p": "80"})], "role `r` has the port '80' (`p`), expected 1 to 65535"),
        ([role(port_map={"p": True})], "role `r` has the port True (`p`), expected 1 to 65535"),
        (
            [role(port_map={"a.b": 80, "a-b": 81})],
            "port `a.b` (80) and port `a-b` (81) would share the variable TORCHX_PORT_A_B",
        ),
        (
            [role(port_map={"web": 80}), role("s", port_map={"web": 81})],
            "port `web` (80) and port `web` (81) would share the variable TORCHX_PORT_WEB",
        ),
    ],
)
def test_names_and_ports_without_one_meaning(
    scheduler: Scheduler[Any], roles: list[Role], message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        scheduler.submit_dryrun(AppDef("a", roles), {})


def test_a_port_of_several_roles(scheduler: Scheduler[Any]) -> None:
    roles = [role(port_map={"web": 80}), role("s", port_map={"web": 80, "other": 65535})]
    assert scheduler.submit_dryrun(AppDef("a", roles), {}).request


@pytest.mark.parametrize(
    "name", ["..", ".", "a b", "%2f", "a:b", "0", "0-3", "n" * 80, "ä" * 20, "\U0001f642"]
)
def test_odd_names_of_roles(scheduler: Scheduler[Any], name: str) -> None:
    info = scheduler.submit_dryrun(AppDef("a", [role(name, num_replicas=1000)]), {})
    assert info.app is not None
    assert (info.app.roles[0].name, info.app.roles[0].num_replicas) == (name, 1000)


@pytest.mark.parametrize("name", ["n" * 300, "\U0001f642" * 80])
def test_names_too_long_for_a_folder_of_the_role(scheduler: Scheduler[Any], name: str) -> None:
    if scheduler.backend in ("local_cwd", "local_dir", "slurm", "gridengine"):
        with pytest.raises(UsageError, match=r"the name of the role `.*…` is too long for a file"):
            scheduler.submit_dryrun(AppDef("a", [role(name)]), {})
    else:
        assert scheduler.submit_dryrun(AppDef("a", [role(name)]), {}).request


def test_nothing_is_named_none(scheduler: Scheduler[Any]) -> None:
    app = AppDef("a", [Role("r", "/", entrypoint="true", resource=Resource(1, 0, 64))])
    for options in ({}, dict.fromkeys((name for name, _ in scheduler.run_opts()), None)):
        info = scheduler.submit_dryrun(app, options)
        request = info._brief(info.request)
        named = re.findall(
            r".*(?:None|null).*", request.replace("/dev/null", "").replace("clusterIP: None", "")
        )
        assert not [line for line in named if not line.startswith(RECORD)]


def test_values_of_zero_and_false_arrive(scheduler: Scheduler[Any]) -> None:
    values = {"ZERO": "0", "FLOAT": "0.0", "FALSE": "false", "EMPTY": ""}
    app = AppDef(
        "a", [role(env=dict(values), args=["0", "", "false"], metadata={"m": 0, "n": False, "e": ""})]
    )
    info = scheduler.submit_dryrun(app, {})
    text = str(to_plain(info.request)) + repr(info)
    for name in values:
        assert name in text
    assert info.app is not None
    (made,) = info.app.roles
    assert made.args == ["0", "", "false"]
    assert values.items() <= made.env.items()
    assert made.metadata == {"m": 0, "n": False, "e": ""}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_objects_of_the_caller_are_not_changed(name: str) -> None:
    app = AppDef("a", [role(env={"A": "${app_id}"}, args=["${replica_id}"], port_map={"p": 80})], {"m": "x"})
    cfg: dict[str, Any] = {}
    before = copy.deepcopy((app_to_dict(app), cfg))
    with get_runner("torchx") as runner:
        requests = [runner.dryrun(app, name, cfg) for _ in range(2)]
    assert (app_to_dict(app), cfg) == before
    first, second = (app_to_dict(info.app) for info in requests if info.app is not None)
    assert first == second
