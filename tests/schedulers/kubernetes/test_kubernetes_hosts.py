"""The addresses of the replicas of other roles: in manifests, after a restart, and in descriptions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from kubejobs import app, role, submit, until, until_ended

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.request import templates_of, to_request
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.specs import RetryPolicy
from torchx.specs.macro import macros
from torchx.specs.status import AppState

SHOWS = f"echo $${{TORCHX_HOSTS_SERVER}} {macros.hosts('server')} $${{TORCHX_PORT_HTTP}}"


def env_of(template: Any) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in template["spec"]["containers"][0]["env"]}


@pytest.mark.parametrize(
    ("kind", "server", "trainer"),
    [
        ("job", "x-server-0.x,x-server-1.x", "x-trainer-0.x"),
        ("jobset", "x-server-0-0.x,x-server-0-1.x", "x-trainer-0-0.x"),
        ("volcano", "x-server-0-0.x,x-server-1-0.x", "x-trainer-0-0.x"),
    ],
)
def test_the_hosts_of_each_kind(kind: str, server: str, trainer: str) -> None:
    roles = [role("true", name="server", num_replicas=2, port_map={"http": 80}), role(SHOWS, name="trainer")]
    request = to_request(app(*roles), "x", {"kind": kind, "queue": "q"}, kind)
    *_, last = templates_of(request)
    env = env_of(last)
    assert (env["TORCHX_HOSTS_SERVER"], env["TORCHX_HOSTS_TRAINER"]) == (server, trainer)
    assert env["TORCHX_PORT_HTTP"] == "80"
    assert server in last["spec"]["containers"][0]["args"][-1]


def test_application_of_one_role_has_its_hosts_on_request() -> None:
    (template,) = templates_of(to_request(app(role("true", num_replicas=2)), "x", {}))
    assert not any(name.startswith("TORCHX_HOSTS") for name in env_of(template))
    (template,) = templates_of(to_request(app(role(macros.hosts("worker"), num_replicas=2)), "x", {}))
    assert template["spec"]["containers"][0]["args"][-1] == "x-worker-0.x,x-worker-1.x"


def test_too_many_hosts_are_not_in_each_pod() -> None:
    many = role("true", name="many", num_replicas=5000)
    *_, last = templates_of(to_request(app(many, role("true", name="b")), "x", {}))
    assert "TORCHX_HOSTS_MANY" not in env_of(last) and env_of(last)["TORCHX_HOSTS_B"] == "x-b-0.x"
    with pytest.raises(UsageError, match="5,000 hosts") as error:
        to_request(app(many, role(macros.hosts("many"), name="b")), "x", {})
    assert error.value.hint == "the address of replica N is x-many-N.x"


def test_a_restart_of_all_changes_the_hosts(
    cluster: FakeCluster, scheduler: KubernetesScheduler, tmp_path: Path
) -> None:
    # the servers fail when the trainer has printed its line: its pod may be ended earlier
    fails = f"until [ -e {tmp_path}/shown ]; do sleep 0.05; done; exit 7"
    shows = f"{SHOWS}; touch {tmp_path}/shown; test $TORCHX_ATTEMPT = 2 || exec sleep 600"
    app_id = submit(
        scheduler,
        role(f"test $TORCHX_ATTEMPT = 2 && exit; {fails}", name="server", num_replicas=2, max_retries=1),
        role(shows, name="trainer"),
        retry_backoff=0.1,
    )
    assert scheduler.wait(app_id, timeout=60)
    assert until_ended(scheduler, app_id).state is AppState.SUCCEEDED
    name = app_id.partition(":")[2]
    first, second = (",".join(f"{name}-server{r}-{n}.{name}" for n in range(2)) for r in ("", "-r2"))
    log = [line.split() for line in scheduler.log_iter(app_id, "trainer", 0)]
    assert log == [[first, first], [second, second]]
    described = scheduler.describe(app_id)
    assert described is not None
    assert macros.hosts("server") in described.roles[1].args[-1], "a rerun has hosts of its own"


def test_a_role_that_restarts_alone_keeps_its_hosts(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    policy = {"max_retries": 1, "retry_policy": RetryPolicy.ROLE}
    app_id = submit(
        scheduler,
        role(f"{SHOWS}; exec sleep 600", name="trainer"),
        role(f"{SHOWS}; test $TORCHX_ATTEMPT = 2 || exit 7", name="server", num_replicas=2, **policy),
        retry_backoff=0.1,
    )
    waiting = threading.Thread(target=scheduler.wait, args=(app_id, 60), daemon=True)
    waiting.start()
    until(scheduler, app_id, lambda s: s.roles_statuses[1].replicas[0].state is AppState.SUCCEEDED, "it ends")
    name = app_id.partition(":")[2]
    hosts = f"{name}-server-0,{name}-server-1"
    assert [line.split() for line in scheduler.log_iter(app_id, "server", 0)] == [[hosts, hosts]] * 2
    services = {each["metadata"]["name"]: each["spec"]["selector"] for each in cluster.objects("services")}
    assert set(hosts.split(",")) <= set(services)
    assert len(services[f"{name}-server-1"]) == 3, "of all attempts"
    scheduler.cancel(app_id)
    waiting.join(60)
