"""Services beside ordinary roles on a cluster with plain jobs: their ends, probes, the order of starts."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster, probes, store
from kubejobs import app, role, submit, until, until_ended, until_file
from program import answer, torchx
from support import wait_until

from torchx.errors import StateError, UsageError
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs import RetryPolicy, Role, after, service
from torchx.specs.status import AppState

HELD = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
"""A program that runs until it gets TERM."""
ENDS = {"exit 0": "exit 0", "failure": "exit 3", "kill": "kill -9 $$$$"}


def states(status: DescribeAppResponse) -> dict[str, list[str]]:
    return {each.role: [replica.state.name for replica in each.replicas] for each in status.roles_statuses}


def ready_of(status: DescribeAppResponse, name: str = "server") -> int | None:
    return next(each.ready for each in status.roles_statuses if each.role == name)


def run(scheduler: KubernetesScheduler, *roles: Role, **cfg: Any) -> DescribeAppResponse:
    app_id = submit(scheduler, *roles, **cfg)
    assert scheduler.wait(app_id, timeout=120)
    status = scheduler.glance(app_id)
    assert status is not None
    return status


@pytest.fixture
def waited(scheduler: KubernetesScheduler) -> Iterator[Any]:
    """Waits for applications in the background, which brings their services to the due state."""
    threads = []

    def begin(app_id: str) -> None:
        thread = threading.Thread(target=scheduler.wait, args=(app_id, 120), daemon=True)
        threads.append(thread)
        thread.start()

    yield begin
    for thread in threads:
        thread.join(120)


@pytest.mark.parametrize("early", [True, False], ids=["before ready", "after ready"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_service(
    scheduler: KubernetesScheduler, cluster: FakeCluster, end: str, early: bool, tmp_path: Path
) -> None:
    started, up = tmp_path / "started", tmp_path / "up"
    script = ENDS[end] if early else f"touch {up}; {until_file(started, ENDS[end])}"
    server = service(role(script, name="server"), ready=f"cmd:test -e {up}")
    trainer = after(role(f"touch {started}; {HELD}", name="trainer"), ["server"])
    status = run(scheduler, server, trainer)
    assert status.state is AppState.FAILED, status
    assert started.exists() is not early
    first = status.first_failure
    assert first is not None
    assert (first.role, first.result) == ("server", {"exit 0": 0, "failure": 3, "kill": 137}[end])
    assert states(status) == {"server": ["FAILED"], "trainer": ["CANCELLED"]}
    if end != "kill":
        assert first.msg == "a service ended by itself while it was needed"
    (line,) = scheduler.list()
    assert line.state is AppState.FAILED


@pytest.mark.parametrize("early", [True, False], ids=["before ready", "after ready"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_an_ordinary_role(
    scheduler: KubernetesScheduler, cluster: FakeCluster, waited: Any, end: str, early: bool, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    ready = f"cmd:test {'!' if early else ''} -e /"
    server = service(role(f"echo up; {HELD}", name="server", num_replicas=2), ready=ready)
    app_id = submit(scheduler, server, role(until_file(go, ENDS[end]), name="trainer"))
    waited(app_id)
    until(scheduler, app_id, lambda s: states(s)["server"] == ["RUNNING"] * 2, "the server runs")
    until(scheduler, app_id, lambda s: ready_of(s) == (0 if early else 2), "the server is ready")
    go.touch()
    status = until_ended(scheduler, app_id)
    assert status.state is (AppState.SUCCEEDED if end == "exit 0" else AppState.FAILED)
    assert states(status)["server"] == ["CANCELLED"] * 2
    assert ready_of(status) == 0
    if end == "exit 0":
        assert status.roles_statuses[0].replicas[0].attempts[-1].msg == "no longer needed"
    assert list(scheduler.log_iter(app_id, "server", 1))[:1] == ["up\n"], "its log is kept"
    (line,) = scheduler.list()
    assert line.state is status.state


def test_a_service_that_ignores_term_is_killed(scheduler: KubernetesScheduler, cluster: FakeCluster) -> None:
    server = service(role("trap '' TERM; while :; do sleep 0.1; done", name="server"))
    status = run(scheduler, server, after(role("true", name="trainer"), ["server"]))
    assert status.state is AppState.SUCCEEDED
    assert status.roles_statuses[0].replicas[0].signal == "SIGKILL"


@pytest.mark.parametrize("policy", list(RetryPolicy))
def test_a_service_with_retries_is_started_again(
    scheduler: KubernetesScheduler, cluster: FakeCluster, policy: RetryPolicy, tmp_path: Path
) -> None:
    """An end with exit code 0 uses up a retry; the order of starts is kept."""
    up = tmp_path / "up"
    script = f"[ $TORCHX_ATTEMPT = 2 ] || exit 0; touch {up}; {HELD}"
    server = role(script, name="server", max_retries=1, retry_policy=policy)
    trainer = after(role("echo $TORCHX_HOSTS_SERVER", name="trainer"), ["server"])
    status = run(scheduler, service(server, f"cmd:test -e {up}"), trainer, retry_backoff=0.1)
    assert status.state is AppState.SUCCEEDED, status
    attempts = status.roles_statuses[0].replicas[0].attempts
    assert [(a.state.name, a.msg) for a in attempts] == [
        ("FAILED", "a service ended by itself while it was needed"),
        ("CANCELLED", "no longer needed"),
    ]
    name = status.app_id.partition(":")[2]
    alone = policy is not RetryPolicy.APPLICATION
    address = f"{name}-server-0" if alone else f"{name}-server-r2-0.{name}"
    assert list(scheduler.log_iter(status.app_id, "trainer", 0)) == [f"{address}\n"]


def test_an_uncritical_service_may_fail(
    scheduler: KubernetesScheduler, cluster: FakeCluster, waited: Any, tmp_path: Path
) -> None:
    monitor = service(role("exit 3", name="monitor"), critical=False)
    helper = service(role("exit 0", name="helper"), critical=False)
    # times of a cluster are whole seconds
    held = f"sleep 1.5; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    trainer = after(role(held, name="trainer"), ["monitor", "helper"])
    app_id = submit(scheduler, monitor, helper, trainer)
    waited(app_id)
    status = until(scheduler, app_id, lambda s: states(s)["trainer"] == ["RUNNING"], "the trainer runs")
    assert (status.state, status.msg) == (AppState.RUNNING, "")
    (tmp_path / "go").touch()
    status = until_ended(scheduler, app_id)
    assert status.state is AppState.SUCCEEDED, status
    assert states(status) == {"monitor": ["FAILED"], "helper": ["FAILED"], "trainer": ["SUCCEEDED"]}


WEB = """
import http.server, os, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        failed = pathlib.Path(os.environ["FAIL_FIRST"])
        self.send_response(200 if failed.exists() and self.path == "/health" else 503)
        self.end_headers()
        failed.touch()
http.server.HTTPServer(("", int(os.environ["TORCHX_PORT_HTTP"])), Handler).serve_forever()
"""

LISTEN = """
import os, socket, time
listener = socket.create_server(("", int(os.environ["TORCHX_PORT_RAW"])))
time.sleep(600)
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def test_the_probes(scheduler: KubernetesScheduler, cluster: FakeCluster, tmp_path: Path) -> None:
    """Each service starts after the one before it; log lines are read by torchx."""
    python = {"entrypoint": sys.executable}
    web = role("", name="web", port_map={"http": free_port()}, **python)
    web.args, web.env = ["-S", "-c", WEB], {"FAIL_FIRST": str(tmp_path / "failed")}
    listener = role("", name="listen", port_map={"raw": free_port()}, **python)
    listener.args = ["-S", "-c", LISTEN]
    made = tmp_path / "made"
    commanded = role(f"touch {made}; {HELD}", name="commanded", num_replicas=2, env={"MADE": str(made)})
    spoken = role(f"echo noise; echo it is up-42; {HELD}", name="spoken")
    status = run(
        scheduler,
        service(web, "http:http/health"),
        service(listener, "tcp:raw", after=["web"]),
        service(commanded, """cmd:sh -c 'test -e "$MADE"'""", after=["listen"]),
        service(spoken, "log:up-[0-9]+$", after=["commanded"]),
        after(role("true", name="trainer"), ["spoken"]),
    )
    assert status.state is AppState.SUCCEEDED, status
    starts = [each.replicas[0].started_at for each in status.roles_statuses]
    assert starts == sorted(start for start in starts if start is not None)


@pytest.mark.parametrize(
    ("ready", "answer"),
    [
        ("tcp:PORT", "connection refused"),
        ("http:PORT/x", "connection refused"),
        ("log:never", "no line matched"),
        ("cmd:sh -c 'echo bad; exit 7'", "bad"),
    ],
)
def test_a_service_that_is_not_ready_in_time_fails(
    scheduler: KubernetesScheduler, cluster: FakeCluster, ready: str, answer: str
) -> None:
    with socket.socket() as unused:  # bound, so that no other process gets it, without a listener
        unused.bind(("127.0.0.1", 0))
        ready = ready.replace("PORT", str(unused.getsockname()[1]))
        server = service(role(HELD, name="server"), ready, within="1s")
        status = run(scheduler, server, after(role("true", name="trainer"), ["server"]))
    assert status.state is AppState.FAILED
    assert status.first_failure is not None
    message = status.first_failure.msg
    assert message.startswith(f"not ready within 1s: probe {ready}: ") and message.endswith(answer)
    assert states(status) == {"server": ["FAILED"], "trainer": ["CANCELLED"]}


def test_the_first_answer_of_a_slow_probe_is_awaited(
    scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PERIOD", 4.0)
    server = service(role(HELD, name="server"), "cmd:sh -c 'echo bad; exit 7'", within="1s")
    status = run(scheduler, server, after(role("true", name="trainer"), ["server"]))
    assert status.first_failure is not None
    assert status.first_failure.msg.endswith(": bad")


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_the_clock_is_that_of_the_cluster(
    scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ahead: float
) -> None:
    monkeypatch.setattr(store, "AHEAD", ahead)
    server = service(role(HELD, name="server"), f"cmd:test -e {tmp_path}/go", within="10m")
    app_id = submit(scheduler, server, after(role("true", name="trainer"), ["server"]))
    until(scheduler, app_id, lambda s: states(s)["server"] == ["RUNNING"], "the server runs")
    scheduler.reconcile(app_id)
    status = scheduler.glance(app_id)
    assert status is not None and states(status)["server"] == ["RUNNING"], "it has ten minutes"
    attempt = status.roles_statuses[0].replicas[0].attempts[0]
    for started in (status.started_at, attempt.started_at):
        assert started and abs(time.time() - started.timestamp()) < 600, "as this machine's clock has it"
    (tmp_path / "go").touch()
    assert scheduler.wait(app_id, timeout=120)
    status = scheduler.glance(app_id)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert status.submitted_at and status.ended_at and status.submitted_at <= status.ended_at


def test_roles_start_after_ordinary_ones(
    scheduler: KubernetesScheduler, cluster: FakeCluster, waited: Any, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    prepare = role(until_file(go, "true"), name="prepare")
    app_id = submit(scheduler, prepare, after(role("test -e " + str(go), name="trainer"), ["prepare"]))
    waited(app_id)
    status = until(scheduler, app_id, lambda s: states(s)["prepare"] == ["RUNNING"], "the first role runs")
    assert states(status)["trainer"] == ["PENDING"]
    assert status.roles_statuses[1].replicas[0].attempts[-1].msg == "it starts after prepare"
    assert status.state is AppState.RUNNING
    go.touch()
    assert until_ended(scheduler, app_id).state is AppState.SUCCEEDED


def test_a_role_before_fails(scheduler: KubernetesScheduler, cluster: FakeCluster) -> None:
    for fail_fast in (True, False):
        server = service(role(HELD, name="server"))
        trainer = after(role("true", name="trainer"), ["prepare", "server"])
        status = run(scheduler, role("exit 4", name="prepare"), server, trainer, fail_fast=fail_fast)
        assert status.state is AppState.FAILED
        assert status.first_failure is not None and status.first_failure.role == "prepare"
        assert states(status) == {"prepare": ["FAILED"], "server": ["CANCELLED"], "trainer": ["CANCELLED"]}


def test_an_evicted_service_is_started_again_by_its_job(
    scheduler: KubernetesScheduler, cluster: FakeCluster, waited: Any, tmp_path: Path
) -> None:
    """An eviction is not a failure, also without retries; the trainer continues."""
    go, up = tmp_path / "go", tmp_path / "up"
    server = service(role(f"echo >> {up}; exec sleep 600", name="server"), f"cmd:test -e {up}")
    app_id = submit(scheduler, server, after(role(until_file(go, "true"), name="trainer"), ["server"]))
    waited(app_id)
    until(scheduler, app_id, lambda s: states(s)["trainer"] == ["RUNNING"], "the trainer runs")
    (pod,) = (p["metadata"]["name"] for p in cluster.objects("pods") if "-server-" in p["metadata"]["name"])
    path = f"/api/v1/namespaces/default/pods/{pod}"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    Cluster().create(f"{path}/eviction", eviction)
    wait_until(lambda: len(up.read_text().splitlines()) == 2, "the service has started again")
    until(scheduler, app_id, lambda s: ready_of(s) == 1, "the service is ready again")
    go.touch()
    status = until_ended(scheduler, app_id)
    assert status.state is AppState.SUCCEEDED, status
    assert states(status) == {"server": ["CANCELLED"], "trainer": ["SUCCEEDED"]}


@pytest.mark.parametrize("verb", ["cancel", "kill", "delete"])
def test_the_end_by_the_user(
    scheduler: KubernetesScheduler, cluster: FakeCluster, waited: Any, verb: str
) -> None:
    server = service(role(HELD, name="server"), "cmd:false")
    app_id = submit(scheduler, server, after(role("true", name="trainer"), ["server"]))
    until(scheduler, app_id, lambda s: states(s)["server"] == ["RUNNING"], "the server runs")
    waited(app_id)
    getattr(scheduler, verb)(app_id)
    if verb != "delete":
        status = until_ended(scheduler, app_id)
        assert status.state is AppState.CANCELLED
        assert states(status)["trainer"] == ["CANCELLED"]
        # a program that ends with 0 on TERM, before its job deletes the pod, has succeeded
        allowed = (["CANCELLED"], ["SUCCEEDED"]) if verb == "kill" else (["CANCELLED"],)
        assert states(status)["server"] in allowed
        scheduler.delete(app_id)
    wait_until(lambda: not cluster.running() and not cluster.objects("jobs"), "nothing is left")


def test_the_commands(
    scheduler: KubernetesScheduler, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that the submission leaves behind coordinates; `wait --for ready` and `status` show it."""
    go, component = tmp_path / "go", tmp_path / "both.py"
    component.write_text(
        f"""
import torchx.specs as specs

def app() -> specs.AppDef:
    held = dict(image="img", entrypoint="sh", num_replicas=2)
    server = specs.Role("server", args=["-c", {HELD!r}], **held)
    trainer = specs.Role("trainer", image="img", entrypoint="sh", args=["-c", {until_file(go, "true")!r}])
    specs.service(server, ready="cmd:true")
    return specs.AppDef("both", [server, specs.after(trainer, ["server"])])
"""
    )
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    handle = torchx("run", "-s", "kubernetes", f"{component}:app").stdout.strip()
    assert torchx("wait", "--for", "ready", "--timeout", "120", handle).returncode == 0
    assert "server  2 of 2 ready" in torchx("status", handle).stdout
    assert [role["ready"] for role in answer("status", "-o", "json", handle)["roles"]] == [2, None]
    go.touch()
    assert torchx("wait", "--timeout", "120", handle).returncode == 0
    assert answer("status", "-o", "json", handle)["state"] == "SUCCEEDED"


def test_what_a_cluster_cannot_run_is_rejected(scheduler: KubernetesScheduler, cluster: FakeCluster) -> None:
    roles = [service(role(HELD, name="server")), after(role("true", name="trainer"), ["server"])]
    for kind in ("jobset", "volcano"):
        with pytest.raises(UsageError, match=f"`kind` is {kind}, which runs neither services"):
            scheduler.submit_dryrun(app(*roles), {"kind": kind, "queue": "team"})
    with pytest.raises(UsageError, match="`queue` does not fit trainer"):
        scheduler.submit_dryrun(app(*roles), {"queue": "team"})
    large = role("true", name="large", metadata={"note": [str(n) * 5 for n in range(100_000)]})
    with pytest.raises(UsageError, match="too large"):
        scheduler.submit_dryrun(app(roles[0], large), {})
    several = role(HELD, name="w", num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    notes = scheduler.submit_dryrun(app(service(several), role("true")), {}).notes
    assert any("all its replicas restart (role w)" in note for note in notes)
    cluster.denied.add(("patch", "pods"))
    with pytest.raises(StateError, match="need the right `patch pods` in namespace default"):
        submit(scheduler, *roles)
    assert not cluster.objects("jobs")


def test_clusters_with_jobsets_run_services_as_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster(jobsets=True) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = KubernetesScheduler("torchx")
        status = run(scheduler, service(role(HELD, name="server")), role("true", name="trainer"))
        assert status.state is AppState.SUCCEEDED
        assert not cluster.objects("jobsets")
        scheduler.close()
