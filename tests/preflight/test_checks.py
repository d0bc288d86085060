"""The checks of GPUs, with a program that answers as that of the driver, and the command of a replica."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import fakegpus
import pytest

from torchx.leases.holders import take
from torchx.schedulers.kubernetes.manifests.job import job_rules
from torchx.schedulers.shared.options import SHARED
from torchx.scheduling import handover, preflight, preflight_gpus, preflight_program
from torchx.scheduling.failure_causes import BEFORE_PROGRAM
from torchx.scheduling.preflight_gpus import CheckFailedError, check_gpus, kernel_errors
from torchx.scheduling.setup_once import program as setup_program
from torchx.specs.app import RetryPolicy, Role
from torchx.specs.resources import Resource
from torchx_cli.main import main


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    return fakegpus.install(monkeypatch, tmp_path, 2)


def finding(gpus: int = 2, **check: float) -> str:
    try:
        check_gpus({"gpus": gpus}, {"kind": "gpu", **check})
    except CheckFailedError as failure:
        return str(failure)
    return ""


def test_gpus_with_defects_are_found(machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not finding()
    assert finding(3) == "2 of 3 requested GPUs are present"
    machine.memory(1, 9000)
    assert finding() == "GPU 1 has 9000 of 81920 MiB of memory in use"
    assert not finding(least=70e9), "enough is free"
    assert finding(least=80e9) == "GPU 1 has 76.5 GB of memory free, 80.0 GB are needed"
    machine.memory(1, 1)
    machine.health("3, Yes, 1", "[N/A], [N/A], [N/A]")
    assert finding() == (
        "GPU 0 has 3 uncorrected ECC errors; GPU 0 has pages to retire: it needs a reset; "
        "GPU 0 could not remap a defective row"
    )
    for only in ("1", machine.ids[1][:8]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", only)
        assert not finding(1), "the other GPU is not this replica's"
    machine.memory(1, 1)
    program = machine.folder / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "Unable to determine the device handle: GPU is lost."; exit 15\n')
    assert finding() == "nvidia-smi: Unable to determine the device handle: GPU is lost."
    program.write_text("#!/bin/sh\nsleep 600\n")
    monkeypatch.setattr(preflight_gpus, "GPU_ANSWERS_WITHIN", 0.1)
    assert finding().startswith("nvidia-smi does not answer")
    program.unlink()
    monkeypatch.setenv("PATH", str(machine.folder))
    assert finding() == "nvidia-smi is not installed"


def test_an_older_driver_lacks_some_values(machine: fakegpus.FakeGpus) -> None:
    (machine.folder / "nvidia-smi.health").unlink()
    assert not finding()


def test_errors_in_the_kernel_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kmsg"
    monkeypatch.setattr(preflight_gpus.time, "clock_gettime", lambda _: 5000.0)
    log.write_text(
        "4,1,4990000000,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=1, GPU has fallen off the bus.\n"
        "4,2,4990000000,-;NVRM: Xid (PCI:0000:3C:00): 13, an error of a program\n"
        "4,3,1000000,-;NVRM: Xid (PCI:0000:3D:00): 79, some time ago\n"
        "4,4,x;a line, of another kind\n"
    )
    assert kernel_errors(str(log)) == {"0000:3b:00": [79]}
    assert kernel_errors(str(tmp_path / "none")) == {}
    gpu = {"index": "0", "memory.total": "1", "memory.used": "0", "xids": [79]}
    assert preflight_gpus.defects(gpu) == ["GPU 0 has the kernel error Xid 79"]


def test_doctor_checks_the_gpus_of_this_machine(
    machine: fakegpus.FakeGpus, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.memory(1, 9000)
    machine.compute((1, os.getpid(), "/usr/bin/python3"))
    leases = take([f"gpu-{machine.ids[0]}"])
    assert leases is not None
    with leases:
        assert main(["doctor", "--gpus", "-o", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["GPUs"]
    assert (first["what"], first["verdict"]) == ("GPU 0", "ok")
    assert f"1 of 81920 MiB in use, in use by a process (pid {os.getpid()}) of" in first["detail"]
    assert f"in use by python3 (pid {os.getpid()}) of" in second["detail"]
    machine.health("0, No, 0", "12, No, 0")
    assert main(["doctor", "--gpus"]) == 1
    assert "wrong  GPU 1  GPU 1 has 12 uncorrected ECC errors" in capsys.readouterr().out
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["doctor", "--gpus"]) == 0, "a machine without GPUs is not wrong"
    assert main(["doctor", "--gpus", "local_cwd"]) == 2


def test_the_command_of_a_replica() -> None:
    role = Role("w", "", entrypoint="/venv/bin/python3", args=["x.py"], num_replicas=3)
    role.resource = Resource(1, 2, 3)
    role.retry_policy = RetryPolicy.REPLICA
    plain = [role.entrypoint, *role.args]
    assert preflight.with_checks(plain, role, {}) == plain
    command = preflight.with_checks(plain, role, {"preflight": ["disk", "cmd:a b"]}, "host")
    assert command[0] == "/venv/bin/python3", "the Python of the program, which has its packages"
    assert preflight.with_checks(["sh"], role, {"preflight": "disk"})[0] == "python3"
    request = json.loads(command[3])
    assert (request["gpus"], request["replicas"], request["together"]) == (2, 3, False)
    assert request["meet"] == "host"
    assert command[4:] == ["--", *plain]
    assert preflight.without_checks(command) == plain
    for text in ("gpus", "disk:", "disk:much", "collective:0", "cmd:", "cmd:'", ""):
        with pytest.raises(ValueError, match="`preflight` has"):
            preflight.checks_of({"preflight": [text]})


def test_job_of_cluster_does_not_retry_failed_check() -> None:
    (rule,) = job_rules({"preflight": ["disk"]})
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailIndex", [preflight_program.FAILED])
    assert job_rules({}) == job_rules({"preflight": ["disk"], "no_retry_on": ["none"]}) == []


def test_the_program_depends_on_nothing() -> None:
    """It runs with any Python 3.8, and is one text."""
    for module in (handover, preflight_gpus, preflight_program, setup_program):
        assert module.__file__ is not None
        text = Path(module.__file__).read_text("ascii")
        ast.parse(text, feature_version=(3, 8))
    for program in (preflight_program, setup_program):
        cause, mark = BEFORE_PROGRAM[program.FAILED]
        assert program.MARK.startswith(mark)
        assert cause in SHARED
