"""A missing controller is reported soon; a slow one gets time to answer."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from torchx.errors import AbsentError
from torchx.schedulers.slurm.commands import NoAnswerError, call, refusing_addresses


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A port without a listener, and a configuration that names it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        f"# SlurmctldHost=far\nslurmctldhost = ctl(127.0.0.1)  # the first\nSlurmctldPort={port}\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return port


def squeue(tmp_path: Path, script: str) -> None:
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


def test_a_port_without_a_listener_is_not_waited_for(port: int, tmp_path: Path) -> None:
    squeue(tmp_path, "while sleep 0.1; do echo; done")
    with pytest.raises(NoAnswerError, match=f"connection refused at 127.0.0.1:{port}"):
        call(["squeue"], timeout=60.0)


def test_one_that_is_slow_is_waited_for(port: int, tmp_path: Path) -> None:
    squeue(tmp_path, "sleep 1; read word; echo got $word")
    with socket.create_server(("127.0.0.1", port)):
        assert call(["squeue"], text="it\n") == "got it\n"
        squeue(tmp_path, "while sleep 0.1; do echo; done")
        with pytest.raises(NoAnswerError, match="timed out after 1 s"):
            call(["squeue"], timeout=1.0)


def test_programs_without_a_cluster_are_as_good_as_none(port: int, tmp_path: Path) -> None:
    squeue(tmp_path, "echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1")
    with pytest.raises(AbsentError, match="no cluster is configured"):
        call(["squeue"])


def test_without_a_configuration_here_nothing_is_known(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusing_addresses() == f"127.0.0.1:{port}"
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=no-such-host.invalid\n")
    assert refusing_addresses() == ""
    (tmp_path / "slurm.conf").write_text("SlurmctldPort=none\nSlurmctldHost=a\n")
    assert refusing_addresses() == ""
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "gone"))
    assert refusing_addresses() == ""
