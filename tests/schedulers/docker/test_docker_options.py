"""Further options of containers: the forms they may have, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from containers import Jobs, describe, fresh, replicas, scheduler, sh
from support import wait_until

from torchx.errors import UsageError
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.labels import JOB, USER
from torchx.schedulers.docker.record import job_data, label_data
from torchx.specs.app import AppDef, AppDryRunInfo, Role


def body(**options: Any) -> dict[str, Any]:
    """What the engine is sent for the options of a role."""
    role = sh("true", metadata={"local_docker": options})
    (container,) = scheduler().submit_dryrun(AppDef("job", [role]), {}).request.containers
    body: dict[str, Any] = container.body
    return body


@pytest.mark.parametrize(
    ("options", "key", "expected"),
    [
        ({"volumes": {"/src": {"bind": "/dst", "mode": "ro"}}}, "Binds", ["/src:/dst:ro"]),
        ({"volumes": {"/src": {"bind": "/dst"}}}, "Binds", ["/src:/dst:rw"]),
        ({"volumes": ["/src:/dst"]}, "Binds", ["/src:/dst"]),
        ({"privileged": False}, "Privileged", False),
        ({"extra_hosts": ["a:1.2.3.4"]}, "ExtraHosts", ["a:1.2.3.4"]),
        ({"extra_hosts": {"a": "1.2.3.4"}}, "ExtraHosts", ["a:1.2.3.4"]),
        ({"tmpfs": ["/run:size=1m", "/x"]}, "Tmpfs", {"/run": "size=1m", "/x": ""}),
        ({"sysctls": {"net.core.somaxconn": 1024}}, "Sysctls", {"net.core.somaxconn": "1024"}),
        ({"ports": {80: 8080}}, "PortBindings", {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]}),
        ({"ulimits": [{"name": "nofile", "soft": 9}]}, "Ulimits", [{"Name": "nofile", "Soft": 9}]),
        ({"group_add": ["video", 44]}, "GroupAdd", ["video", "44"]),
        ({"dns": None}, "Dns", None),
    ],
)
def test_options_have_the_forms_of_the_docker_package(
    options: dict[str, Any], key: str, expected: Any
) -> None:
    assert body(**options)["HostConfig"].get(key) == expected


def test_a_check_of_health_has_small_letters_too() -> None:
    wanted = {"test": ["CMD", "true"], "start_period": 10**9}
    assert body(healthcheck=wanted)["Healthcheck"] == {"Test": ["CMD", "true"], "StartPeriod": 10**9}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"volumes": {"/src": {"dst": "/dst"}}}, "e.g. {'/src': {'bind': '/dst', 'mode': 'ro'}}"),
        ({"volumes": "/src:/dst"}, "a list of strings"),
        ({"privileged": "false"}, "true or false"),
        ({"dns": "8.8.8.8"}, "a list of strings"),
        ({"cap_drop": "ALL"}, "a list of strings"),
        ({"group_add": "user"}, "a list of strings"),
        ({"devices": "/dev/null"}, "a list of strings"),
        ({"ports": [80]}, "values by name"),
        ({"ports": {"80/tcp": "http"}}, "e.g. {'80/tcp': 8080}"),
        ({"sysctls": ["a=b"]}, "values by name"),
        ({"pids_limit": "x"}, "a whole number"),
        ({"pids_limit": 1.5}, "a whole number"),
        ({"mem_limit": "much"}, "a number of bytes or e.g. 256m"),
        ({"ulimits": [{"nofile": 9}]}, "values for Name, Soft, Hard"),
        ({"mounts": {"Type": "tmpfs"}}, "a list of values by name, as in the engine's interface"),
        ({"working_dir": ["/tmp"]}, "a string"),
    ],
)
def test_unsupported_value_is_rejected_at_the_dry_run(options: dict[str, Any], expected: str) -> None:
    ((name, value),) = options.items()
    with pytest.raises(UsageError) as caught:
        body(**options)
    assert caught.value.message == (
        f"the container option `{name}` in the metadata of role `w` is {value!r}, expected {expected}"
    )


@pytest.mark.parametrize(
    ("options", "section", "key", "expected"),
    [
        ({"User": "1000"}, "", "User", "1000"),
        ({"HostConfig": {"ShmSize": 1 << 20}}, "HostConfig", "ShmSize", 1 << 20),
        ({"ShmSize": "1m"}, "HostConfig", "ShmSize", 1 << 20),
        ({"HostConfig": {"CpuShares": 512}}, "HostConfig", "CpuShares", 512),
        ({"cpu_shares": 512}, "HostConfig", "CpuShares", 512),
        ({"log_config": {"type": "local"}}, "HostConfig", "LogConfig", {"Type": "local"}),
        (
            {"PortBindings": {"80/tcp": [{"HostPort": "8080"}]}},
            "HostConfig",
            "PortBindings",
            {"80/tcp": [{"HostPort": "8080"}]},
        ),
        ({"HostConfig": {"PortBindings": {"80/tcp": [{}]}}}, "", "ExposedPorts", {"80/tcp": {}}),
        ({"network_mode": "a"}, "", "NetworkingConfig", {"EndpointsConfig": {"a": {"Aliases": ["NAME"]}}}),
        ({"network": "host"}, "", "NetworkingConfig", {"EndpointsConfig": {}}),
        ({"NetworkingConfig": {"endpoints_config": {}}}, "", "NetworkingConfig", {"EndpointsConfig": {}}),
        ({"init": None}, "HostConfig", "Init", None),
    ],
)  # fmt: skip
def test_options_of_the_engine_are_accepted_too(
    options: dict[str, Any], section: str, key: str, expected: Any
) -> None:
    sent = body(**options)
    value = (sent[section] if section else sent).get(key)
    assert json.loads(json.dumps(value).replace(sent["Hostname"], "NAME")) == expected


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"shm_sise": 1}, "unknown container option `shm_sise`", "did you mean `shm_size`?"),
        ({"ShmSise": 1}, "unknown container option `ShmSise`", "did you mean `ShmSize`?"),
        ({"HostConfig": {"ShmSise": 1}}, "unknown container option `ShmSise`", "did you mean `ShmSize`?"),
        ({"HostConfig": {"Memory": "much"}}, "the container option `Memory`", ""),
        ({"HostConfig": 1}, "unknown container option `HostConfig`", ""),
        ({"Env": ["A=1"]}, "the container option `Env`", ""),
        ({"HostConfig": {"RestartPolicy": {}}}, "the container option `RestartPolicy`", ""),
        ({"name": "x"}, "the container option `name`", ""),
        ({"tty": True}, "unknown container option `tty`", ""),
        ({5: True}, "unknown container option `5`", ""),
    ],
)
def test_an_unknown_or_reserved_option_is_rejected(options: dict[Any, Any], message: str, hint: str) -> None:
    role = sh("true", metadata={"local_docker": options})
    with pytest.raises(UsageError) as caught:
        scheduler().submit_dryrun(AppDef("job", [role]), {})
    assert caught.value.message.startswith(message)
    assert "role `w`" in caught.value.message
    assert hint in (caught.value.hint or "")


class Adjusted(Role):
    """A role that adjusts its request."""

    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
        (container,) = dryrun_info.request.containers
        assert container.kwargs["name"] == container.kwargs["hostname"] == container.name
        assert container.kwargs["environment"]["TORCHX_REPLICA"] == "w/0"
        container.kwargs["environment"]["ADDED"] = "1"
        container.body["NetworkingConfig"] = {"EndpointsConfig": {"a": {}}}
        container.kwargs["shm_size"] = "1m"
        container.kwargs.update(cap_add=["SYS_PTRACE"])
        del container.kwargs["init"]
        container.image += ":2"
        container.command = [*container.command, "--more"]
        assert {"Env", "ShmSize"} <= {*container.kwargs}
        assert "Image" not in container.kwargs
        return dryrun_info


def test_pre_proc_changes_request_by_names_of_docker_package() -> None:
    info = scheduler().submit_dryrun(AppDef("job", [Adjusted("w", "img", entrypoint="a")]), {})
    sent = info.request.containers[0].body
    assert (sent["Image"], sent["Cmd"]) == ("img:2", ["a", "--more"])
    assert "ADDED=1" in sent["Env"]
    assert sent["NetworkingConfig"] == {"EndpointsConfig": {"a": {}}}
    host = sent["HostConfig"]
    assert (host["ShmSize"], host["CapAdd"], "Init" in host) == (1 << 20, ["SYS_PTRACE"], False)


@pytest.mark.docker
def test_the_dry_run_prints_what_is_sent(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    call = Engine.call

    def recorded(
        engine: Engine, method: str, path: str, query: Any = None, body: Any = None, *rest: Any
    ) -> Any:
        if path == "/containers/create":
            sent.append(json.loads(json.dumps({**query, **body})))
        return call(engine, method, path, query, body, *rest)

    monkeypatch.setattr(Engine, "call", recorded)
    role = sh("true", 2, metadata={"local_docker": {"volumes": {"/tmp": {"bind": "/host", "mode": "ro"}}}})
    info = scheduler().submit_dryrun(AppDef(fresh("shown"), [role]), {"env": {"A": "1"}})
    jobs.ids.append(scheduler().schedule(info))
    shown = yaml.safe_load(repr(info))
    for container in sent:
        for label in (JOB, USER):  # recorded at the submission
            del container["Labels"][label]
    assert sorted(sent, key=lambda c: str(c["name"])) == shown["containers"]


def test_options_that_may_hold_secrets_are_not_in_label() -> None:
    options = {
        "log_config": {"type": "splunk", "config": {"splunk-token": "s3cret"}},
        "HostConfig": {"LogConfig": {"Config": {"splunk-token": "s3cret"}}, "ShmSize": 1},
        "Entrypoint": ["s3cret"],
        "user": "1",
    }
    app = AppDef("job", [sh("true", metadata={"local_docker": options})])
    (role,) = label_data(job_data(app, {}, "torchx"))["app"]["roles"]
    assert role["metadata"] == {"local_docker": {"HostConfig": {"ShmSize": 1}, "user": "1"}}


@pytest.mark.docker
def test_a_query_loads_neither_the_docker_package_nor_ssh() -> None:
    code = (
        "import sys; from torchx.schedulers.docker_scheduler import create_scheduler as create\n"
        "assert create('torchx').describe('no-such-job-b1') is None\n"
        "print({'docker', 'requests', 'torchx.schedulers.docker.engine.ssh'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("set()\n", "")


NAMES = (
    "a" * 29 + "-" + "b" * 50,
    "a" * 29 + "." + "b" * 50,
    "\u03b1\u03b2" * 40,
    "\U0001f680" * 80,
    "data.",
)
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*")


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize("app", NAMES)
def test_shortened_names_are_host_names(app: str, role: str) -> None:
    request = scheduler().submit_dryrun(AppDef(app, [sh("true", 1000, name=role)]), {}).request
    hosts = [container.body["Hostname"] for container in request.containers]
    assert len(set(hosts)) == 1000
    assert all(len(host) <= 63 and HOST.fullmatch(host) for host in hosts)


@pytest.mark.docker
def test_a_shortened_name_reaches_the_replica(jobs: Jobs) -> None:
    variable = "TORCHX_HOSTS_" + "A" * 29 + "_" + "B" * 50
    script = f"import os, socket; [socket.gethostbyname(h) for h in os.environ['{variable}'].split(',')]"
    role = sh(f'sleep 2; python3 -c "{script}" && sleep 2', 3, name=NAMES[1])
    app_id = jobs.submit(role, sh("sleep 600", name="other"), fail_fast=False)
    done = wait_until(
        lambda: [r for r in replicas(describe(app_id))[:3] if r.exit_code == 0], "one has found all"
    )
    assert done
