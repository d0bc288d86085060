"""Set-ups on other engines: the same program, in containers and on the nodes of a cluster."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import containers
import gridengines
import pytest
import slurms
from manifests import job_of, made, role, run_as

from torchx.schedulers.gridengine.scheduler import create_scheduler as create_gridengine
from torchx.schedulers.kubernetes.manifests.job import job_rules
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import create_scheduler as create_slurm
from torchx.scheduling.base import AnyScheduler, DescribeAppResponse
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.setup_once import program
from torchx.specs.app import AppDef
from torchx.specs.mounts import VolumeMount
from torchx.specs.status import AppState

WORKS = "test -e $TORCHX_SETUP_DIR/made && echo ready"


def log_of(scheduler: AnyScheduler, app_id: str) -> str:
    return b"".join(chunk.data for chunk in scheduler.log_chunks(app_id, LogQuery())).decode()


@pytest.fixture(
    params=[
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("gridengine", marks=pytest.mark.gridengine),
    ]
)
def batch(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[AnyScheduler]:
    """A batch system, whose nodes share a folder for results: one set-up is for all of them."""
    monkeypatch.setenv(program.HOME, str(tmp_path / "setup"))
    created: AnyScheduler = (
        create_slurm("torchx") if request.param == "slurm" else create_gridengine("torchx")
    )
    yield created
    for record in list(Records(created.backend).all()):
        created.delete(str(record.job_id) if created.backend == "slurm" else record.full_id)


def ended(batch: AnyScheduler, script: str, command: str, **fields: object) -> DescribeAppResponse:
    of_engine = slurms.role if batch.backend == "slurm" else gridengines.role
    cfg = {"pe": "mpi"} if batch.backend == "gridengine" else {}
    app_id = batch.submit(AppDef("setup", [of_engine(script, **fields)]), {**cfg, "setup_once": command})
    assert batch.wait(app_id, 60)
    described = batch.describe(app_id)
    assert described is not None
    return described


def test_nodes_of_a_batch_system(batch: AnyScheduler, tmp_path: Path) -> None:
    command = f"echo run >> {tmp_path}/count; sleep 1; touch $TORCHX_SETUP_DIR/made"
    for _ in range(2):
        job = ended(batch, WORKS.replace("$", "$$"), command, num_replicas=4)
        assert job.state is AppState.SUCCEEDED
        assert job.roles[0].entrypoint == "sh"
        assert log_of(batch, job.app_id).count("ready\n") == 4
    assert (tmp_path / "count").read_text() == "run\n"


def test_a_failure_ends_a_batch_job(batch: AnyScheduler, tmp_path: Path) -> None:
    command = f"echo run >> {tmp_path}/count; echo no wheel; exit 3"
    job = ended(batch, "echo program", command, num_replicas=3, max_retries=2)
    assert job.state is AppState.FAILED
    assert job.first_failure is not None
    assert job.first_failure.exit_code == program.FAILED
    assert "torchx setup failed on " in job.first_failure.msg
    assert "program\n" not in log_of(batch, job.app_id)
    assert (tmp_path / "count").read_text() == "run\n"


@pytest.mark.docker
def test_containers_with_and_without_a_volume() -> None:
    """Without a volume, each container prepares its own file system; with one, they share the results."""
    command = "echo prepares; sleep 0.5; touch $TORCHX_SETUP_DIR/made"
    volume = f"torchx-test-{uuid.uuid4().hex[:8]}"
    with containers.jobs_of_a_test() as jobs:
        for mounts, count in (([], 3), ([VolumeMount(volume, "/results")], 1)):
            env = {program.HOME: "/results"} if mounts else {}
            job = jobs.run(
                containers.sh(WORKS.replace("$", "$$"), 3, mounts=mounts, env=env), setup_once=command
            )
            assert job.state is AppState.SUCCEEDED
            output = containers.text(job.app_id)
            assert output.count("torchx setup | prepares\n") == count
            assert output.count("ready\n") == 3
            assert job.roles[0].entrypoint == "sh"
        failed = jobs.run(containers.sh("echo program", 2, max_retries=2), setup_once="exit 3")
        assert failed.state is AppState.FAILED
        assert failed.first_failure is not None
        assert failed.first_failure.exit_code == program.FAILED
        waits = jobs.submit(containers.sh("true"), setup_once="sleep 600", grace_period=30.0)
        containers.until_logged(waits, "sleep 600")
        containers.scheduler().cancel(waits)
        assert containers.ended(waits, 20).state is AppState.CANCELLED, "TERM reaches the program with pid 1"
    subprocess.run(["docker", "volume", "rm", volume], check=True, capture_output=True)


def test_a_pod_prepares_itself(tmp_path: Path) -> None:
    command = 'echo "$((1 + 1)) $(echo $HOME)"; touch $TORCHX_SETUP_DIR/made'
    one = role(
        entrypoint="sh",
        args=["-c", WORKS.replace("$", "$$")],
        max_retries=2,
        env={program.HOME: str(tmp_path)},
    )
    request = made(AppDef("a", [one]), setup_once=command)
    argv, env = run_as(job_of(request)["spec"]["template"], 0)
    env["TORCHX_RETRIES"] = "0"
    output = subprocess.run(
        argv,
        env={**env, "PATH": os.environ["PATH"], "HOME": "/h"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout == "ready\n"
    assert "torchx setup | 2 /h\n" in output.stderr


def test_cluster_does_not_retry_set_up() -> None:
    (rule,) = job_rules({"setup_once": "make"})
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailIndex", [program.FAILED])
    assert job_rules({"setup_once": "make", "no_retry_on": ["none"]}) == []
    (both,) = job_rules(
        {"setup_once": "make", "preflight": ["disk"], "no_retry_on": ["setup_once", "preflight"]}
    )
    assert both["onExitCodes"]["values"] == [93, 94]
