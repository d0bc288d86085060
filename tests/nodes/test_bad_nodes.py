"""Bad nodes: the evidence that counts, the file, the command, and the options of clusters."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import manifests
import pytest
from manifests import job_of, made

from torchx.errors import StateError
from torchx.features.bad_nodes import evidence, store
from torchx.features.bad_nodes.store import KEPT, BadNode
from torchx.machine import files
from torchx.runner.api import Runner
from torchx.schedulers.gridengine.options import directives_of
from torchx.schedulers.gridengine.scheduler import create_scheduler as create_gridengine
from torchx.schedulers.slurm.options import sbatch_options
from torchx.schedulers.slurm.scheduler import create_scheduler as create_slurm
from torchx.scheduling import preflight_gpus
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.app import AppDef, Role
from torchx.specs.status import (
    AppState,
    AppStatus,
    AttemptStatus,
    EndCause,
    ReplicaStatus,
    RoleStatus,
)
from torchx_cli.main import main

HANDLE = "slurm://torchx/17"


class Logs:
    """A runner that has the logs of replicas."""

    def __init__(self, logs: dict[int, str]) -> None:
        self.logs = logs

    def log_chunks(self, handle: str, query: LogQuery) -> Iterator[LogChunk]:
        (number,) = query.replicas["w"]
        text = self.logs.get(number, "").encode()
        yield LogChunk("w", number, 1, Stream.STDERR, 0.0, text)


def replica(
    number: int, host: str, state: AppState, cause: EndCause | None = None, msg: str = ""
) -> ReplicaStatus:
    attempt = AttemptStatus(1, state, 1, cause=cause, msg=msg)
    return ReplicaStatus(number, state, "w", host, attempts=[attempt])


def status(*replicas: ReplicaStatus, cause: EndCause | None = None, msg: str = "") -> AppStatus:
    ended = datetime.now(timezone.utc)
    return AppStatus(
        AppState.FAILED, roles=[RoleStatus("w", list(replicas))], cause=cause, msg=msg, ended_at=ended
    )


def found(line: str, *others: ReplicaStatus) -> dict[str, str]:
    first = replica(0, "n1", AppState.FAILED)
    runner: Any = Logs({0: f"{line}\nRuntimeError: x\n"})
    return {node.host: node.cause for node in evidence.nodes_of(runner, HANDLE, status(first, *others))}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "ecc"),
        ("NVRM: Xid (PCI:0000:3B:00): 79, pid=1, GPU has fallen off the bus.", "xid"),
        ("torchx preflight failed on n1: gpu: GPU 1 has 12 uncorrected ECC errors", "preflight"),
        ("torchx preflight failed on n1: cmd: `a` ended with 1; disk: / has 0.10 GB free", "preflight"),
    ],
)
def test_lines_that_name_the_node(line: str, cause: str) -> None:
    assert found(line) == {"n1": cause}


@pytest.mark.parametrize(
    "line",
    [
        "exit code 1",
        "RuntimeError: CUDA error: device-side assert triggered",
        "NVRM: Xid (PCI:0000:3B:00): 31, pid=1, MMU fault",
        "torchx preflight failed on n1: cmd: `false` ended with exit code 1",
        "torchx preflight failed on n1: collective: ranks 1 did not arrive within 120 s",
        "torchx setup failed on n1: `uv sync` ended with exit code 2",
        "he said: torchx preflight failed on n9: gpu: none",
        "torch.distributed.DistBackendError: NCCL error: remote process exited",
        "NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.9<4711>",
        "Killed",
    ],
)
def test_lines_that_prove_nothing(line: str) -> None:
    assert found(line, replica(1, "n2", AppState.CANCELLED)) == {}


def test_peers_of_nccl() -> None:
    line = (
        "n1:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n2.lan<4711>"
    )
    assert found(line, replica(1, "n2", AppState.CANCELLED)) == {"n2": "nccl_remote"}
    assert found(line, replica(1, "n2", AppState.FAILED)) == {}, "its program has failed"
    assert found(line.replace("n2.lan", "n1"), replica(1, "n2", AppState.CANCELLED)) == {}
    assert found(line.replace("n2.lan", "n22"), replica(1, "n2", AppState.CANCELLED)) == {}


@pytest.mark.parametrize("problem", [NotImplementedError("no logs"), StateError("no answer"), KeyError("x")])
def test_errors_do_not_reach_a_command(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler of a plugin may have no logs; one that cannot avoid nodes is not queried."""
    queried: list[str] = []

    def fails(handle: str, query: LogQuery) -> Iterator[LogChunk]:
        queried.append(handle)
        raise problem

    failed = status(replica(0, "n1", AppState.FAILED))
    with Runner("torchx") as runner:
        monkeypatch.setattr(runner, "log_chunks", fails)
        evidence.record(runner, HANDLE, failed)
        evidence.record(runner, "local_cwd://torchx/x", failed)
    assert queried == [HANDLE]
    assert store.clusters() == []


def test_critical_errors_are_those_of_the_checks() -> None:
    assert evidence.CRITICAL_XIDS == preflight_gpus.CRITICAL_XIDS


def test_lost_nodes() -> None:
    lost = EndCause.NODE_LOST
    one = replica(0, "n1", AppState.FAILED, lost, "it was lost with its node")
    two = replica(1, "n2", AppState.CANCELLED)
    assert evidence.lost(status(one, two)) == {"n1": "it was lost with its node"}
    both = replica(1, "n2", AppState.FAILED, lost)
    assert evidence.lost(status(one, both)) == {}, "the engine does not say which"
    assert evidence.lost(status(two, replica(2, "n3", AppState.CANCELLED), cause=lost)) == {}
    assert evidence.lost(status(two, cause=lost, msg="a node failed")) == {"n2": "a node failed"}
    nowhere = ReplicaStatus(0, AppState.FAILED, "w", "", attempts=[])
    assert evidence.lost(status(nowhere, cause=lost)) == {}


def node(host: str, at: float, **changes: Any) -> BadNode:
    return BadNode(host, "ecc", "x", HANDLE, at, at + KEPT)._replace(**changes)


def test_the_file_is_private_small_and_forgets() -> None:
    now = time.time()
    store.remember("slurm", [node("n2", now - 9), node("n1", now), node("old", now - KEPT - 1)])
    store.remember("slurm", [node("n2", now, cause="xid")])
    store.remember("kubernetes", [])
    assert [(each.host, each.cause) for each in store.load("slurm")] == [("n1", "ecc"), ("n2", "xid")]
    assert store.load("slurm", now + KEPT + 1) == []
    assert store.clusters() == ["slurm"]
    (path,) = (files.user_home() / "nodes").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.remember("slurm", [node(f"m{number}", now + 1) for number in range(store.MOST + 50)])
    assert len(store.load("slurm")) == store.MOST
    path.write_text('[{"host": 3}]')
    with pytest.raises(StateError, match="cannot be read"):
        store.load("slurm")


def test_many_processes_add_nodes() -> None:
    code = (
        "import sys, time; from torchx.features.bad_nodes.store import *; "
        "remember('slurm', [BadNode(sys.argv[1], 'ecc', 'x', 'h', time.time(), time.time() + 9e4)])"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, f"n{number}"]) for number in range(8)]
    assert [process.wait(60) for process in started] == [0] * 8
    assert {each.host for each in store.load("slurm")} == {f"n{number}" for number in range(8)}


def test_the_command_lists_and_forgives(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes"]) == 0
    assert capfd.readouterr().err == "no bad nodes\n"
    assert not (files.user_home() / "nodes").exists(), "a query does not write"
    store.remember("slurm", [node("n1", time.time() - 3600), node("n2", time.time())])
    assert main(["nodes"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["HOST", "SCHEDULER", "CAUSE", "SEEN", "LEFT", "EVIDENCE"]
    assert lines[1].startswith("n1    slurm      ecc    1 h ago   6 d 22 h")
    assert main(["nodes", "--scheduler", "kubernetes", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out) == []
    assert main(["nodes", "forgive", "n1", "n3"]) == 2
    assert "`n3` is not a bad node" in capfd.readouterr().err
    assert main(["nodes", "forgive"]) == 2
    assert main(["nodes", "forget", "n1"]) == 2
    assert main(["nodes", "forgive", "n1"]) == 0
    capfd.readouterr()
    assert main(["nodes", "-o", "json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["host"], row["scheduler"], row["cause"], row["app"]) == ("n2", "slurm", "ecc", HANDLE)


@pytest.mark.parametrize("origin", ["flag", "config"])
def test_runs_avoid_them_and_say_so(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store.remember("slurm", [node("n7", time.time()), node("n8", time.time())])
    store.remember("gridengine", [node("g1", time.time())])
    flags = ["--avoid-bad-nodes"]
    if origin == "config":
        Path(".torchxconfig").write_text(
            "[slurm]\navoid_bad_nodes = true\n[gridengine]\navoid_bad_nodes = true\n"
        )
        flags = []
    line = ["run", *flags, "--dryrun", "-cfg", f"job_dir={tmp_path}", "-s"]
    assert main([*line, "slurm", "utils.echo"]) == 0
    output = capfd.readouterr()
    assert "#SBATCH --exclude=n7,n8\n" in output.out
    assert "avoids the bad nodes n7 (ecc), n8 (ecc); to see why: torchx nodes\n" in output.err
    assert main([*line, "gridengine", "utils.echo"]) == 0
    assert "#$ -l h=!g1\n" in capfd.readouterr().out
    store.forgive("slurm", ["n7", "n8"])
    assert main([*line, "slurm", "utils.echo"]) == 0
    output = capfd.readouterr()
    assert "--exclude" not in output.out
    assert "bad nodes" not in output.err


def test_other_schedulers_have_no_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--avoid-bad-nodes", "-s", "local_cwd", "utils.echo"]) == 2
    assert "--avoid-bad-nodes does not work with local_cwd" in capfd.readouterr().err


def test_each_cluster_has_an_option_for_hosts() -> None:
    cfg: dict[str, Any] = {"avoid_hosts": ["a", "b"]}
    assert sbatch_options(cfg) == {"exclude": "a,b"}
    assert sbatch_options({**cfg, "exclude": "z"}) == {"exclude": "z,a,b"}
    assert list(directives_of(cfg)) == ["-l h=!a&!b"]
    request = made(AppDef("a", [manifests.role()]), avoid_hosts=["a", "b"])
    manifests.check(request.manifests)
    spec = job_of(request)["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [(each["key"], each["operator"], each["values"]) for each in term["matchFields"]] == [
        ("metadata.name", "NotIn", ["a"]),
        ("metadata.name", "NotIn", ["b"]),
    ]
    assert "affinity" not in job_of(made(AppDef("a", [manifests.role()])))["spec"]["template"]["spec"]


def submit_and_wait(create: Any, backend: str, role: Role, **cfg: Any) -> AppStatus:
    with Runner("torchx", {backend: create}) as runner:
        handle = runner.run(AppDef("nodes", [role]), backend, cfg)
        ended = runner.wait(handle, timeout=60)
        assert ended is not None
        try:
            assert ended.is_terminal()
            return ended
        finally:
            runner.delete(handle)


CLUSTERS = [
    pytest.param("slurm", create_slurm, "node", {}, marks=pytest.mark.slurm),
    pytest.param("gridengine", create_gridengine, "genode", {"pe": "mpi"}, marks=pytest.mark.gridengine),
]


@pytest.mark.parametrize(("backend", "create", "prefix", "cfg"), CLUSTERS)
def test_evidence_of_a_job(backend: str, create: Any, prefix: str, cfg: dict[str, Any]) -> None:
    line = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    role = Role("w", "", entrypoint="sh", args=["-c", f"echo '{line}'; exit 1"])
    role.resource.cpu, role.resource.memMB = 1, 100
    failed = submit_and_wait(create, backend, role, **cfg)
    (bad,) = store.load(backend)
    assert (bad.host, bad.cause, bad.evidence) == (failed.replicas[0].hostname, "ecc", line)
    assert bad.host.startswith(prefix)
    role.args, role.num_replicas = ["-c", "sleep 1"], 6
    ended = submit_and_wait(create, backend, role, avoid_bad_nodes=True, **cfg)
    assert ended.state is AppState.SUCCEEDED
    assert bad.host not in {each.hostname for each in ended.replicas}
    assert os.environ["TORCHX_HOME"]
