"""Data that others wrote: no object or annotation breaks a command, or hides another application."""

from __future__ import annotations

import base64
import copy
import json
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from clusterobjects import a_job, a_lost_pod, a_pod, changed, paths_of
from fakecluster import FakeCluster
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kubejobs import submit, until_ended
from manifests import role
from program import torchx

from torchx.errors import TorchxError, UsageError
from torchx.schedulers.kubernetes.api.client import Listing
from torchx.schedulers.kubernetes.api.objects import indexes
from torchx.schedulers.kubernetes.api.shape import MALFORMED, shaped
from torchx.schedulers.kubernetes.application import app_of
from torchx.schedulers.kubernetes.cancel import cancel_objects, kill_objects
from torchx.schedulers.kubernetes.facts import Facts, split_id
from torchx.schedulers.kubernetes.logs import sources_of
from torchx.schedulers.kubernetes.names import APP, APP_ID, CANCELLED, ROLE_INDEX
from torchx.schedulers.kubernetes.objects import _may_be_disrupted
from torchx.schedulers.kubernetes.reconcile import reconcile_objects
from torchx.schedulers.kubernetes.record import RecordError, read_record, write_record
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.kubernetes.watch import Mirror
from torchx.schedulers.shared.listing import row_of
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.pace import Answers
from torchx.specs.app import AppDef
from torchx.specs.status import AppState

NOW = 1_795_300_000.0
MANY = settings(max_examples=50, suppress_health_check=list(HealthCheck))

texts = st.text(st.characters(), max_size=12) | st.sampled_from(
    [
        "-1",
        "²",
        "٣",
        "9" * 5000,
        "0-99999999999",
        "2026-99-99T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "\ud800",
        "{",
        "True",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


JOB, POD, LOST = a_job(), a_pod(), a_lost_pod()
OPEN = {**JOB, "status": {"active": 2, "ready": 1, "terminating": 1, "failedIndexes": "2"}}
FAILED = copy.deepcopy({key: POD[key] for key in ("metadata", "spec", "status")})
del FAILED["metadata"]["deletionTimestamp"], FAILED["status"]["conditions"]
NODE = {"metadata": {"name": "n"}, "status": {"conditions": [copy.deepcopy(LOST["status"]["conditions"][0])]}}
JOB_PATHS = [path for path in paths_of(JOB) if path[:2] != ("spec", "template") or len(path) < 5]
EVENT = {
    "metadata": {"name": "e"},
    "involvedObject": {"name": "a"},
    "type": "Warning",
    "reason": "FailedCreate",
}
EVENT["message"] = 'pods "a-trainer-1-xxxxx" is forbidden: exceeded quota: q'


class Agreeable:
    """Stands for a cluster that agrees to every change, and has no further objects."""

    def answers(self, path: str, query: Any) -> Answers[Any]:
        return Answers(query)

    def items(self, *args: Any, **more: Any) -> list[Any]:
        return []

    def list_with_version(self, *args: Any, **more: Any) -> Listing:
        return Listing([], "")

    class clock:
        @staticmethod
        def now() -> float:
            return NOW

    def patch_unchanged(self, path: str, known: Any, body: Any) -> bool:
        json.dumps(body)
        return True

    def find(self, path: str) -> None:
        return None

    def patch(self, path: str, body: Any) -> None:
        json.dumps(body)

    create = patch

    def delete(self, path: str, query: Any = None) -> None:
        """Deletes nothing."""


def judge(
    kind: str,
    *objects: Any,
    pods: tuple[Any, ...] = (),
    events: tuple[Any, ...] = (),
    node: Any = NODE,
) -> None:
    """Reads objects as all commands do."""
    mains = [found for each in objects if (found := shaped(copy.deepcopy(each))) is not None]
    if not mains:
        return
    found_pods = [found for each in pods if (found := shaped(copy.deepcopy(each))) is not None]
    found_events = [found for each in events if (found := shaped(copy.deepcopy(each))) is not None]
    found_nodes = dict.fromkeys("n", found) if (found := shaped(copy.deepcopy(node))) is not None else {}
    _may_be_disrupted(mains, found_pods)
    for partial in (False, True):
        facts = Facts("default", "a", kind, mains, mains, found_pods, found_events, found_nodes, partial)
        for change in (reconcile_objects, cancel_objects, kill_objects):
            change(Agreeable(), facts)  # type: ignore[arg-type]
        described = describe(facts, NOW)
        line = row_of(described)
        json.dumps([str(described.state), described.msg, line.msg]).encode()
        app_of(facts)
        sources_of(facts, LogQuery())
        assert isinstance(facts.damage, str)


@pytest.mark.parametrize("kind", ["job", "jobset", "volcano"])
@MANY
@given(path=st.sampled_from(JOB_PATHS), value=values)
def test_no_job_breaks_a_reader(kind: str, path: tuple[Any, ...], value: Any) -> None:
    judge(kind, changed(JOB, path, value), JOB, pods=(POD,), events=(EVENT,))


@MANY
@given(
    path=st.sampled_from([path for path in paths_of(OPEN) if path[:2] != ("spec", "template")]), value=values
)
def test_no_open_job_breaks_a_reader(path: tuple[Any, ...], value: Any) -> None:
    judge("job", changed(OPEN, path, value), pods=(POD, LOST, FAILED))


@MANY
@given(path=st.sampled_from(paths_of(POD)), value=values)
def test_no_pod_breaks_a_reader(path: tuple[Any, ...], value: Any) -> None:
    judge("job", JOB, pods=(changed(POD, path, value), POD))
    judge("job", OPEN, pods=(changed(POD, path, value), POD))


@MANY
@given(path=st.sampled_from(paths_of(LOST)), value=values)
def test_no_lost_pod_breaks_a_reader(path: tuple[Any, ...], value: Any) -> None:
    judge("job", OPEN, pods=(changed(LOST, path, value), POD))


@MANY
@given(path=st.sampled_from(paths_of(NODE)), value=values)
def test_no_node_breaks_a_reader(path: tuple[Any, ...], value: Any) -> None:
    judge("job", OPEN, pods=(LOST,), node=changed(NODE, path, value))


@MANY
@given(path=st.sampled_from(paths_of(EVENT)), value=values)
def test_no_event_breaks_a_reader(path: tuple[Any, ...], value: Any) -> None:
    pending = {**JOB, "status": {"active": 1}}
    judge("job", pending, events=(changed(EVENT, path, value),))


RECORD = json.loads(
    str(
        write_record(
            AppDef("a", [role(args=["${app_id}"], env={"A": "$$1"})]), {"quiet": True, "fail_fast": True}
        )
    )
)


@MANY
@given(path=st.sampled_from(paths_of(RECORD)), value=values)
def test_no_record_breaks_a_reader(path: tuple[Any, ...], value: Any) -> None:
    text = json.dumps(changed(RECORD, path, value))
    job = changed(JOB, ("metadata", "annotations", APP), text)
    judge("job", job)


@MANY
@given(text=texts | st.text(max_size=50).map("gzip:".__add__) | values.map(json.dumps))
@example("[" * 100_000)
@example('{"app":{"name":' + "[" * 900 + "]" * 900 + ',"roles":[]}}')
@example('{"app":{"roles":[{"name":"a","num_replicas":1000000000}]}}')
@example('{"app":{"roles":[{"name":"a","num_replicas":1e999}]}}')
@example('{"app":{"roles":[{"name":["x"]}]}}')
@example('{"schema":3,"app":{}}')
@example("gzip:" + base64.b64encode(zlib.compress(b"0" * 100_000_000, wbits=31)).decode())
def test_a_record_is_read_or_refused(text: str) -> None:
    begin = time.process_time()
    try:
        read_record(text)
    except RecordError as error:
        assert error.message.startswith("its record ")
    assert time.process_time() - begin < 2


def test_list_of_indexes_is_read_in_bounded_time() -> None:
    begin = time.process_time()
    indexes(",".join(["0-999999"] * 20_000))
    assert len(indexes("0-99999,5")) == 100_000
    assert time.process_time() - begin < 2


def test_no_object_of_a_real_cluster_is_malformed() -> None:
    folder = Path(__file__).parents[2] / "resources" / "kubernetes"
    recorded = {
        name: case
        for file in ("states.json", "disruptions.json")
        for name, case in json.loads((folder / file).read_text()).items()
    }
    objects = [each for case in recorded.values() for each in (case["job"], *case.get("pods", []))]
    objects += [node for case in recorded.values() for node in case.get("nodes", {}).values()]
    events = [event for case in recorded.values() for event in case.get("events", [])]
    for each in [*objects, *events]:
        named = {**each, "metadata": {"name": "e", **each.get("metadata", {})}}  # events are kept without
        kept = shaped(copy.deepcopy(named))
        assert kept is not None
        assert MALFORMED not in kept, kept[MALFORMED]
        assert {"uid": kept["metadata"]["name"], **named["metadata"]} == kept["metadata"]


# --- on a cluster --------------------------------------------------------------------------------


JOBS = "/apis/batch/v1/namespaces/default/jobs"
HALF = '{"app": {"name": "\\ud800", "roles": [{"name": 5}]}}'
POISON: dict[str, dict[str, Any]] = {
    "labels": {"metadata": {"labels": {ROLE_INDEX: "x"}}},
    "record": {"metadata": {"annotations": {APP: "{"}}},
    "newer record": {"metadata": {"annotations": {APP: '{"schema": 9, "app": {}}'}}},
    "nested": {"metadata": {"annotations": {APP: '{"app":' + "[" * 5000 + "]" * 5000 + "}"}}},
    "status": {"status": {"active": "many", "conditions": "none"}},
    "condition": {"status": {"conditions": [{"type": "Complete", "status": "True", "reason": ["x"]}]}},
    "times": {"metadata": {"annotations": {CANCELLED: "2026-99-99T00:00:00Z"}}, "status": 7},
    "half a letter": {"metadata": {"annotations": {APP: HALF}}},
    "huge": {"spec": {"completions": 10**30}},
}


def poisoned(cluster: FakeCluster) -> dict[str, str]:
    """Adds an application for each malformed object; returns their ids."""
    found = {}
    for number, (name, change) in enumerate(POISON.items()):
        job = copy.deepcopy(a_job())
        job["metadata"] |= {"name": f"bad-{number}-r", "namespace": "default"}
        job["metadata"]["labels"][APP_ID] = f"bad-{number}"
        for part, more in change.items():
            if not isinstance(more, dict):
                job[part] = more
                continue
            for key, value in more.items():
                job[part][key] = {**job[part][key], **value} if part == "metadata" else value
        cluster.store.create(JOBS, job)
        found[name] = f"default:bad-{number}"
    return found


def test_malformed_applications_are_listed_and_deleted_beside_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with FakeCluster(run=False) as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = KubernetesScheduler("torchx")
        good = submit(scheduler, "true", validate_spec=False)
        ids = poisoned(cluster)
        lines = {line.app_id: line for line in scheduler.list()}
        assert set(lines) == {good, *ids.values()}
        assert lines[good].state is AppState.SUBMITTED
        for name, app_id in ids.items():
            for result in (lines[app_id], scheduler.glance(app_id), scheduler.describe(app_id)):
                assert result is not None
                assert (result.state, bool(result.msg)) == (AppState.UNKNOWN, True), name
                assert "\n" not in result.msg
        done = torchx("list", "-s", "kubernetes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("UNKNOWN") == len(ids)
        assert "is malformed" in torchx("describe", f"kubernetes://torchx/{ids['status']}").stdout
        for app_id in ids.values():
            scheduler.delete(app_id)
        assert [line.app_id for line in scheduler.list()] == [good]
        scheduler.close()


def test_a_watch_goes_on_over_events_that_are_none(cluster: FakeCluster) -> None:
    mirror = Mirror.__new__(Mirror)
    mirror._objects, mirror._version, mirror._changed = {}, "1", lambda: None  # type: ignore[attr-defined]
    for event in (
        [],
        None,
        {"type": "ADDED"},
        {"type": "ADDED", "object": {"metadata": []}},
        {"type": "MODIFIED", "object": {}},
    ):
        mirror._apply(event)  # type: ignore[arg-type]
    mirror._apply({"type": "ADDED", "object": {"metadata": {"name": "a", "labels": 7}}})
    assert [each["metadata"] for each in mirror.objects()] == [{"name": "a", "uid": "a"}]


# --- ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "app_id", ["default:", ":", "a b", "default:a,b", "a=b", "Default:a", "default:a\n", "-a", "x" * 64]
)
def test_an_id_that_no_label_can_hold_is_refused(app_id: str) -> None:
    with pytest.raises(UsageError, match="is not a valid application id on Kubernetes"):
        split_id(app_id, "default")


def test_an_empty_id_deletes_nothing(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    """An empty id once chose every application of the namespace."""
    kept = submit(scheduler, "true")
    until_ended(scheduler, kept)
    for method in (scheduler.delete, scheduler.cancel, scheduler.kill):
        with pytest.raises(TorchxError):
            method("default:")
    assert scheduler.exists(kept)
    done = torchx("delete", "--force", "kubernetes://torchx/default:")
    assert done.returncode == 2
    assert "NAMESPACE:NAME" in done.stderr
