"""What a container is given: names, labels, environment, limits, mounts, devices, ports and rights."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from containers import Jobs, containers, ended, running, scheduler, sh, text
from engine import IMAGE
from support import wait_until

from torchx.schedulers.docker.engine.client import Engine
from torchx.scheduling.logs import Stream
from torchx.specs.app import AppDef
from torchx.specs.mounts import BindMount, DeviceMount, TmpfsMount, VolumeMount
from torchx.specs.resources import Resource
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


def test_names_labels_and_network_are_those_of_the_field(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("hostname; echo $TORCHX_RANK0_HOST; echo $TORCHX_IMAGE", 2))
    ended(app_id)
    names = [f"{app_id[-30:]}-w-{n}" for n in (0, 1)]
    found = sorted(containers(app_id), key=lambda c: c["Name"])
    assert [c["Name"] for c in found] == [f"/{name}" for name in names]
    labels = found[1]["Config"]["Labels"]
    assert labels["torchx.pytorch.org/app-id"] == app_id
    assert labels["torchx.pytorch.org/role-name"] == "w"
    assert labels["torchx.pytorch.org/replica-id"] == "1"
    assert labels["torchx.pytorch.org/version"]
    assert list(found[0]["NetworkSettings"]["Networks"]) == ["torchx"]
    for replica, name in enumerate(names):
        lines = list(scheduler().log_iter(app_id, "w", replica))
        assert lines == [f"{name}\n", f"{names[0]}\n", f"{IMAGE}\n"]


def test_replicas_reach_each_other_by_name(jobs: Jobs) -> None:
    # nc as a server would end the connection at once: it has nothing to say
    accept = """
import socket
server, text = socket.create_server(("", 4000)), b""
while not text:  # a busy client may give up before it has written
    text = server.accept()[0].recv(9)
print(text.decode(), end="")
"""
    server = sh("", name="server", entrypoint="python3", args=["-c", accept])
    client = sh("until echo hello | nc -w 1 $TORCHX_RANK0_HOST 4000; do sleep 0.1; done", name="client")
    result = jobs.run(server, client)
    assert result.state is AppState.SUCCEEDED
    assert list(scheduler().log_iter(result.app_id, "server", 0)) == ["hello\n"]


def test_environment_comes_from_role_options_and_caller(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPIED_ONE", "1")
    monkeypatch.setenv("NOT_COPIED", "1")
    role = sh("env | grep -E 'COPIED|FROM|OVER' | sort", env={"FROM_ROLE": "r", "OVER": "role"})
    done = jobs.run(role, copy_env=["COPIED_*"], env={"FROM_CFG": "c", "OVER": "cfg"})
    assert text(done.app_id) == "COPIED_ONE=1\nFROM_CFG=c\nFROM_ROLE=r\nOVER=role\n"


def test_memory_is_hard_limit_and_its_end_has_name(jobs: Jobs) -> None:
    eater = sh("", entrypoint="python3", args=["-c", "x = bytearray(200_000_000)"])
    eater.resource = Resource(cpu=1, gpu=0, memMB=64)
    done = jobs.run(eater)
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert done.first_failure.signal == "SIGKILL"
    assert done.first_failure.msg == "out of memory: its limit is 64 MiB"


def test_limits_reach_the_engine(jobs: Jobs) -> None:
    role = sh("df -m /dev/shm | tail -n 1", resource=Resource(cpu=2, gpu=0, memMB=128))
    done = jobs.run(role)
    host = containers(done.app_id)[0]["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (2 * 10**9, 128 << 20, 128 << 20)
    assert host["Init"] is True
    assert text(done.app_id).split()[1] == "128"


def test_folder_in_memory_has_the_requested_size(jobs: Jobs) -> None:
    fill = "df -m /scratch | tail -n 1; head -c 3000000 /dev/zero > /scratch/a"
    done = jobs.run(sh(fill, mounts=[TmpfsMount("/scratch", 2)]))
    assert done.state is AppState.FAILED, "what is full takes no more"
    (line,) = text(jobs.ids[-1], Stream.STDOUT).splitlines()
    assert "tmpfs" in line
    assert line.split()[1] == "2", "MB"
    assert jobs.run(sh("mount | grep -q 'tmpfs on /any'", mounts=[TmpfsMount("/any")])).state is (
        AppState.SUCCEEDED
    )


def test_mounts_and_devices_are_there(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("from outside\n")
    role = sh("cat /data/in; touch /data/no 2>&1 | grep -o Read-only; echo kept > /v/x; ls /dev/other")
    role.mounts = [
        BindMount(str(tmp_path), "/data", read_only=True),
        VolumeMount("torchx-test-volume", "/v"),
        DeviceMount("/dev/null", "/dev/other"),
    ]
    try:
        done = jobs.run(role)
        assert text(done.app_id) == "from outside\nRead-only\n/dev/other\n"
        again = jobs.run(sh("cat /v/x", mounts=[VolumeMount("torchx-test-volume", "/v")]))
        assert text(again.app_id) == "kept\n"
    finally:
        for app_id in jobs.ids:
            scheduler().delete(app_id)
        Engine().call("DELETE", "/volumes/torchx-test-volume")


def test_the_metadata_of_a_role_may_set_further_options(jobs: Jobs) -> None:
    done = jobs.run(sh("id -u; pwd", metadata={"local_docker": {"user": "1000:1000", "working_dir": "/tmp"}}))
    assert text(done.app_id) == "1000\n/tmp\n"


def test_privileged_gives_all_rights(jobs: Jobs) -> None:
    # only requested: a machine of tests may be a container itself that has not all rights to give
    info = scheduler().submit_dryrun(AppDef("job", [sh("true")]), {"privileged": True})
    (container,) = info.request.containers
    assert container.body["HostConfig"]["Privileged"] is True
    assert containers(jobs.run(sh("true")).app_id)[0]["HostConfig"]["Privileged"] is False


def test_ports_are_published_on_the_machine(jobs: Jobs) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    role = sh(
        f"test $TORCHX_PORT_WEB = {port}; echo served | nc -l -p {port}",
        port_map={"web": port, "c10d": 29500},
    )
    app_id = jobs.submit(role)
    running(app_id)
    published = containers(app_id)[0]["HostConfig"]["PortBindings"]
    assert list(published) == [f"{port}/tcp"], "the port of the rendezvous is for the replicas alone"

    def served() -> bool:
        # the engine takes connections from the start, and ends them until the program in there does so
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            return client.recv(100) == b"served\n"

    wait_until(served, "it is served")


def test_roles_may_listen_on_the_same_port(jobs: Jobs) -> None:
    """Each container has an address of its own, but the machine has the port once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    one, two = (sh("true", 2, name=name, port_map={"web": port}) for name in ("one", "two"))
    status = jobs.run(one, two)
    assert status.state is AppState.SUCCEEDED, status.msg
    names = [f"{status.app_id}-{name}" for name in ("one-0", "one-1", "two-0", "two-1")]
    published = {c["Name"].lstrip("/"): c["HostConfig"]["PortBindings"] for c in containers(status.app_id)}
    found = [published[name][f"{port}/tcp"][0]["HostPort"] for name in names]
    assert found[0] == str(port)
    assert set(found[1:]) <= {"", "0"}


def test_retries_share_a_folder_for_checkpoints(jobs: Jobs) -> None:
    place = "$TORCHX_CHECKPOINT_DIR/state"
    status = jobs.run(sh(f"[ -e {place} ] || {{ : > {place}; exit 3; }}", max_retries=1))
    assert status.state is AppState.SUCCEEDED


def test_an_entrypoint_of_the_image_does_not_count(jobs: Jobs) -> None:
    engine = Engine()
    base = engine.call("POST", "/containers/create", body={"Image": IMAGE, "Cmd": ["true"]})["Id"]
    try:
        config = {"Entrypoint": ["echo", "from the image"]}
        engine.call("POST", "/commit", {"container": base, "repo": "torchx-test-entry", "tag": "1"}, config)
        done = jobs.run(sh("echo mine", image="torchx-test-entry:1"))
        assert text(done.app_id) == "mine\n"
    finally:
        for app_id in jobs.ids:
            scheduler().delete(app_id)
        engine.call("DELETE", f"/containers/{base}", {"force": 1})
        engine.call("DELETE", "/images/torchx-test-entry:1")


def test_describe_loses_nothing_on_another_machine(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = {"local_docker": {"stop_signal": "SIGTERM"}}
    role = sh(
        "echo $$HOME ${replica_id}${app_id} $$${rank0_env}; exit 3",
        2,
        env={"A": "ä=1", "OUT": "/x/${app_id}/$$5"},
        resource=Resource(1, 0, 64),
        metadata={"x": {"y": (1, 2)}, **own},
    )
    role.mounts = [BindMount("/etc", "/data", read_only=True)]
    done = jobs.run(role, env={"B": "2"})
    assert done.roles == [role]
    assert done.cfg["env"] == {"B": "2"}
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "elsewhere"))
    found = scheduler().describe(done.app_id)
    assert found is not None
    role.metadata = own  # notes to other engines stay where they were written
    assert (found.name, found.roles, found.metadata) == ("job", [role], {"team": "a"})
    assert found.cfg["env"] == {"B": "2"}
    assert [line.state for line in scheduler().list() if line.app_id == done.app_id] == [AppState.FAILED]
    scheduler().delete(done.app_id)
    assert containers(done.app_id) == []
    assert not os.path.exists(tmp_path / "elsewhere"), "asking leaves nothing behind"


def test_dry_run_shows_containers_and_needs_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    shown = repr(scheduler().submit_dryrun(AppDef("job", [sh("echo hi", 2)]), {}))
    assert shown.count("Hostname:") == 2
    assert "echo hi" in shown
