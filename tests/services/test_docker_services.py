"""Services in containers, on a real engine."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from containers import (
    Jobs,
    containers,
    describe,
    ended,
    jobs_of_a_test,
    running,
    scheduler,
    sh,
    supervisor_of,
    text,
)
from engine import IMAGE
from program import torchx
from support import wait_until

from torchx.schedulers.docker.labels import JOB
from torchx.scheduling.streams import Streams
from torchx.specs import AppState, after, macros, service
from torchx.specs.app import Role
from torchx.testing.services import free_port

pytestmark = pytest.mark.docker

HELD = "exec sleep 600"


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with jobs_of_a_test() as jobs:
        yield jobs


def handle(app_id: str) -> str:
    return f"local_docker://torchx/{app_id}"


def waiting(server: str, file: str) -> str:
    """A script that waits for a file in its container."""
    return f"while [ ! -e {file} ]; do sleep 0.1; done; {server}"


def touch(app_id: str, role: str, file: str, replica: int = 0) -> None:
    output = io.BytesIO()
    assert scheduler().execute(app_id, role, replica, ["touch", file], Streams(output, output)) == 0


def ready_of(app_id: str) -> list[int | None]:
    return [role.ready for role in describe(app_id).roles_statuses]


def killed_supervisor(app_id: str) -> int:
    pid = wait_until(lambda: supervisor_of(app_id), "the supervisor of the job")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: supervisor_of(app_id) is None, "the supervisor has ended")
    return pid


@pytest.mark.long
def test_readiness_and_the_order_of_starts_outlive_the_supervisor(jobs: Jobs) -> None:
    """It is killed before the service is ready, after that, and while the trainer runs."""
    server = service(sh(waiting(f"echo is-up; {HELD}", "/go"), name="server"), "log:is-up")
    second = service(sh(waiting(HELD, "/never"), name="second"), "cmd:test -e /go", after=["server"])
    trainer = after(sh(waiting("exit 0", "/go"), name="trainer"), ["second"])
    app_id = jobs.submit(server, second, trainer)
    running(app_id)
    killed_supervisor(app_id)
    touch(app_id, "server", "/go")
    # without a supervisor the state is the same, and nothing starts
    assert (describe(app_id).state, ready_of(app_id)) == (AppState.RUNNING, [0, 0, None])
    scheduler().reconcile(app_id)
    running(app_id, 2)
    assert ready_of(app_id) == [1, 0, None]
    killed_supervisor(app_id)
    assert ready_of(app_id) == [1, 0, None]
    touch(app_id, "second", "/go")
    scheduler().reconcile(app_id)
    running(app_id, 3)
    assert ready_of(app_id) == [1, 1, None]
    killed_supervisor(app_id)
    touch(app_id, "trainer", "/go")
    described = ended(app_id)
    assert described.state is AppState.SUCCEEDED
    found = {
        role.role: [(r.state, a.number, a.msg) for r in role.replicas for a in r.attempts]
        for role in described.roles_statuses
    }
    unneeded = [(AppState.CANCELLED, 1, "no longer needed")]
    assert found == {"server": unneeded, "second": unneeded, "trainer": [(AppState.SUCCEEDED, 1, "")]}


@pytest.mark.long
def test_a_restart_of_all_keeps_the_order(jobs: Jobs) -> None:
    """The second attempt of the trainer starts when that of the server is ready."""
    server = service(sh(f"echo is-up; {HELD}", name="server", max_retries=1), "log:is-up")
    script = "echo try $TORCHX_ATTEMPT; test $TORCHX_ATTEMPT = 2"
    trainer = after(sh(script, 2, name="trainer", max_retries=1), ["server"])
    described = jobs.run(server, trainer)
    assert described.state is AppState.SUCCEEDED, described.msg
    attempts = {role.role: [r.attempt for r in role.replicas] for role in described.roles_statuses}
    assert attempts == {"server": [2], "trainer": [2, 2]}
    starts = {role.role: role.replicas[0].started_at for role in described.roles_statuses}
    assert starts["server"] is not None and starts["trainer"] is not None
    assert starts["server"] < starts["trainer"]
    assert text(described.app_id).count("is-up") == 2


def test_server_is_reached_by_name_when_ready(jobs: Jobs) -> None:
    """The mark of its container does not change its name in the network."""
    serve = "echo hello > index.html; exec python3 -m http.server 8000"
    server = service(sh(serve, name="server"), "http:8000/index.html")
    trainer = after(
        sh(f"wget -q -O - http://{macros.hosts('server')}:8000/index.html", name="trainer"), ["server"]
    )
    described = jobs.run(server, trainer)
    assert described.state is AppState.SUCCEEDED, described.first_failure
    assert text(described.app_id, replicas={"trainer": set()}) == "hello\n"


@pytest.mark.long
def test_a_server_needs_no_shell(jobs: Jobs, tmp_path: Path) -> None:
    """Ports and the log are probed from outside: the image has one program only."""
    (tmp_path / "Dockerfile.torchx").write_text(
        "ARG IMAGE\nFROM $IMAGE AS all\nFROM scratch\nCOPY --from=all /bin/busybox /busybox\n"
    )
    bare = scheduler().build_workspace_image(IMAGE, str(tmp_path))
    httpd = ["httpd", "-f", "-p", "8000", "-h", "/"]
    servers = [
        service(Role(name, image=bare, entrypoint="/busybox", args=command), ready)
        for name, ready, command in (
            ("http", "http:8000/busybox", httpd),
            ("tcp", "tcp:8000", httpd),
            ("log", "log:log", ["tail", "-f", "/etc/hostname"]),
        )
    ]
    described = jobs.run(*servers, after(sh("true", name="trainer"), ["http", "tcp", "log"]))
    assert described.state is AppState.SUCCEEDED, described.first_failure


@pytest.mark.long
def test_the_label_has_no_arguments_of_a_probe(jobs: Jobs) -> None:
    """Other users of the engine see labels; messages of the own user name the complete probe."""
    probe = "cmd:sh -c 'exit 7' sh hunter2"
    server = service(sh(HELD, name="server"), probe, within="1s")
    app_id = jobs.submit(server, after(sh("true", name="trainer"), ["server"]))
    labels = [found["Config"]["Labels"][JOB] for found in containers(app_id)]
    assert labels
    assert not any("hunter2" in label for label in labels)
    first = ended(app_id).first_failure
    assert first is not None
    assert first.msg == f"not ready within 1s: probe {probe}: exit 7"


@pytest.mark.long
@pytest.mark.parametrize(
    ("ready", "answer"),
    [
        ("cmd:/no/such/program", "No such file or directory"),
        ("cmd:sleep 600", "it did not end in 5 s"),
        ("http:8000/x", "Connection refused"),
    ],
)
def test_a_service_that_is_not_ready_in_time_fails(jobs: Jobs, ready: str, answer: str) -> None:
    server = service(sh(HELD, name="server"), ready, within="1s")
    first = jobs.run(server, after(sh("true", name="trainer"), ["server"])).first_failure
    assert first is not None
    assert first.msg == f"not ready within 1s: probe {ready}: {answer}"


@pytest.mark.long
def test_the_commands_show_and_await_readiness(jobs: Jobs) -> None:
    server = service(sh(waiting(f"echo is-up; {HELD}", "/go"), 2, name="server"), "log:is-up")
    app_id = jobs.submit(server, after(sh(HELD, name="trainer"), ["server"]))
    running(app_id, 2)
    shown = torchx("status", handle(app_id)).stdout
    assert "server  0 of 2 ready" in shown
    assert "trainer  1 of 1 pending" in shown
    assert torchx("wait", "--for", "ready", "--timeout", "0", handle(app_id)).returncode == 124
    for replica in (0, 1):
        touch(app_id, "server", "/go", replica)
    assert torchx("wait", "--for", "ready", handle(app_id)).returncode == 0
    data = json.loads(torchx("status", "-o", "json", handle(app_id)).stdout)
    assert [(role["role"], role["ready"]) for role in data["roles"]] == [("server", 2), ("trainer", None)]
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert "server  2 of 2 cancelled" in torchx("status", handle(app_id)).stdout


@pytest.mark.long
def test_a_trainer_learns_from_an_inference_server(jobs: Jobs) -> None:
    flags = ["--workspace", "examples/inference", "examples/inference/app.py:distill", "--folder", "."]
    # its port is published on this machine
    done = torchx("run", "-s", "local_docker", *flags, "--image", IMAGE, "--port", str(free_port()))
    jobs.ids.append(done.stdout.strip().rpartition("/")[2])
    assert done.returncode == 0, done.stderr
    assert "learned 3.00 x -1.00" in done.stderr


@pytest.mark.long
def test_service_without_output_does_not_hold_up_log(jobs: Jobs) -> None:
    """Podman answers a request for a log only when there is output."""
    server = service(sh(HELD, name="server"))
    trainer = sh(waiting("echo done", "/go"), name="trainer")
    app_id = jobs.submit(server, trainer)
    running(app_id, 2)
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(text, app_id, follow=True)
        touch(app_id, "trainer", "/go")
        assert followed.result(50) == "done\n"
