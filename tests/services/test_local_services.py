"""Services of local jobs, with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    describe,
    ended,
    handle,
    paths,
    run,
    running,
    scheduler,
    sh,
    submit,
    text,
)
from program import torchx
from support import wait_until

from torchx.errors import UsageError
from torchx.jobs.view import load
from torchx.schedulers.local.checks import notes_of
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs import AppDef, after, service
from torchx.specs.app import Role
from torchx.specs.status import AppState

HELD = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
"""A program that runs until it gets TERM."""


def states(described: DescribeAppResponse) -> dict[str, list[str]]:
    return {role.role: [r.state.name for r in role.replicas] for role in described.roles_statuses}


def ready_of(app_id: str, role: str = "server") -> int | None:
    return next(each.ready for each in describe(app_id).roles_statuses if each.role == role)


def until(file: Path, then: str) -> str:
    """A script that waits for a file, then goes on."""
    return f"while [ ! -e {file} ]; do sleep 0.05; done; {then}"


ENDS = {"exit 0": "exit 0", "failure": "exit 3", "kill": "kill -9 $$$$"}


@pytest.mark.parametrize("early", [True, False], ids=["before ready", "after ready"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_service(end: str, early: bool, tmp_path: Path) -> None:
    """Each end of a service by itself is a failure; before it is ready, the trainer never starts."""
    started = tmp_path / "started"
    script = ENDS[end] if early else f"echo is-up; {until(started, ENDS[end])}"
    server = service(sh(script, name="server"), ready="log:is-up")
    trainer = after(sh(f"touch {started}; {HELD}", name="trainer"), ["server"])
    described = run(server, trainer)
    assert described.state is AppState.FAILED
    assert started.exists() is not early
    first = described.first_failure
    assert first is not None
    assert (first.role, first.result) == ("server", {"exit 0": 0, "failure": 3, "kill": 137}[end])
    assert states(described) == {"server": ["FAILED"], "trainer": ["CANCELLED"]}
    if end != "kill":
        assert first.msg == "a service ended by itself while it was needed"


@pytest.mark.parametrize("early", [True, False], ids=["before ready", "after ready"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_an_ordinary_role(end: str, early: bool, tmp_path: Path) -> None:
    """An ordinary role decides on the result; the service is ended in any case."""
    go = tmp_path / "go"
    server = service(sh(f"{'' if early else 'echo is-up;'} {HELD}", name="server"), ready="log:is-up")
    trainer = sh(until(go, ENDS[end]), name="trainer")
    app_id = submit(server, trainer)
    running(app_id, 2)
    wait_until(lambda: ready_of(app_id) == (0 if early else 1), "the server is ready")
    go.touch()
    described = ended(app_id)
    assert described.state is (AppState.SUCCEEDED if end == "exit 0" else AppState.FAILED)
    assert states(described)["server"] == ["CANCELLED"]
    why = "no longer needed" if end == "exit 0" else "trainer/0 failed"
    assert describe(app_id).roles_statuses[0].replicas[0].attempts[-1].msg == why


def test_a_service_that_ignores_term_is_killed() -> None:
    server = service(sh("trap '' TERM; echo is-up; while :; do sleep 0.1; done", name="server"), "log:is-up")
    described = run(server, after(sh("true", name="trainer"), ["server"]), grace_period=0.2)
    assert described.state is AppState.SUCCEEDED
    assert described.roles_statuses[0].replicas[0].signal == "SIGKILL"


def test_a_service_with_retries_is_started_again(tmp_path: Path) -> None:
    again = tmp_path / "again"
    script = f"echo is-up; [ $TORCHX_ATTEMPT = 2 ] || exit 0; touch {again}; {HELD}"
    server = service(sh(script, name="server", retries=1, policy="ROLE"), "log:is-up")
    trainer = sh(until(again, "true"), name="trainer")
    described = run(server, trainer)
    assert described.state is AppState.SUCCEEDED
    assert [a.state.name for a in described.roles_statuses[0].replicas[0].attempts] == ["FAILED", "CANCELLED"]


def test_an_uncritical_service_may_fail() -> None:
    monitor = service(sh("exit 3", name="monitor"), critical=False)
    assert run(monitor, sh("true", name="trainer")).state is AppState.SUCCEEDED


def test_the_probes(tmp_path: Path) -> None:
    """Each service starts after the one before it; the trainer finds them by their variables."""
    web = Role(
        "web",
        image="",
        entrypoint=sys.executable,
        args=["-S", "-c", WEB],
        port_map={"http": 8000},
        env={"FAIL_FIRST": str(tmp_path / "failed")},
    )
    listener = Role(
        "listen", image="", entrypoint=sys.executable, args=["-S", "-c", LISTEN], port_map={"raw": 1}
    )
    made = tmp_path / "made"
    commanded = sh(f"sleep 0.3; touch {made}; {HELD}", name="commanded", replicas=2)
    commanded.env["MADE"] = str(made)
    trainer = sh("echo $TORCHX_HOSTS_WEB $TORCHX_HOSTS_COMMANDED $TORCHX_PORT_HTTP", name="trainer")
    app_id = submit(
        service(web, "http:http/health"),
        service(listener, "tcp:raw", after=["web"]),
        service(commanded, """cmd:sh -c 'test -e "$MADE"'""", after=["listen"]),
        after(trainer, ["commanded"]),
    )
    described = ended(app_id)
    assert described.state is AppState.SUCCEEDED, describe(app_id)
    events = [e for e in scheduler().app_events(app_id) if e is not None]
    order = [e.role for e in events if e.kind == "ready" and e.replica is not None]
    assert order == ["web", "listen", "commanded", "commanded"]
    words = text(app_id, replicas={"trainer": set()}).split()
    assert words[:2] == ["localhost", "localhost,localhost"]
    assert int(words[2]) > 0


WEB = """
import http.server, os, pathlib
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


@pytest.mark.parametrize(
    ("ready", "answer"),
    [
        ("tcp:PORT", "Connection refused"),
        ("http:PORT/x", "Connection refused"),
        ("log:never", "no line matched"),
        ("cmd:sh -c 'exit 7'", "exit 7"),
        ("cmd:/no/such/program", "No such file or directory"),
    ],
)
def test_a_service_that_is_not_ready_in_time_fails(ready: str, answer: str) -> None:
    with socket.socket() as unused:  # bound, so that no other process gets it, without a listener
        unused.bind(("127.0.0.1", 0))
        ready = ready.replace("PORT", str(unused.getsockname()[1]))
        server = service(sh(HELD, name="server"), ready, within="1s")
        described = run(server, after(sh("true", name="trainer"), ["server"]))
    assert described.state is AppState.FAILED
    assert described.first_failure is not None
    assert described.first_failure.msg == f"not ready within 1s: probe {ready}: {answer}"
    assert states(described) == {"server": ["FAILED"], "trainer": ["CANCELLED"]}


def test_the_supervisor_survives_a_probe_that_never_ends() -> None:
    """The program of the probe is ended with the job."""
    server = service(sh(HELD, name="server"), "cmd:sh -c 'sleep 1000 & wait'")
    app_id = submit(server, after(sh("true", name="trainer"), ["server"]))
    running(app_id, 1)
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_a_killed_supervisor_leaves_no_service() -> None:
    app_id = submit(service(sh(HELD, name="server")), sh(HELD, name="trainer"))
    running(app_id, 2)
    supervisor = load(paths(app_id)).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert ended(app_id).state is AppState.FAILED
    assert_nothing_runs(app_id)


def given(metadata: dict[str, object]) -> Role:
    role = sh("true", name="s")
    role.metadata.update(metadata)
    return role


def plan(*roles: Role) -> object:
    return scheduler().submit_dryrun(AppDef("app", list(roles)), {})


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ([service(sh("true"), "log:x")], "all roles of application `app` are services"),
        ([after(sh("true"), ["sever"]), sh("true", name="server")], "`sever`, which is not a role"),
        ([after(sh("true", name="a"), ["b"]), after(sh("true", name="b"), ["a"])], "a after b after a"),
        ([after(sh("true", name="a"), ["a"])], "a after a"),
        ([service(sh("true", name="s"), "htp:1"), sh("true")], "expected http:PORT/path"),
        ([service(sh("true", name="s"), "tcp:web"), sh("true")], "names the port `web`"),
        ([service(sh("true", name="s"), "tcp:70000"), sh("true")], "not a port number"),
        ([service(sh("true", name="s"), "log:("), sh("true")], "not a valid pattern"),
        ([service(sh("true", name="s"), "cmd:"), sh("true")], "expected http:PORT/path"),
        ([service(sh("true", name="s"), "cmd:a 'b"), sh("true")], "No closing quotation"),
        ([service(sh("true", name="s"), "tcp:٣"), sh("true")], "not a port number"),
        ([given({"torchx/after": "w"}), sh("true")], "starts after 'w', expected a list"),
        ([given({"torchx/service": []}), sh("true")], "expected the metadata of a service"),
        ([given({"torchx/service": {"ready": 1}}), sh("true")], "`ready` and `within` must be strings"),
        ([service(sh("true", name="s"), within="soon"), sh("true")], "expected a duration"),
        ([service(sh("true", name="a-b")), sh("true", name="a_b")], "share the variable TORCHX_HOSTS_A_B"),
    ],
)
def test_invalid_services_are_rejected_at_the_dry_run(roles: list[Role], message: str) -> None:
    with pytest.raises(UsageError) as error:
        plan(*roles)
    assert message in str(error.value)


@pytest.mark.parametrize("change", [lambda role: service(role), lambda role: after(role, ["w"])])
def test_other_engines_reject_services(change: Callable[[Role], Role]) -> None:
    roles = [change(sh("true", name="server")), sh("true")]
    other = scheduler()
    other.runs_services = False
    with pytest.raises(UsageError, match=r"local_cwd does not run services.*: server"):
        other.submit_dryrun(AppDef("app", roles), {})


def test_the_commands_show_and_await_readiness(tmp_path: Path) -> None:
    go = tmp_path / "go"
    server = service(sh(until(go, f"echo is-up; {HELD}"), name="server", replicas=2), "log:is-up")
    app_id = submit(server, after(sh(HELD, name="trainer"), ["server"]))
    running(app_id, 2)
    shown = torchx("status", handle(app_id)).stdout
    assert "server  0 of 2 ready" in shown
    assert "trainer  1 of 1 pending" in shown
    assert torchx("wait", "--for", "ready", "--timeout", "0", handle(app_id)).returncode == 124
    go.touch()
    assert torchx("wait", "--for", "ready", handle(app_id)).returncode == 0
    assert "server  2 of 2 ready" in torchx("status", handle(app_id)).stdout
    data = json.loads(torchx("status", "-o", "json", handle(app_id)).stdout)
    assert [(role["role"], role["ready"]) for role in data["roles"]] == [("server", 2), ("trainer", None)]
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert "server  2 of 2 cancelled" in torchx("status", handle(app_id)).stdout


def test_services_that_would_listen_on_one_port_are_noted() -> None:
    web = {"web": 8000}
    one, two = (service(Role(name, "", entrypoint="true", port_map=web)) for name in ("one", "two"))
    many = service(Role("many", "", entrypoint="true", port_map={"raw": 1}, num_replicas=2))
    trainer = Role("trainer", "", entrypoint="true", port_map={**web, "raw": 1})
    info = scheduler().submit_dryrun(AppDef("ports", [one, two, many, trainer]), {})
    assert [note for note in info.notes if note.startswith("port ")] == [
        "port `web` is one port of this machine for the services `one`, `two`: use different names in"
        " `port_map`",
        "port `raw` is one port of this machine for all replicas of service `many`",
    ]
    assert not any(note.startswith("port ") for note in notes_of(AppDef("one", [one, trainer])))
