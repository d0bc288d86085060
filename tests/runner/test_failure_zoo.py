"""`why` names the right cause of each failure of a zoo, on each engine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import zoo
from engine import IMAGE
from fakecluster import FakeCluster
from fakecluster.controllers import delete
from fakecluster.store import Object
from local import kill_supervision
from slurms import role, slurm

from torchx.machine import processes
from torchx.runner import get_runner
from torchx.runner.api import Runner
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.shared.batch.record import Records
from torchx.specs.app import AppDef

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    with get_runner("zoo") as runner:
        yield runner


def id_of(handle: str) -> str:
    return handle.rpartition("/")[2]


def stop_agents(handle: str) -> None:
    """Stops the agents of a job, which run on this machine."""
    (folder,) = (record.folder for record in Records("slurm").all() if str(record.job_id) == id_of(handle))
    for entry in processes.table():
        with suppress(OSError):
            command = processes.read_proc(f"/proc/{entry.process.pid}/cmdline")
            if f"{folder}/.node/agent.py".encode() in command.split(b"\0"):
                os.kill(entry.process.pid, signal.SIGSTOP)


def test_the_zoo_has_forty_failures() -> None:
    names = [case.name for case in zoo.CASES]
    assert len(names) == len(set(names)) >= 40
    assert min(len(zoo.cases_of(engine)) for engine in zoo.ENGINES) >= 40


@pytest.mark.long
def test_why_names_the_causes_of_local_failures(runner: Runner) -> None:
    def kill_the_supervisor(runner: Runner, handle: str) -> None:
        zoo.until_running(runner, handle)
        kill_supervision(id_of(handle))

    acts = {"cancel": zoo.cancel, "kill the supervisor": kill_the_supervisor}
    assert zoo.run_all(runner, zoo.LOCAL, acts, grace_period=2.0, retry_backoff=0.1) == ""


@pytest.mark.long
@pytest.mark.docker
def test_why_names_the_causes_of_containers(runner: Runner) -> None:
    engine = Engine()

    def container(runner: Runner, handle: str) -> str:
        zoo.until_running(runner, handle)
        return next(c.id for c in containers_of(engine, id_of(handle)) if c.replica == 0)

    def remove(runner: Runner, handle: str) -> None:
        engine.call("DELETE", f"/containers/{container(runner, handle)}?force=true")

    def kill(runner: Runner, handle: str) -> None:
        engine.call("POST", f"/containers/{container(runner, handle)}/kill?signal=KILL")

    acts = {"cancel": zoo.cancel, "remove the container": remove, "kill the container": kill}
    assert zoo.run_all(runner, zoo.DOCKER, acts, IMAGE, grace_period=2.0, retry_backoff=0.1) == ""


@pytest.mark.slurm
def test_why_names_the_causes_on_a_cluster(runner: Runner) -> None:
    def scancel(runner: Runner, handle: str) -> None:
        zoo.until_running(runner, handle)
        slurm("scancel", id_of(handle))

    def kill_the_script(runner: Runner, handle: str) -> None:
        zoo.until_up(runner, handle, 2)
        slurm("scancel", "--signal=KILL", "--batch", id_of(handle))

    def signal_step(name: str, runner: Runner, handle: str) -> None:
        zoo.until_up(runner, handle, 2)  # a signal to a step that is being created is lost
        if name == "KILL":
            stop_agents(handle)  # else one may note the end of its program before it is killed
        slurm("scancel", f"--signal={name}", f"{id_of(handle)}.0")

    def depend(runner: Runner, handle: str) -> None:
        failing = id_of(runner.run(AppDef("fails", [role("exit 1")]), zoo.SLURM, {"hold": True}))
        slurm("scontrol", "update", f"JobId={id_of(handle)}", f"Dependency=afterok:{failing}")
        for job in (id_of(handle), failing):
            slurm("scontrol", "release", job)

    acts = {"cancel": zoo.cancel, "scancel": scancel, "depend on a failure": depend}
    acts |= {"kill the batch script": kill_the_script, "kill the step": partial(signal_step, "KILL")}
    acts["end the step"] = partial(signal_step, "TERM")
    assert zoo.run_all(runner, zoo.SLURM, acts, grace_period=2.0, requeue=False) == ""


@pytest.mark.long
def test_why_names_the_causes_of_pods(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))

        def pod(runner: Runner, handle: str) -> Object:
            zoo.until_running(runner, handle)
            name = id_of(handle).rpartition(":")[2]
            return next(p for p in cluster.objects("pods") if p["metadata"]["name"].startswith(name))

        def remove(runner: Runner, handle: str) -> None:
            delete(cluster.store, PODS, pod(runner, handle))

        acts = {"cancel": zoo.cancel, "delete the pod": remove}
        assert zoo.run_all(runner, zoo.KUBERNETES, acts, "registry.example.com/shell", grace_period=1.0) == ""
