"""Records with one changed value: they are read as documented, or rejected by one clear line."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import TorchxError, UsageError
from torchx.features.bad_nodes import store as bad_nodes
from torchx.jobs import ended, events, ticket
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.jobs.view import JobView, ReplicaView, fold
from torchx.machine import files
from torchx.notifications.store import Store as Notifications
from torchx.provenance.model import Editable, File, Machine, Provenance, Python, Source, Submodule
from torchx.provenance.store import Store as Sources
from torchx.queue import keepers
from torchx.runner import once
from torchx.schedulers.docker import containers, labels
from torchx.schedulers.docker import record as docker_record
from torchx.schedulers.docker.folder import load_request
from torchx.schedulers.docker.measurement.statistics import totals_of
from torchx.schedulers.kubernetes.api.pods import SmallPods
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.measurement import sample_of
from torchx.schedulers.kubernetes.names import OUTCOME
from torchx.schedulers.kubernetes.record import read_record as read_annotation
from torchx.schedulers.kubernetes.record import write_record
from torchx.schedulers.kubernetes.state.outcome import Outcome, outcome_of
from torchx.schedulers.kubernetes.state.restarts import Restart, restart_from
from torchx.schedulers.shared import stalls
from torchx.schedulers.shared.batch import outcome as slurm_outcome
from torchx.schedulers.shared.batch.attempts import read_facts
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord, _as_json, read_record
from torchx.scheduling.stacks import parse_stacks
from torchx.specs.app import AppDef, Role
from torchx.specs.serialize import app_to_dict
from torchx.specs.status import AppState, FirstFailure
from torchx.sweeps import plan, progress, requests
from torchx.sweeps.paths import SweepPaths
from torchx_cli.mcp import tools

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0.5,
    10**400,
    1e308,
    float("nan"),
    "",
    "x\ud800\n",
    "9" * 5000,
    [],
    {},
)
"""Values of each type, and those beyond its limits."""

UNCLEAR = re.compile(
    "' object|positional argument|unpack|subscriptable|not in list|not in tuple|indices|codec"
)
"""Parts of the messages of Python."""

AT = 1_790_000_000.25
ROLE = Role("w", "img", entrypoint="sh", args=["-c", "x ${app_id}"], env={"A": "1"}, num_replicas=2)
APP = AppDef("train", [ROLE], {"tag": "a"})
SAMPLE = {"span": 1.0, "cpu": 0.5, "memory": 4096, "gpu": 0.1, "gpu_memory": 8, "output": 1.0}
TOKEN = "b1b1b1b1"


@dataclass
class Format:
    """A format of foreign data.

    Attributes:
        name: its name.
        data: a valid record.
        read: reads a record in a folder; returns None or an empty value if it rejects it without an error.
        errors: the documented errors.
    """

    name: str
    data: Any
    read: Callable[[Any, Path], Any]
    errors: tuple[type[Exception], ...] = ()


def changed(value: Any, path: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yields the changes of a record, each a function from the record to another one, with their names."""
    for other in VALUES:
        yield f"{path} = {json.dumps(other)[:12]}", lambda _, other=other: copy.deepcopy(other)
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys:
        yield f"{path}.{key} removed", lambda data, key=key: _without(data, key)
        for name, change in changed(value[key], f"{path}.{key}"):
            yield name, lambda data, key=key, change=change: _with(data, key, change(data[key]))


def _without(data: Any, key: Any) -> Any:
    del data[key]
    return data


def _with(data: Any, key: Any, value: Any) -> Any:
    data[key] = value
    return data


def text(data: Any) -> bytes:
    return json.dumps(data).encode()


def placed(path: Path, data: Any) -> Path:
    """Writes a record, private to the user."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(text(data) + b"\n")
    path.chmod(0o600)
    return path


def replica_record() -> dict[str, Any]:
    replicas = [ReplicaRecord(["sh", "-c"], {"A": "1"})]
    role = RoleRecord("w", replicas, {"B": "2"}, "/cwd", 3, "ROLE", 2, "/copy", {"ready": "tcp:1"}, ("x",))
    logs = "/logs/torchx/job-1"
    app, cfg = {"name": "job"}, {"a": 1}
    record = JobRecord(
        "job-1",
        "local_cwd",
        "torchx",
        "job",
        AT,
        logs,
        [role],
        app,
        cfg,
        7.5,
        False,
        0.25,
        [["m", "C", "/d"]],
    )
    return dict(record._plain())


def provenance() -> dict[str, Any]:
    digest, commit = "a" * 64, "b" * 40
    file = File("a.py", "modified", 0o100644, 3, digest, "")
    source = Source(
        "/src", commit, "main", "git@host:x", "/src/.git", (file,),
        7, (Submodule("sub", commit, "/o", commit),), ("note",), True, ("data",),
    )  # fmt: skip
    python = Python("3.11", "/bin/python", "program", {"a": "1"}, {"b": Editable("/b", commit, True)})
    machine = Machine("host", "ann", "Linux", ("A100",), "550")
    return dict(
        Provenance(
            AT, "0.2", "torchx run", "/src", True, AT, source, python, machine, ("note",), False
        ).to_json()
    )


def read_job_record(data: Any, folder: Path) -> Any:
    return JobRecord.load(placed(folder / "job-1" / "job.json", data))


def read_ticket(data: Any, folder: Path) -> Any:
    paths = Home(folder).job("job-1")
    placed(paths.ticket, data)
    return ticket.Ticket.load(paths)


def read_event(data: Any, folder: Path) -> Any:
    """Applies an event to a job with a running replica; returns the job if it was accepted."""
    line = events.parse_event(text(data))
    record = JobRecord("job-1", "local_cwd", "torchx", "job", AT, "/logs", [], {}, {})
    view = JobView(record, [ReplicaView("w", 0, 1), ReplicaView("w", 1, 1)])
    fold(view, {"t": AT, "e": "start", "r": 0, "a": 1, "pid": 7, "start": 1})
    if line is None or not fold(view, line):
        return None
    return asdict(view)


def event(kind: str, **facts: Any) -> Format:
    return Format(f"event {kind}", {"t": AT, "e": kind, **facts}, read_event)


def read_plan(data: Any, folder: Path) -> Any:
    paths = SweepPaths(folder)
    placed(paths.plan, data)
    return plan.Plan(paths).header


def read_run(data: Any, folder: Path) -> Any:
    paths = SweepPaths(folder)
    placed(paths.plan, HEADER)
    opened = plan.Plan(paths)
    opened.lines[1] = text(data)
    return opened.run(1)


HEADER = {
    "sweep": "s-1",
    "name": "train",
    "session": "torchx",
    "scheduler": "local_cwd",
    "cfg": {"a": 1},
    "component": "c",
    "at": AT,
    "identity": "i",
    "at_once": 2,
    "native": False,
    "version": 1,
    "template": app_to_dict(APP),
    "after": [["local_cwd://torchx/x", "succeeded"]],
}


def read_progress(data: Any, folder: Path) -> Any:
    paths = SweepPaths(folder)
    placed(paths.journal, data)
    found = vars(progress.load(paths, 3))
    return {key: value for key, value in found.items() if value}


def read_requests(data: Any, folder: Path) -> Any:
    paths = SweepPaths(folder)
    placed(paths.requests, data)
    return list(requests.read(paths, 0))


def read_notification_plan(data: Any, folder: Path) -> Any:
    placed(folder / "plan.json", data)
    return Notifications(folder).plan()


def read_steps(data: Any, folder: Path) -> Any:
    placed(folder / "journal.jsonl", data)
    return Notifications(folder).steps()


def read_stalls(data: Any, folder: Path) -> Any:
    return stalls.read_stalls(placed(folder / "events.jsonl", data))


def read_source(data: Any, folder: Path) -> Any:
    store = Sources(folder)
    placed(store.record, data)
    return store.read()


def read_bad_nodes(data: Any, folder: Path) -> Any:
    placed(files.user_home() / "nodes" / "slurm.json", data)
    return bad_nodes.load("slurm", 1.0)


def read_once(data: Any, folder: Path) -> Any:
    return once._read(placed(folder / "name.json", data))


def read_container(data: Any, folder: Path) -> Any:
    if not isinstance(data, dict):
        return None  # as the listing of containers
    found = containers.read(data)
    if found is None or found.damage:
        return None
    return found


def read_docker_record(data: Any, folder: Path) -> Any:
    placed(docker_record._old_path("train-b1"), data)
    return docker_record.load_data("train-b1")


def read_request(data: Any, folder: Path) -> Any:
    paths = JobPaths(folder)
    placed(folder / "request.json", data)
    return load_request(paths)


JOB = docker_record.job_data(APP, {"grace_period": 1.0, "env": {"B": "2"}}, "torchx")
RETRY = {"used": {"application": 1}, "attempts": [1, 2]}
LABELS = {
    labels.APP_ID: "train-b1",
    labels.ROLE: "w",
    labels.REPLICA: "0",
    labels.USER: "ann",
    labels.ATTEMPT: "1",
    labels.ENDS_AT: "1790000000",
    labels.RETRY: json.dumps(RETRY),
    labels.JOB: json.dumps(docker_record.label_data(JOB)),
}
INSPECTED = {
    "Id": "0123456789abcdef" * 4,
    "Name": "/train-b1-w-0",
    "Created": "2026-01-01T00:00:00.5Z",
    "RestartCount": 0,
    "Config": {"Labels": LABELS, "Image": "img", "Hostname": "train-b1-w-0", "Cmd": ["sh"], "Env": ["A=1"]},
    "State": {
        "Status": "exited",
        "ExitCode": 0,
        "OOMKilled": False,
        "Error": "",
        "Pid": 0,
        "StartedAt": "2026-01-01T00:00:01Z",
        "FinishedAt": "2026-01-01T00:00:02Z",
    },
    "HostConfig": {
        "Memory": 1,
        "RestartPolicy": {"MaximumRetryCount": 0},
        "DeviceRequests": [{"DeviceIDs": ["GPU-1"]}],
    },
}
STATISTICS = {
    "memory_stats": {"usage": 5000, "stats": {"inactive_file": 100}},
    "cpu_stats": {"cpu_usage": {"total_usage": 5}, "online_cpus": 2},
    "blkio_stats": {"io_service_bytes_recursive": [{"op": "Read", "value": 4}, {"op": "Write", "value": 5}]},
}
POD = {
    "metadata": {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "x",
        "labels": {"torchx.pytorch.org/a": "b"},
        "annotations": {"torchx.pytorch.org/c": "d"},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "v", "controller": True}],
    },
    "spec": {"nodeName": "m", "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "x": 2}}}]},
    "status": {
        "phase": "Running",
        "startTime": "x",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "c",
                "ready": True,
                "restartCount": 1,
                "lastState": {},
                "state": {"terminated": {"exitCode": 1, "reason": "r", "finishedAt": "x"}},
            }
        ],
    },
}
MAIN = {
    "metadata": POD["metadata"],
    "type": "x",
    "involvedObject": {"name": "a"},
    "spec": {
        "suspend": True,
        "completions": 2,
        "template": {"spec": {"containers": [{"name": "c"}]}},
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "x"}]}]},
        "replicatedJobs": [{"name": "r", "template": {"spec": {"completions": 1}}}],
        "tasks": [{"name": "t", "template": {"metadata": {"labels": {"a": "b"}}}}],
    },
    "status": {"active": 1, "failedIndexes": "1", "state": {"phase": "Running"}},
}
METRICS = {
    "timestamp": "2026-01-01T00:00:00Z",
    "window": "10s",
    "containers": [{"usage": {"cpu": "1", "memory": "2Ki"}}],
}
FACTS = {
    "started_at": 5.0,
    "ended_at": 6.0,
    "ready_at": 5.5,
    "noticed_at": 5.6,
    "needed": True,
    "run": 1,
    "host": "n1",
    "signal": "SIGTERM",
    "stop_signal": "",
    "msg": "m",
    "cause": "x",
    "exit_code": 3,
}
STACKS = {
    "host": "n1",
    "processes": [
        {
            "replica": "w/0",
            "attempt": "1",
            "pid": 5,
            "rank": 0,
            "parent": 1,
            "program": "p",
            "state": "running",
            "wait": "",
            "note": "",
            "threads": [
                {
                    "name": "MainThread",
                    "wait": "",
                    "active": True,
                    "gil": False,
                    "frames": [["f", "a.py", 1, "x"]],
                }
            ],
        }
    ],
}
REPORT = {"sets": [["gpu0"]], "jobs": [["a-1", AT, 0, None, False, [[0, 1]]]], "places": [5.0]}


def slurm_record(folder: Path) -> dict[str, Any]:
    log = folder / "jobs" / f"train-{TOKEN}"
    record = BatchRecord(
        7, TOKEN, "train", "train", "torchx", str(log), AT, app_to_dict(APP), {"a": 1}, "c", task=3
    )
    return dict(json.loads(_as_json(record)))


def read_slurm_record(data: Any, folder: Path) -> Any:
    return read_record(placed(folder / "7.json", data), TOKEN)


def read_slurm_outcome(data: Any, folder: Path) -> Any:
    return slurm_outcome.read_outcome(BatchPaths(placed(folder / "outcome.json", data).parent))


def read_attempt(data: Any, folder: Path) -> Any:
    return read_facts(placed(folder / "0.json", data))


def read_outcome(data: Any, folder: Path) -> Any:
    found = outcome_of([{"metadata": {"annotations": {OUTCOME: json.dumps(data)}}}])
    if found == Outcome():
        return None
    return found


def read_call(data: Any, folder: Path) -> Any:
    if not isinstance(data, dict):
        return None  # the protocol accepts objects only
    return tools.command_line("log", tools.TOOLS["log"], data)


def outcome() -> Any:
    failure = FirstFailure("w", 0, 1, 1, None, "boom")
    return json.loads(Outcome(failure, AppState.FAILED, "boom", None, {"w": "0"}).text()) | {
        "ended_at": "2026-01-01T00:00:00Z"
    }


REPLICA = {"r": 0, "a": 1}
FORMATS = [
    Format("local job", replica_record(), read_job_record, (TorchxError,)),
    Format(
        "ended job",
        {
            "app_id": "a-1",
            "scheduler": "local_cwd",
            "session": "torchx",
            "name": "a",
            "state": "FAILED",
            "submitted_at": AT,
            "started_at": AT,
            "ended_at": AT,
            "exit_code": 1,
            "msg": "m",
            "tags": {"a": "b"},
        },
        lambda data, _: ended.parse(text(data)),
    ),
    Format(
        "ticket",
        {
            "app_id": "a-1",
            "at": AT,
            "gpus": 1,
            "cpus": [["cpu0"], 1],
            "memory": [["m0"], 2],
            "ports": ["p"],
            "visible": [["gpu0", "0", "0"]],
            "per_role": [["w", 1]],
            "priority": 1,
            "limit": 5.0,
            "held": False,
            "boot_id": "b",
            "cwd": "/",
            "umask": 18,
            "place_at": 5.0,
        },
        read_ticket,
        (TorchxError,),
    ),
    event("supervisor", pid=7, start=1, boot="b", guard=[8, 2], uptime=5.0),
    event("starting", **REPLICA),
    event("start", **REPLICA, pid=7, start=1),
    event("not_started", **REPLICA, code=127, msg="m", cause="x"),
    event("exit", **REPLICA, code=1, signal="SIGKILL", stopped="", msg="m", peak_kib=5, usage=SAMPLE),
    event("ready", **REPLICA),
    event("retry", **REPLICA, scope="ROLE", n=1, of=2, delay=1.0),
    event("requeue", n=1, of=2, why="time limit"),
    event("stalled", msg="m", r=0, step=5, since=AT, rs=[0]),
    event("notice", msg="m"),
    event("exit", **REPLICA, code=1, over={"state": "FAILED", "msg": "m", "first": [0, 1], "cause": "x"}),
    event("end", state="FAILED", msg="m", first=[0, 1], cause="x"),
    Format("source", provenance(), read_source, (TorchxError,)),
    Format(
        "notifications",
        {"schema": 1, "handle": "local_cwd://torchx/a", "targets": ["https://x/y"], "on": ["end"]},
        read_notification_plan,
    ),
    Format("step", {"t": AT, "target": 0, "kind": "end", "step": "delivered", "msg": "m"}, read_steps),
    Format(
        "stall",
        {"t": AT, "e": "stalled", "since": AT, "step": 5, "msg": "m", "rs": [0]},
        read_stalls,
    ),
    Format("sweep", HEADER, read_plan, (TorchxError,)),
    Format("run", {"n": 1, "p": {"lr": "1"}, "d": []}, read_run, (TorchxError,)),
    Format(
        "begin of a run", {"e": "begin", "n": 1, "id": "a-1", "t": AT, "try": 2, "upto": 1}, read_progress
    ),
    Format("end of a run", {"e": "end", "n": 1, "s": "FAILED", "t": AT, "c": 1, "m": "m"}, read_progress),
    Format("cancel of runs", {"e": "cancel", "runs": 1, "m": "m"}, read_progress),
    Format("queue of runs", {"e": "queue", "key": "k", "ids": [[1, "a-1"]], "t": AT}, read_progress),
    Format(
        "bad nodes",
        [{"host": "n", "cause": "ecc", "evidence": "x", "app": "slurm://torchx/1", "at": 1.0, "until": AT}],
        read_bad_nodes,
        (TorchxError,),
    ),
    Format("request to a sweep", {"r": "cancel", "runs": [1], "to": 3}, read_requests),
    Format("report of a keeper", REPORT, lambda data, _: keepers.parse(text(data), 7)),
    Format(
        "name of a submission",
        {
            "salt": "s",
            "at": "2026-01-01T00:00:00+00:00",
            "parts": {"a": ["d", "v"]},
            "handle": "h",
            "key": "k",
        },
        read_once,
        (TorchxError,),
    ),
    Format(
        "label of a job",
        docker_record.label_data(JOB),
        lambda data, _: labels.read_job({labels.JOB: json.dumps(data)}),
        (labels.DamageError,),
    ),
    Format(
        "label of a retry",
        RETRY,
        lambda data, _: labels.read_retry({labels.RETRY: json.dumps(data)}),
        (labels.DamageError,),
    ),
    Format("container", INSPECTED, read_container),
    Format("statistics", STATISTICS, lambda data, _: totals_of(data)),
    Format("file of containers", {"app_id": "train-b1", "engine": "e", **JOB}, read_docker_record),
    Format("request", [["a", {"Image": "i"}]], read_request, (TorchxError,)),
    Format("pod", POD, lambda data, _: shaped(data)),
    Format("pod of a list", POD, lambda data, _: SmallPods()(data)),
    Format("job of a cluster", MAIN, lambda data, _: shaped(data)),
    Format("metrics", {"metadata": {"name": "a"}, **METRICS}, lambda data, _: sample_of(shaped(data) or {})),
    Format(
        "annotation",
        json.loads(write_record(APP, {"a": 1}) or ""),
        lambda data, _: read_annotation(json.dumps(data)),
        (TorchxError,),
    ),
    Format(
        "restart",
        json.loads(Restart({0: 1}, {"application": 1}, "why", 5.0).text()),
        lambda data, _: restart_from(json.dumps(data)),
    ),
    Format("outcome", outcome(), read_outcome),
    Format("record of Slurm", None, read_slurm_record, (ValueError,)),
    Format(
        "outcome of Slurm",
        {**slurm_outcome.Outcome(AppState.FAILED, "m", "", AT, AT, AT, 1)._asdict(), "state": "FAILED"},
        read_slurm_outcome,
    ),
    Format("attempt of Slurm", FACTS, read_attempt),
    Format("stacks", STACKS, lambda data, _: parse_stacks(json.dumps(data)), (ValueError,)),
    Format("call", {"handle": "x", "lines": 5, "streams": "stderr"}, read_call, (UsageError,)),
]


@dataclass
class Result:
    """The result of a change: a value, or the line of an error."""

    value: Any = None
    error: str = ""


def result_of(each: Format, data: Any, folder: Path) -> Result:
    try:
        return Result(each.read(data, folder))
    except each.errors as error:
        return Result(error=str(error))


def valid(each: Format, folder: Path) -> Any:
    if each.data is None:
        return slurm_record(folder)
    return copy.deepcopy(each.data)


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_changed_value_is_accepted_or_named(
    each: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    data = valid(each, tmp_path)
    assert result_of(each, copy.deepcopy(data), tmp_path).value, "the record is valid"
    for name, change in changed(data):
        try:
            found = result_of(each, change(copy.deepcopy(data)), tmp_path)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        assert found.error.count("\n") < 2, f"{name}: {found.error}"
        assert not UNCLEAR.search(found.error), f"{name}: {found.error}"
