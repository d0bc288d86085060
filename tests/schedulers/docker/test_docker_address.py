"""Where the engine is, and what is said when it cannot be reached; needs no engine."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from containers import scheduler

from torchx.errors import StateError, TorchxError, UsageError
from torchx.schedulers.docker import doctor as docker_diagnosis
from torchx.schedulers.docker.engine import client as docker_engine
from torchx.schedulers.docker.engine.address import find_address, parse_address
from torchx.schedulers.docker.engine.client import Engine, EngineError, NoEngineError
from torchx.schedulers.docker.lookup import entries
from torchx.scheduling.findings import Verdict
from torchx.scheduling.logs import LogQuery


@pytest.fixture(autouse=True)
def _no_settings_of_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DOCKER_")]:
        monkeypatch.delenv(name)


@contextmanager
def answering(folder: Path, *answers: bytes) -> Iterator[str]:
    """Something at a socket that gives these answers in turn, and the last one to all that follow."""
    left = list(answers)
    path = str(folder / "docker.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    if client.recv(1 << 16):
                        client.sendall(left.pop(0) if len(left) > 1 else left[0])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def error_of(monkeypatch: pytest.MonkeyPatch, address: str) -> TorchxError:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(TorchxError) as caught:
        list(scheduler().list())
    assert "\n" not in caught.value.message
    return caught.value


def test_the_usual_socket_is_the_default() -> None:
    assert str(find_address()) == "unix:///var/run/docker.sock"


def test_the_context_that_is_chosen_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"currentContext": "box"}')
    with pytest.raises(StateError, match="the docker context `box` is missing"):
        find_address()
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"box").hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": "tcp://box:4"}}}))
    assert str(find_address()) == "tcp://box:4 (context `box`)"
    monkeypatch.setenv("DOCKER_HOST", "unix:///x")
    assert find_address().path == "/x"


@pytest.mark.parametrize("text", ["docker.sock", "tcp://", "tcp://h:x", "npipe:////./pipe/docker", "unix://"])
def test_what_is_no_address_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    error = error_of(monkeypatch, text)
    assert isinstance(error, UsageError)
    expected = "unix:///path/to.sock, tcp://host:port or ssh://user@host"
    assert error.message == f"DOCKER_HOST is {text}, expected {expected}"


def test_a_context_may_lead_over_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"far").hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": "ssh://me@box"}}}))
    address = find_address()
    assert str(address) == "ssh://me@box (context `far`)"
    assert address.command[-5:] == ("-l", "me", "--", "box", "docker system dial-stdio")


def test_encryption_follows_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://box")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    assert (find_address().port, find_address().certificates) == (2376, str(tmp_path))


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = error_of(monkeypatch, f"unix://{tmp_path}/none.sock")
    assert isinstance(error, NoEngineError)
    assert error.message.startswith(
        f"no Docker engine answers at unix://{tmp_path}/none.sock (the socket does not exist"
    )
    assert error.hint == "start Docker, or set DOCKER_HOST; without Docker: -s local_cwd"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "(connection refused" in error_of(monkeypatch, f"tcp://127.0.0.1:{port}").message


def test_a_socket_that_one_may_not_use(tmp_path: Path) -> None:
    error = Engine(parse_address("unix:///x")).unreachable(PermissionError())
    assert str(error) == (
        "no Docker engine answers at unix:///x (permission denied)\n"
        "  add yourself to the group `docker`, or set DOCKER_HOST; without Docker: -s local_cwd"
    )


def test_something_else_and_an_engine_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with answering(tmp_path, b"HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n") as address:
        assert error_of(monkeypatch, address).message.endswith("is not a Docker engine")
    (tmp_path / "docker.sock").unlink()
    old = b"HTTP/1.1 200 OK\r\nApi-Version: 1.24\r\nContent-Length: 2\r\n\r\nOK"
    with answering(tmp_path, old) as address:
        assert "is too old: its API version is 1.24" in error_of(monkeypatch, address).message
    (tmp_path / "docker.sock").unlink()
    with answering(tmp_path, ping("1.x")) as address:
        assert error_of(monkeypatch, address).message.endswith("is not a Docker engine")
    (tmp_path / "docker.sock").unlink()
    with answering(tmp_path, b"") as address:
        assert error_of(monkeypatch, address).message.startswith("no Docker engine answers")


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 9\r\n\r\n"])
def test_engine_that_hangs_is_never_one_without_application(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begin: bytes
) -> None:
    monkeypatch.setattr(docker_engine, "FIRST_PATIENCE", 0.2)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "docker.sock"))
        server.listen()
        held: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    held[-1].sendall(begin)

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        calls = [
            lambda: scheduler().exists("job-b1"),
            lambda: scheduler().describe("job-b1"),
            lambda: scheduler().glance("job-b1"),
            lambda: list(scheduler().list()),
            lambda: scheduler().wait("job-b1", 1.0),
            lambda: scheduler().cancel("job-b1"),
            lambda: scheduler().delete("job-b1"),
            lambda: scheduler().log_chunks("job-b1", LogQuery()),
        ]
        try:
            for call in calls:
                with pytest.raises(NoEngineError, match="timed out"):
                    call()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


def test_answer_that_comes_drop_by_drop_has_limit_too(tmp_path: Path) -> None:
    ping = answer("200 OK", "OK", "Api-Version: 1.41\r\n")
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "docker.sock"))
        server.listen()

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(1 << 16)
                client.sendall(ping)
            with server.accept()[0] as client, suppress(OSError):
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not over.wait(0.02):
                    client.sendall(b" ")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(NoEngineError, match="timed out"):
                Engine(parse_address(f"unix://{tmp_path}/docker.sock")).call("GET", "/info", patience=0.3)
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("body", ["{}", "[1]", '["a"]', "<html>", "null"])
def test_answer_that_is_no_list_is_an_error(tmp_path: Path, body: str) -> None:
    ping = answer("200 OK", "OK", "Api-Version: 1.41\r\n")
    refused = pytest.raises(StateError, match="is not a Docker engine")
    with answering(tmp_path, ping, answer("200 OK", body)) as address, refused:
        entries(Engine(parse_address(address)), "job-b1")
    (tmp_path / "docker.sock").unlink()
    with answering(tmp_path, answer("503 no", "busy")) as address, pytest.raises(NoEngineError, match="503"):
        Engine(parse_address(address)).call("GET", "/info")


def answer(status: str, body: str, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def ping(version: str) -> bytes:
    return answer("200 OK", "OK", f"Api-Version: {version}\r\n")


@pytest.mark.parametrize(
    ("newest", "oldest", "setting", "expected"),
    [
        ("1.41", "1.12", "", "1.41"),
        ("1.52", "1.44", "", "1.47"),  # the newest that this client uses
        ("1.99", "1.60", "", "1.60"),  # the engine no longer supports that
        ("1.52", "1.44", "1.45", "1.45"),
        ("1.52", "1.44", "v1.50", "1.50"),
    ],
)
def test_engine_and_client_agree_on_a_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, newest: str, oldest: str, setting: str, expected: str
) -> None:
    monkeypatch.setenv("DOCKER_API_VERSION", setting)
    with answering(
        tmp_path, ping(newest), answer("200 OK", json.dumps({"MinAPIVersion": oldest}))
    ) as address:
        assert Engine(parse_address(address)).version == expected


@pytest.mark.parametrize("setting", ["1.99", "1.39", "latest", "1"])
def test_version_that_one_side_lacks_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    monkeypatch.setenv("DOCKER_API_VERSION", setting)
    with answering(tmp_path, ping("1.41")) as address:
        error = error_of(monkeypatch, address)
    assert isinstance(error, UsageError)
    assert error.message.startswith(f"DOCKER_API_VERSION is {setting}, expected a version from 1.40 to 1.41")
    assert error.hint == "use the newest version that both support: unset DOCKER_API_VERSION"


def test_query_that_fails_for_ended_process_is_retried(tmp_path: Path) -> None:
    ping = answer("200 OK", "OK", "Api-Version: 1.41\r\n")
    tripped = answer("500 no", '{"message": "read /proc/31/cgroup: no such process"}')
    gone = answer("404 no", '{"message": "a1 does not exist in database: no such container"}')
    for passing in (tripped, gone):
        with answering(tmp_path, ping, passing, answer("200 OK", "[]")) as address:
            assert Engine(parse_address(address)).call("GET", "/containers/json") == []
        (tmp_path / "docker.sock").unlink()
    for goes in (gone, answer("500 no", '{"message": "a1 does not exist in database: no such container"}')):
        with answering(tmp_path, ping, goes, answer("200 OK", "{}")) as address:
            with pytest.raises(EngineError) as caught:
                Engine(parse_address(address)).call("GET", "/containers/a1/json")
            assert caught.value.status == 404, "whatever it is called there, it is gone"
        (tmp_path / "docker.sock").unlink()
    with answering(tmp_path, ping, tripped) as address, pytest.raises(EngineError, match="no such process"):
        Engine(parse_address(address)).call("GET", "/containers/json")
    (tmp_path / "docker.sock").unlink()
    with answering(tmp_path, ping, tripped, answer("200 OK", "[]")) as address, pytest.raises(EngineError):
        Engine(parse_address(address)).call("POST", "/containers/create")  # it may have been made


def test_an_engine_whose_networks_are_locked_up_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(docker_diagnosis, "PATIENCE", 0.5)
    empty = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\n{}"
    with answering(tmp_path, empty, empty, empty, b"HTTP/1.1 ") as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        *others, network = docker_diagnosis.diagnose()
    assert [finding.verdict for finding in others if finding.what == "engine"] == [Verdict.GOOD]
    assert (network.what, network.verdict) == ("network", Verdict.WRONG)
    assert network.hint.startswith("restart the engine")


@pytest.mark.parametrize(
    ("info", "files", "is_found"),
    [
        ({"Runtimes": {"nvidia": {}}}, [], True),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}, [], True),
        ({}, [docker_diagnosis.HOOK], True),
        ({"CDISpecDirs": ["FOLDER"]}, ["nvidia.yaml"], True),
        ({"Runtimes": {"runc": {}}, "CDISpecDirs": ["FOLDER"]}, ["other.yaml"], False),
    ],
)
def test_each_way_to_gpus_is_found(
    info: dict[str, Any], files: list[str], is_found: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(docker_diagnosis, "DEFAULT_PATH", "")
    monkeypatch.setattr(Engine, "is_podman", False)
    folders = {key: [str(tmp_path)] for key in info if key == "CDISpecDirs"}
    found = docker_diagnosis._gpus(Engine(parse_address("unix:///no-engine")), {**info, **folders})
    assert found.verdict is (Verdict.GOOD if is_found else Verdict.ABSENT)
