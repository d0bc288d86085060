"""`torchx doctor`: what is reachable, what is wrong, and how to mend it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.machine import processes
from torchx_cli.main import main

Told = dict[str, list[dict[str, str]]]


def look(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> Told:
    assert main(["doctor", *words, "-o", "json"]) == code
    data: Told = json.loads(capsys.readouterr().out)
    return data


@pytest.fixture(autouse=True)
def _nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_this_machine_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    (findings,) = look(capsys, "local_cwd", code=0).values()
    assert {finding["what"]: finding["verdict"] for finding in findings}["state home"] == "ok"


def test_named_engine_that_does_not_answer_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    result = look(capsys, code=1)
    (docker,) = result["local_docker"]
    assert docker["verdict"] == "wrong"
    assert "docker.sock" in docker["detail"]
    assert "start Docker" in docker["hint"]
    (cluster,) = result["kubernetes"]
    assert cluster["verdict"] == "none", "none is configured"


def test_background_processes_have_a_purpose(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own: set[int] = set()
    table = processes.table

    def own_table() -> Iterator[processes.Entry]:  # other tests have processes, too
        return (entry for entry in table() if entry.process.pid in own)

    monkeypatch.setattr(processes, "table", own_table)
    (nothing,) = look(capsys, code=1)["background processes"]
    assert nothing["verdict"] == "none"
    assert main(["run", "--detach", "-s", "local_cwd", "utils.sh", "sleep 60"]) == 0
    app_id = capsys.readouterr().out.strip().rpartition("/")[2]
    try:
        own.update(entry.process.pid for entry in table() if app_id.encode() in command_line(entry))
        (found,) = look(capsys, code=1)["background processes"]
    finally:
        assert main(["cancel", app_id]) == 0
    assert found["what"] == "supervisor"
    assert found["detail"].startswith("2 processes, "), "a supervisor and its guard"
    assert f" MiB, for {app_id}. The process that supervises the replicas of a job" in found["detail"]


def command_line(entry: processes.Entry) -> bytes:
    return processes.read_proc(f"/proc/{entry.process.pid}/cmdline")


def test_an_engine_requested_by_name_has_to_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert look(capsys, "kubernetes", code=1)["kubernetes"][0]["verdict"] == "none"
    assert main(["doctor", "nosuch"]) == 2


def test_a_state_home_that_cannot_be_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "file" / "home"))
    reported = {finding["what"]: finding for finding in look(capsys, "local_cwd", code=1)["local_cwd"]}
    assert reported["state home"]["verdict"] == "wrong"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_state_home_where_no_folder_can_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHX_HOME", "/proc/none/home")
    assert main(["run", "utils.sh", "true"]) == 1
    assert capsys.readouterr().err.startswith("error: the state home /proc/none/home cannot be used: ")


def test_people_read_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "local_docker"]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "local_docker"
    assert second.split()[:2] == ["wrong", "engine"]
    assert third.strip().startswith("start Docker")


@pytest.mark.docker
def test_a_real_engine_is_described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    (findings,) = look(capsys, "local_docker", code=0).values()
    reported = {finding["what"]: finding["detail"] for finding in findings}
    assert "Docker " in reported["engine"] or "Podman " in reported["engine"]
    assert reported["interface"].startswith("version 1.")
