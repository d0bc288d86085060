"""Pods without the fields that are not read: the rest of them, and the memory that thousands of them need."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import Any

import pytest
from clusterobjects import a_lost_pod, a_pod, changed, paths_of
from fakecluster import FakeCluster
from kubejobs import role, submit, until_ended

from torchx.schedulers.kubernetes.api.pods import SmallPods
from torchx.schedulers.kubernetes.api.shape import MALFORMED, shaped
from torchx.schedulers.kubernetes.names import ENDED
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.schedulers.kubernetes.state.attempts import attempts_of, live, waits_for
from torchx.schedulers.kubernetes.state.replicas import replica_of, run_of
from torchx.schedulers.kubernetes.state.taken import count_before, not_ready, taken_away
from torchx.scheduling.logs import LogQuery


def facts(pod: dict[str, Any]) -> list[Any]:
    """Everything that is read of a pod."""
    found = [attempts_of(pod, 1), live(pod), waits_for(pod), replica_of(pod), run_of(pod)]
    return [*found, count_before(pod), not_ready(pod), taken_away(pod), pod["metadata"]["uid"]]


@pytest.mark.parametrize("make", [a_pod, a_lost_pod])
def test_a_small_pod_reads_as_the_whole_one(make: Any) -> None:
    raw = make()
    raw["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x"}]
    raw["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    small = SmallPods()(copy.deepcopy(raw))
    whole = shaped(copy.deepcopy(raw))
    assert small is not None and whole is not None
    assert facts(small) == facts(whole)
    assert "managedFields" not in small["metadata"] and "env" not in small["spec"]["containers"][0]


@pytest.mark.parametrize("value", [None, 7, "text", [], {}, [None]], ids=repr)
def test_pod_with_odd_value_is_read_as_any_object(value: Any) -> None:
    read = SmallPods()
    for path in paths_of(a_pod())[1:]:
        odd = changed(a_pod(), path, value)
        small, whole = read(copy.deepcopy(odd)), shaped(copy.deepcopy(odd))
        if whole is None or MALFORMED in whole:
            assert (small is None) or MALFORMED not in small or small == whole
            continue
        assert small is not None, path
        assert facts(small) == facts(whole), path


def test_equal_parts_of_pods_are_one_object() -> None:
    read = SmallPods()
    first, second = (
        read({**a_lost_pod(), "metadata": {**a_lost_pod()["metadata"], "name": n}}) for n in "ab"
    )
    assert first is not None and second is not None
    assert first["spec"]["containers"] is second["spec"]["containers"]
    assert first["status"]["containerStatuses"][0] is second["status"]["containerStatuses"][0]
    assert first["metadata"]["labels"] is second["metadata"]["labels"]


def test_last_lines_of_many_replicas_are_those_of_all(
    cluster: FakeCluster, scheduler: KubernetesScheduler
) -> None:
    script = 'for n in 1 2 3; do echo "$JOB_COMPLETION_INDEX line $n"; done'
    app_id = submit(scheduler, role(script, num_replicas=20))
    until_ended(scheduler, app_id)

    def lines(**query: Any) -> list[bytes]:
        chunks = scheduler.log_chunks(app_id, LogQuery(**query))
        return [line for chunk in chunks for line in chunk.data.splitlines()]

    everything = lines()
    assert len(everything) == 60
    assert lines(tail=7) == everything[-7:]
    assert lines(tail=100) == everything
    assert lines(tail=0) == []
    assert lines(tail=4, regex="line 2") == [line for line in everything if b"line 2" in line][-4:]


MANY = """
import json, resource, sys
from torchx.schedulers.kubernetes.api.pods import SmallPods
text = sys.stdin.read()
read = SmallPods()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pods = []
for number in range(10_000):
    data = json.loads(text)
    data["metadata"]["name"] = f"train-b1-worker-{number}-abcde"
    pods.append(read(data))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_thousands_of_pods_fit_into_memory() -> None:

    pod = a_lost_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": f"V{n}", "value": "x" * 100} for n in range(20)]
    done = subprocess.run(
        [sys.executable, "-c", MANY], input=json.dumps(pod), capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40_000, "kB; with all fields it would be several times as much"


@pytest.mark.parametrize(
    ("code", "ended_at", "state"),
    [
        (4, "2026-11-23T01:00:02Z", "FAILED"),  # in the second in which torchx ended it
        (4, "2026-11-23T01:00:01Z", "FAILED"),
        (4, "2026-11-23T01:00:03Z", "CANCELLED"),
        (143, "2026-11-23T01:00:02Z", "CANCELLED"),
        (137, "2026-11-23T01:00:01Z", "CANCELLED"),
    ],
)
def test_replica_that_failed_before_it_was_ended_has_failed(code: int, ended_at: str, state: str) -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {ENDED: "2026-11-23T01:00:02Z"}
    over = {"exitCode": code, "reason": "Error", "finishedAt": ended_at}
    pod["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"name": "main", "state": {"terminated": over}}],
    }
    assert attempts_of(pod, 1)[-1].state.name == state
